package nodeagent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/objects"
	"monoplane.dev/nodeagent/podcgroup"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/pullrecord"
	"monoplane.dev/nodeagent/tokens"
	"monoplane.dev/nodeagent/volumes"
	"monoplane.dev/rules/staticpod"
)

// ErrRefused means that the API does not accept this machine as the node. The agent has stopped its pods.
var ErrRefused = errors.New("the API server refuses this node")

// Agent runs the pods of one node. Use New, then Run.
type Agent struct {
	cfg   Config
	ready chan struct{}
	// apiSlots bounds the concurrent writes to the API.
	apiSlots chan struct{}
	// leasing is held by who writes the node's Lease.
	leasing chan struct{}

	// inOrder, host, groups and criNode are set before the first worker is made and never change. There are no groups
	// where it is not known how the runtime names them, or where it has its own, in which it may limit pods as it is
	// told: limitsPods.
	host       *podstate.Host
	groups     *podcgroup.Groups
	limitsPods bool
	criNode    criconfig.Node
	inOrder    inOrder
	// objects are the ConfigMaps and Secrets that the pods use.
	objects *objects.Tracker
	// volumes is nil on a simulated machine, and so is tokens.
	volumes *volumes.Manager
	tokens  *tokens.Manager
	static  *staticPods
	resizes resizes
	guard   *guard // nil on a simulated machine
	// pulled says with whose credentials images came; nil where nothing is noted of that.
	pulled  *pullrecord.Records
	sampler sampler
	// early bounds the early attempts of the probes of all pods together, in units of earlyNetwork.
	early *rate.Limiter
	// moved are the machine's addresses where they are no longer those of cfg.Machine.
	moved atomic.Pointer[[]string]

	mu sync.Mutex
	// ctx is for the actions of workers, nil before Run; cancel ends it. Invariant: once closed, nothing is spawned.
	ctx    context.Context
	cancel context.CancelFunc
	closed bool
	wg     sync.WaitGroup
	// workers by the pod's uid. Invariant: a worker leaves when its machine is Gone.
	workers map[string]*worker
	// emptying: the node is to be empty; no pod starts. Invariant: stopping is closed when it is set.
	emptying bool
	// goingDown: the machine is about to go down; no pod is admitted. Down is closed when the ShutDown that ends the pods
	// returns; nil while none does.
	goingDown bool
	down      chan struct{}
	// stuck holds, by uid, the pods of which something is not confirmed dead; nil for none.
	stuck map[string]string
	// node is the Node object as last seen.
	node *corev1.Node
	// lease is the node's Lease as last written, nil when it is to be read.
	lease *coordinationv1.Lease
	// beats are the heartbeats, nil before the first.
	beats *pulse
	// unready says what the runtime lacks; empty when it is ready.
	unready string
	// handlers and features are what the runtime says that it can do; both are nil before it has answered.
	handlers []*corev1.NodeRuntimeHandler
	features *corev1.NodeFeatures
	// wasReady says that it has been ready since the agent has started.
	wasReady bool
	// ranges are what the runtime was told of the pods' addresses.
	ranges ranges
	// blind is since when the runtime does not tell what runs, zero while it does.
	blind time.Time
	// stopping is closed when the node is to be empty; known once there are workers for the pods that were read when the
	// agent came back; ended when Run has ended.
	stopping, known, ended chan struct{}
	// changed is closed, and made anew, when a worker has moved on; made by who waits.
	changed chan struct{}

	// users gives ranges of ids to pods.
	users users

	// admitting makes decisions about admission one at a time.
	admitting sync.Mutex
}

// New returns an agent that does nothing until Run.
func New(cfg Config) (*Agent, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a := &Agent{
		cfg: cfg, ready: make(chan struct{}), apiSlots: make(chan struct{}, 16), leasing: make(chan struct{}, 1),
		workers:  make(map[string]*worker),
		stopping: make(chan struct{}), known: make(chan struct{}), ended: make(chan struct{}),
		early: rate.NewLimiter(earlyPerSecond, earlyPerSecond),
	}
	a.objects = objects.New(objects.Config{Client: cfg.Client, Spawn: a.spawn, OnChange: a.contentChanged})
	a.volumes = a.newVolumes()
	if cfg.StateDir != "" && !cfg.Simulated {
		a.pulled = pullrecord.New(filepath.Join(cfg.StateDir, "image_manager"), cfg.PullCredentials)
	}
	a.static, a.guard = newStaticPods(a), newGuard(a)
	a.resizes.agent, a.resizes.holding = a, 1
	return a, nil
}

// Ready is closed once the node is registered and the agent knows its pods.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Unready says what keeps the node's Ready condition false: what the runtime lacks, or that the node is being emptied;
// empty when nothing does.
func (a *Agent) Unready() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.emptying || a.goingDown {
		return shuttingDown
	}
	return a.unready
}

// Run works until ctx ends and then returns its error; pods go on running. It fails at once with ErrRefused when
// the API does not accept the node. It must be called once.
func (a *Agent) Run(ctx context.Context) error {
	a.mu.Lock()
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.mu.Unlock()
	defer a.close()

	a.sweep()
	a.inOrder = a.readStopNote()
	var pods *cache.Cache[*corev1.Pod]
	err := apart(func() (err error) { pods, err = a.appear(ctx); return err })
	if err == nil {
		err = a.work(ctx, pods)
	}
	if errors.Is(err, ErrRefused) {
		return a.refused(ctx, err)
	}
	return err
}

// appear meets the runtime, sees what there is, registers the node and makes workers for its pods. It returns what is
// to feed them.
func (a *Agent) appear(ctx context.Context) (*cache.Cache[*corev1.Pod], error) {
	if a.cfg.Starting != nil {
		select {
		case a.cfg.Starting <- struct{}{}:
			defer func() { <-a.cfg.Starting }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	late := a.sayWhenLate(ctx)
	seen, err := a.findOut(ctx)
	late.stop()
	if err != nil {
		return nil, err
	}
	if err = a.registerUnlessStopping(ctx); err == nil {
		if len(a.cfg.Limits) > 0 {
			a.nodeEvent(record.Warning, "NotEnforced", strings.Join(a.cfg.Limits, " "))
		}
		return a.startPods(seen), nil
	}
	if errors.Is(err, ErrRefused) {
		a.empty()
		a.adoptAll(seen)
	}
	return nil, err
}

// findOut meets the runtime and finds out what runs here and what should.
func (a *Agent) findOut(ctx context.Context) (*returned, error) {
	if err := a.meetRuntime(ctx); err != nil {
		return nil, err
	}
	return a.comeBack(ctx)
}

// apart runs f on a goroutine of its own. The goroutine that waits lives as long as the agent does, and would keep the
// stack that f needs; there may be a thousand agents.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return <-done
}

// work runs what goes on until ctx ends, or one part fails.
func (a *Agent) work(ctx context.Context, pods *cache.Cache[*corev1.Pod]) error {
	// Workers go on with a.ctx when a part fails, so that the node can be emptied.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.follow(ctx, pods) })
	g.Go(func() error { return a.watchRuntime(ctx) })
	if !a.cfg.NodeWatched {
		g.Go(func() error { return a.watchNode(ctx) })
	}
	if !a.cfg.NoStreams {
		g.Go(func() error { return a.serveStreams(ctx) })
	}
	if a.guard != nil {
		g.Go(func() error { return a.guard.run(ctx) })
	}
	if a.cfg.KernelLog != "" {
		g.Go(func() error { return a.watchOOM(ctx) })
	}
	if a.static.watcher != nil {
		g.Go(func() error { return a.static.run(ctx) })
	}
	if a.cfg.PodLogDir != "" {
		g.Go(func() error { return a.rotateLogs(ctx) })
	}
	if a.volumes != nil {
		g.Go(func() error { return a.watchLimits(ctx) })
	}
	// On this goroutine, since a process may hold a thousand agents.
	beats := a.startPulse(ctx, func(err error) { g.Go(func() error { return err }) })
	err := pods.Run(ctx)
	g.Go(func() error { return err })
	<-ctx.Done()
	beats.stop()
	return g.Wait()
}

// follow ends the pods that were deleted while nobody watched, then says that the agent is ready.
func (a *Agent) follow(ctx context.Context, pods *cache.Cache[*corev1.Pod]) error {
	if err := pods.WaitForSync(ctx); err != nil {
		return err
	}
	a.static.missing(pods)
	for _, w := range a.list() {
		if w.static != nil {
			continue // the API has its mirror only
		}
		p := w.pod()
		if have, ok := pods.Get(p.GetMetadata().GetNamespace(), p.GetMetadata().GetName()); !ok || uidOf(have) != w.uid {
			w.post(podstate.Absent{})
		}
	}
	a.comeBackToVolumes()
	a.dropStopNote()
	a.firstLease(ctx)
	close(a.ready)
	a.cfg.Logger.Info("node is ready")
	return nil
}

// startPods makes workers for the pods that were read and a cache that feeds all of them.
func (a *Agent) startPods(seen *returned) *cache.Cache[*corev1.Pod] {
	a.adoptAll(seen)
	pods := cache.New(cache.Config[*corev1.Pod]{
		Source:        cache.Watch(a.cfg.Client.Pods.Watch),
		FieldSelector: "spec.nodeName=" + a.cfg.NodeName,
		Logger:        a.cfg.Logger,
	})
	pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd: a.podChanged,
		OnUpdate: func(was, p *corev1.Pod) {
			a.podChanged(p)
			if refreshed(was, p) {
				a.refreshVolumes(uidOf(p))
			}
		},
		OnDelete: func(p *corev1.Pod) {
			if staticpod.IsMirror(p.GetMetadata()) {
				a.static.mirrorGone(p)
			}
			if w := a.worker(uidOf(p)); w != nil {
				w.post(podstate.Absent{})
			}
		},
	})
	return pods
}

// adoptAll makes workers for the pods that were read when the agent came back.
func (a *Agent) adoptAll(seen *returned) {
	for _, p := range seen.pods {
		l := seen.local[uidOf(p)]
		if l == nil {
			l = &local{}
		}
		a.adopt(p, l)
	}
	a.resizes.release() // what the pods of an earlier agent hold is known now
	close(a.known)
}

// podChanged brings a pod's object to its worker, a new one if need be.
func (a *Agent) podChanged(p *corev1.Pod) {
	if w := a.worker(uidOf(p)); w != nil {
		w.post(podstate.Changed{Pod: p})
		return
	}
	if staticpod.IsMirror(p.GetMetadata()) {
		a.static.mirrorSeen(p)
		return
	}
	a.adopt(p, &local{})
}

// adopt makes a worker for a pod, given what runs of it here. What is unclear of that will be seen by the first look
// at everything.
func (a *Agent) adopt(p *corev1.Pod, l *local) {
	if l.unclear != nil {
		for i := range l.Sandboxes { // the pod keeps its addresses until they can be read
			for _, ip := range p.GetStatus().GetPodIPs() {
				l.Sandboxes[i].IPs = append(l.Sandboxes[i].IPs, ip.GetIp())
			}
		}
	}
	m := podstate.New(a.host, p, l.Observation, time.Now())
	if kept := a.keptGrant(p); kept != nil {
		m.Restore(kept)
	}
	a.add(&worker{agent: a, uid: uidOf(p), m: m})
}

func (a *Agent) add(w *worker) {
	a.mu.Lock()
	if a.closed || a.workers[w.uid] != nil {
		a.mu.Unlock()
		return
	}
	a.workers[w.uid] = w
	emptying := a.emptying
	a.mu.Unlock()
	if emptying {
		w.post(podstate.NodeStopping{})
		return
	}
	w.post(podstate.Start{})
}

func (a *Agent) worker(uid string) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workers[uid]
}

func (a *Agent) list() []*worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*worker, 0, len(a.workers))
	for _, w := range a.workers {
		out = append(out, w)
	}
	return out
}

// forget drops a worker that has nothing left to do.
func (a *Agent) forget(w *worker) {
	a.mu.Lock()
	if a.workers[w.uid] == w {
		delete(a.workers, w.uid)
	}
	a.mu.Unlock()
	if w.static != nil {
		a.static.gone(w)
	}
}

// spawn runs f on a goroutine of its own with Run's context, unless the agent is being closed.
func (a *Agent) spawn(f func(ctx context.Context)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	ctx := a.ctx
	a.wg.Go(func() { f(ctx) })
}

// context returns the context of the workers' actions.
func (a *Agent) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// close ends what Run has begun. Pods go on running.
func (a *Agent) close() {
	a.mu.Lock()
	a.closed = true
	close(a.ended)
	workers := a.workers
	a.workers = make(map[string]*worker)
	a.mu.Unlock()
	a.cancel()
	for _, w := range workers {
		w.close()
	}
	if a.volumes != nil {
		a.volumes.Close()
		a.tokens.Close()
	}
	a.wg.Wait()
}

// progress tells those who wait in waitUntil that a worker has moved on.
func (a *Agent) progress() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// waitUntil waits until done returns true. Done is called again whenever a worker has moved on.
func (a *Agent) waitUntil(ctx context.Context, done func() bool) error {
	for {
		a.mu.Lock()
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The longest waits between tries of what the agent needs to begin: the runtime is on this machine, and what it runs
// is to be adopted as soon as it answers; the API server serves many.
const (
	runtimeRetryMost = blindInterval
	apiRetryMost     = 10 * time.Second
)

// retry calls f until it succeeds or ctx ends, with back-off from 100 ms to most.
func retry(ctx context.Context, most time.Duration, f func(ctx context.Context) error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, most) {
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
		err := f(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			return errors.Join(ctx.Err(), nil)
		}
		if errors.Is(err, ErrRefused) {
			return err
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// sleep waits; it returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func uidOf(p *corev1.Pod) string { return p.GetMetadata().GetUid() }
