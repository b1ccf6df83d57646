package nodeagent

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/static"
	"monoplane.dev/rules/grace"
	"monoplane.dev/rules/staticpod"
)

// staticPods runs the pods of the machine's manifests and keeps their mirrors in the API. A static pod has a worker
// like any other; what a server is to the others, its staticPod is to it. A name has one worker at a time: what an
// edit of the manifest makes of the pod begins when nothing is left of what it was. spec: STATIC-1
//
// Locks are taken in the order worker, staticPods, Agent.
type staticPods struct {
	agent   *Agent
	watcher *static.Watcher
	saved   static.Saved

	mu   sync.Mutex
	pods map[string]*staticPod // by namespace/name
	// unread: of some origin it is not known yet what it wants.
	unread bool
	// told is what was last said to be wrong with the manifests.
	told []string
}

// staticPod is what there is under one name.
type staticPod struct {
	key string
	// wanted is what the manifests say, nil when they do not have it.
	wanted *corev1.Pod
	// object is the pod that runs here, or is ending, as a server would have it: its revision counts its changes. Nil
	// when there is none. Invariant: worker is its worker, nil with it.
	object   *corev1.Pod
	revision int64
	worker   *worker
	// mirror is the API's pod of that name on this node; told is the status that was last written to it.
	mirror *corev1.Pod
	told   *corev1.PodStatus
	// tending: a goroutine sees to the mirror.
	tending bool
}

// savedDir is where the static pods are kept that the agent has started.
func (a *Agent) savedDir() string { return filepath.Join(a.cfg.StateDir, "static") }

func newStaticPods(a *Agent) *staticPods {
	s := &staticPods{agent: a}
	if a.cfg.ManifestDir == "" && a.cfg.ManifestURL == "" {
		return s
	}
	if a.cfg.StateDir != "" {
		s.saved.Dir = a.savedDir()
	}
	cfg := static.Config{
		NodeName: a.cfg.NodeName, Dir: a.cfg.ManifestDir, URL: a.cfg.ManifestURL, Header: a.cfg.ManifestHeader,
		Client: a.cfg.ManifestClient, Complete: a.cfg.CompletePod,
	}
	if !a.cfg.Simulated {
		cfg.Notify = static.Notify
	}
	s.watcher = static.NewWatcher(cfg)
	return s
}

// begin starts, or adopts, the pods that the manifests have now, given what runs here, and takes them out of found.
// What runs of other static pods is stopped, unless it belongs to a manifest that nobody could read yet.
func (s *staticPods) begin(ctx context.Context, found map[string]*local) {
	saved := s.saved.All()
	if s.watcher == nil {
		return // no manifests, so that nothing here is a static pod's
	}
	s.tell(s.watcher.Look(ctx, true), func(wanted []*corev1.Pod) []*corev1.Pod {
		if !s.unread {
			return wanted
		}
		// The URL is asked later; until it answers, what it said last holds.
		for _, p := range saved {
			if p.GetMetadata().GetAnnotations()[staticpod.Source] == static.HTTP {
				wanted = append(wanted, p)
			}
		}
		return wanted
	}, found)
	for _, p := range saved {
		uid := uidOf(p)
		switch l := found[uid]; {
		case s.agent.worker(uid) != nil:
		case l != nil && s.endSaved(p, l):
			delete(found, uid)
		default:
			s.drop(uid)
		}
	}
	s.mu.Lock()
	unread := s.unread
	s.mu.Unlock()
	maps.DeleteFunc(found, func(uid string, _ *local) bool {
		return s.agent.worker(uid) != nil || unread && static.IsUID(uid)
	})
}

// endSaved stops what runs of a pod whose manifest has gone while nobody looked, with the grace that the pod has.
func (s *staticPods) endSaved(p *corev1.Pod, l *local) bool {
	s.mu.Lock()
	e := s.entry(keyOf(p))
	if e.object != nil {
		s.mu.Unlock()
		return false // its successor runs already
	}
	w := s.makeWorker(e, p, l)
	s.mu.Unlock()
	s.agent.add(w)
	s.end(e)
	return true
}

// run follows the manifests until ctx ends.
func (s *staticPods) run(ctx context.Context) error {
	s.watcher.Run(ctx, func(now static.State) { s.tell(now, nil, nil) })
	return ctx.Err()
}

// tell takes in what the manifests say: pods that are new begin, and those that are gone, or are others now, end.
// More, if not nil, adds to what they say. Found is what runs here already.
func (s *staticPods) tell(now static.State, more func([]*corev1.Pod) []*corev1.Pod, found map[string]*local) {
	s.mu.Lock()
	s.unread = len(now.Read) < len(s.watcher.Kinds())
	pods := now.Pods
	if more != nil {
		pods = more(pods)
	}
	wanted := make(map[string]*corev1.Pod, len(pods))
	for _, p := range pods {
		if wanted[keyOf(p)] == nil {
			wanted[keyOf(p)] = p
		}
	}
	for key, e := range s.pods {
		waits := s.unread && e.wanted != nil && source(e.wanted) == static.HTTP // nobody knows yet
		if wanted[key] == nil && !waits {
			e.wanted = nil
		}
	}
	for key, p := range wanted {
		s.entry(key).wanted = p
	}
	all := slices.Collect(maps.Values(s.pods))
	news := slices.Concat(now.Wrong, now.Odd)
	silent := slices.Equal(news, s.told)
	s.told = news
	s.mu.Unlock()
	for _, e := range all {
		s.settle(e, found)
	}
	if !silent {
		s.complain(now)
	}
}

func source(p *corev1.Pod) string { return p.GetMetadata().GetAnnotations()[staticpod.Source] }

// complain says what is wrong with manifests, in the log and as an event of the node.
func (s *staticPods) complain(now static.State) {
	for _, odd := range now.Odd {
		s.agent.cfg.Logger.Warn("a static pod has fields that nobody knows", "error", odd)
	}
	for _, wrong := range now.Wrong {
		s.agent.cfg.Logger.Warn("static pods cannot be run", "error", wrong)
		s.agent.nodeEvent(record.Warning, "InvalidManifest", wrong)
	}
}

// settle starts or ends the pod of a name, as the manifests want it.
func (s *staticPods) settle(e *staticPod, found map[string]*local) {
	s.mu.Lock()
	var starts *worker
	ends := e.object != nil && (e.wanted == nil || uidOf(e.wanted) != uidOf(e.object))
	if e.object == nil && e.wanted != nil {
		l := found[uidOf(e.wanted)]
		if l == nil {
			l = &local{}
		}
		starts = s.makeWorker(e, e.wanted, l)
	}
	s.mu.Unlock()
	switch {
	case starts != nil:
		if err := s.saved.Put(starts.pod()); err != nil {
			s.agent.cfg.Logger.Warn("a static pod cannot be noted", "pod", e.key, "error", err)
		}
		s.agent.add(starts)
	case ends:
		s.end(e)
	}
	s.tend(e)
}

// makeWorker makes the worker of a pod. The caller holds the lock.
func (s *staticPods) makeWorker(e *staticPod, p *corev1.Pod, l *local) *worker {
	meta := p.GetMetadata().Shallow()
	e.revision = 1
	meta.ResourceVersion = "1"
	e.object = &corev1.Pod{Metadata: meta, Spec: p.GetSpec(), Status: p.GetStatus()}
	e.worker = &worker{agent: s.agent, uid: uidOf(p), static: e,
		m: podstate.New(s.agent.host, e.object, l.Observation, time.Now())}
	return e.worker
}

// change replaces the object by one with other metadata or another status. The caller holds the lock.
func (e *staticPod) change(meta *metav1.ObjectMeta, status *corev1.PodStatus) *corev1.Pod {
	e.revision++
	meta = meta.Shallow()
	meta.ResourceVersion = strconv.FormatInt(e.revision, 10)
	e.object = &corev1.Pod{Metadata: meta, Spec: e.object.GetSpec(), Status: status}
	return e.object
}

// end marks the pod for deletion, with its own grace, unless it is marked already.
func (s *staticPods) end(e *staticPod) {
	s.mu.Lock()
	w, meta := e.worker, e.object.GetMetadata()
	if w == nil || meta.GetDeletionTimestamp() != nil {
		s.mu.Unlock()
		return
	}
	period := grace.Own(e.object.GetSpec().TerminationGracePeriodSeconds)
	meta = meta.Shallow()
	meta.DeletionTimestamp = &metav1.Time{Seconds: now().Add(grace.Duration(period)).Unix()}
	meta.DeletionGracePeriodSeconds = proto.Int64(period)
	p := e.change(meta, e.object.GetStatus())
	s.mu.Unlock()
	s.agent.cfg.Logger.Info("stopping a static pod whose manifest has changed or gone", "pod", e.key, "uid", w.uid)
	w.post(podstate.Changed{Pod: p})
}

// written takes the status that a worker has written.
func (s *staticPods) written(e *staticPod, p *corev1.Pod) podstate.Input {
	s.mu.Lock()
	if uidOf(e.object) != uidOf(p) {
		s.mu.Unlock()
		return podstate.StatusWritten{Outcome: podstate.Conflict}
	}
	now := e.change(e.object.GetMetadata(), p.GetStatus())
	s.mu.Unlock()
	s.tend(e)
	return podstate.StatusWritten{Pod: now}
}

// lookup answers what the API would of another pod.
func (s *staticPods) lookup(e *staticPod, uid string) podstate.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uidOf(e.object) != uid {
		return podstate.LookedUp{Outcome: podstate.Missing}
	}
	return podstate.LookedUp{Pod: e.object}
}

// gone is told when nothing is left of a pod, by its worker, which is locked.
func (s *staticPods) gone(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := w.static
	if e.worker != w {
		return
	}
	e.worker, e.object = nil, nil
	s.agent.spawn(func(context.Context) {
		s.drop(w.uid)
		s.settle(e, nil)
	})
}

func (s *staticPods) drop(uid string) {
	if err := s.saved.Drop(uid); err != nil {
		s.agent.cfg.Logger.Warn("a static pod that is gone cannot be forgotten", "uid", uid, "error", err)
	}
}

// entry returns what there is under a name. The caller holds the lock.
func (s *staticPods) entry(key string) *staticPod {
	if s.pods[key] == nil {
		if s.pods == nil {
			s.pods = make(map[string]*staticPod)
		}
		s.pods[key] = &staticPod{key: key}
	}
	return s.pods[key]
}

func keyOf(p *corev1.Pod) string { return name(p) }

// holds reports whether a uid may be that of a static pod of which nothing is known yet.
func (s *staticPods) holds(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unread && static.IsUID(uid)
}

// ofMirror returns the worker of the static pod whose mirror has a uid, nil for none.
func (s *staticPods) ofMirror(uid string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.pods {
		if e.mirror != nil && uidOf(e.mirror) == uid {
			return e.worker
		}
	}
	return nil
}

// mirrorSeen is told of a mirror on this node.
func (s *staticPods) mirrorSeen(p *corev1.Pod) {
	s.mu.Lock()
	e := s.entry(keyOf(p))
	if e.mirror == nil || newer(e.mirror, p) {
		s.setMirror(e, p)
	}
	s.mu.Unlock()
	s.tend(e)
}

// newer reports whether b is a later revision than a; what cannot be read is.
func newer(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.GetMetadata().GetResourceVersion(), 10, 64)
	y, errY := strconv.ParseUint(b.GetMetadata().GetResourceVersion(), 10, 64)
	return errX != nil || errY != nil || y > x
}

// setMirror takes what the API has, nil for nothing. The caller holds the lock.
func (s *staticPods) setMirror(e *staticPod, p *corev1.Pod) {
	if p == nil || e.mirror == nil || uidOf(p) != uidOf(e.mirror) {
		e.told = nil
	}
	e.mirror = p
}

// mirrorGone is told that a pod with the mirror's annotation is no more.
func (s *staticPods) mirrorGone(p *corev1.Pod) {
	s.mu.Lock()
	e := s.pods[keyOf(p)]
	if e == nil || uidOf(e.mirror) != uidOf(p) {
		s.mu.Unlock()
		return
	}
	s.setMirror(e, nil)
	s.mu.Unlock()
	s.tend(e)
}

// missing drops the mirrors that the API no longer has.
func (s *staticPods) missing(pods *cache.Cache[*corev1.Pod]) {
	s.mu.Lock()
	var gone []*corev1.Pod
	for _, e := range s.pods {
		if e.mirror == nil {
			continue
		}
		meta := e.mirror.GetMetadata()
		if have, ok := pods.Get(meta.GetNamespace(), meta.GetName()); !ok || uidOf(have) != meta.GetUid() {
			gone = append(gone, e.mirror)
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		s.mirrorGone(p)
	}
}

// tend sees to the mirror of a pod, on a goroutine of its own, until nothing is left to be done about it.
func (s *staticPods) tend(e *staticPod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.tending {
		return
	}
	step, _ := s.step(e)
	if step == static.Nothing {
		if e.object == nil && e.wanted == nil && e.mirror == nil && s.pods[e.key] == e {
			delete(s.pods, e.key)
		}
		return
	}
	e.tending = true
	s.agent.spawn(func(ctx context.Context) {
		s.tendUntilDone(ctx, e)
		s.mu.Lock()
		e.tending = false
		s.mu.Unlock()
		if ctx.Err() == nil {
			s.tend(e) // what came up meanwhile
		}
	})
}

// step decides what is next. The caller holds the lock.
func (s *staticPods) step(e *staticPod) (static.Step, *corev1.Pod) {
	if e.object == nil && (e.wanted != nil || s.unread) {
		return static.Nothing, nil // it begins right away, or its manifest has not been read
	}
	return static.NextStep(e.object, e.mirror, e.told), e.object
}

func (s *staticPods) tendUntilDone(ctx context.Context, e *staticPod) {
	const least, most = 200 * time.Millisecond, 30 * time.Second
	bad := trouble{what: "the mirror of a static pod cannot be kept", log: s.agent.cfg.Logger.With("pod", e.key)}
	for wait := least; ; {
		s.mu.Lock()
		step, p := s.step(e)
		mirror := e.mirror
		s.mu.Unlock()
		if step == static.Nothing {
			return
		}
		err := s.do(ctx, e, step, p, mirror)
		if ctx.Err() != nil {
			return
		}
		bad.tell(err)
		if err == nil {
			wait = least
			continue
		}
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, most)
	}
}

var (
	errForeign    = errors.New("a pod that is not static has its name")
	errHeld       = errors.New("it is being deleted, and finalizers hold it")
	errNoNode     = errors.New("the node is not registered yet")
	errOtherNode  = errors.New("a static pod of another node has its name")
	errUnexpected = errors.New("unknown step")
)

// do takes one step, and looks at the mirror again when it does not succeed.
func (s *staticPods) do(ctx context.Context, e *staticPod, step static.Step, p, mirror *corev1.Pod) error {
	err := s.agent.call(ctx, func(ctx context.Context) error {
		switch step {
		case static.Create:
			return s.create(ctx, e, p)
		case static.Write:
			return s.write(ctx, e, p, mirror)
		case static.Delete:
			return s.delete(ctx, mirror)
		case static.Blocked:
			return errForeign
		default:
			return errUnexpected
		}
	})
	if err == nil && step != static.Delete {
		return nil
	}
	return errors.Join(err, s.agent.call(ctx, func(ctx context.Context) error { return s.read(ctx, e, step, mirror) }))
}

func (s *staticPods) create(ctx context.Context, e *staticPod, p *corev1.Pod) error {
	node := s.agent.nodeNow()
	if node.GetMetadata().GetUid() == "" {
		return errNoNode
	}
	made, err := s.agent.cfg.Client.Pods.Create(ctx, &corev1rpc.CreatePodRequest{
		Namespace: p.GetMetadata().GetNamespace(), Object: static.NewMirror(p, node.GetMetadata()),
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.mirror == nil || newer(e.mirror, made) {
		s.setMirror(e, made)
	}
	return nil
}

func (s *staticPods) write(ctx context.Context, e *staticPod, p, mirror *corev1.Pod) error {
	made, err := s.agent.cfg.Client.Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{
		Namespace: p.GetMetadata().GetNamespace(), Name: p.GetMetadata().GetName(),
		Object: &corev1.Pod{Metadata: mirror.GetMetadata(), Spec: mirror.GetSpec(), Status: p.GetStatus()},
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.mirror == nil || uidOf(e.mirror) != uidOf(made) {
		return nil // it went meanwhile
	}
	if newer(e.mirror, made) {
		e.mirror = made
	}
	e.told = p.GetStatus()
	return nil
}

func (s *staticPods) delete(ctx context.Context, mirror *corev1.Pod) error {
	meta := mirror.GetMetadata()
	_, err := s.agent.cfg.Client.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: meta.GetNamespace(), Name: meta.GetName(),
		Options: &metav1.DeleteOptions{
			GracePeriodSeconds: proto.Int64(0), Preconditions: &metav1.Preconditions{Uid: proto.String(meta.GetUid())},
		},
	})
	if apierrors.Is(err, apierrors.NotFound) || apierrors.Is(err, apierrors.Conflict) {
		return nil // what is there is read now
	}
	return err
}

// read looks at what the API has under the pod's name, after a step that did not, or may not have, succeeded.
func (s *staticPods) read(ctx context.Context, e *staticPod, step static.Step, before *corev1.Pod) error {
	namespace, name, _ := strings.Cut(e.key, "/")
	have, err := s.agent.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
	switch {
	case apierrors.Is(err, apierrors.Forbidden):
		return errOtherNode // an agent may read the pods of its own node only
	case apierrors.Is(err, apierrors.NotFound):
		have = nil
	case err != nil:
		return err
	}
	s.mu.Lock()
	s.setMirror(e, have)
	s.mu.Unlock()
	if step == static.Delete && have != nil && uidOf(have) == uidOf(before) {
		return errHeld
	}
	return nil
}

// nodeEvent records an event of the node.
func (a *Agent) nodeEvent(kind, reason, note string) {
	a.cfg.Recorder.EventFor(&corev1.ObjectReference{
		ApiVersion: corev1.NodeKind.APIVersion(), Kind: corev1.NodeKind.Kind, Name: a.cfg.NodeName, Uid: a.cfg.NodeName,
	}, kind, reason, "Running", note)
}
