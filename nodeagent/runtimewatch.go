package nodeagent

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podstate"
)

// watchRuntime learns of changes in the runtime: by its events while it sends them, and by looking at everything,
// seldom while it does and often while it does not. Events flow from when the runtime has sent its headers.
func (a *Agent) watchRuntime(ctx context.Context) error {
	l := &looker{agent: a, ctx: ctx}
	l.flow(false)
	defer l.stop()
	const most = time.Minute
	for wait := time.Second; ; wait = min(2*wait, most) {
		stream, err := a.cfg.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err == nil {
			_, err = stream.Header()
		}
		if err == nil {
			l.flow(true)
			began := time.Now()
			for err == nil {
				var ev *runtimeapi.ContainerEventResponse
				if ev, err = stream.Recv(); err == nil {
					a.event(ev)
				}
			}
			l.flow(false)
			if time.Since(began) > most {
				wait = time.Second // it worked for a while
			}
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// looker looks at everything in the runtime once in a while. Between two looks it is only a timer. A look may take
// long when the runtime does not answer; nobody waits for it meanwhile.
//
//	waiting ── timer ──► looking ──► waiting
//	                       │ ▲
//	         events begin  ▼ │ done: looks once more
//	         or end       again
type looker struct {
	agent *Agent
	ctx   context.Context
	// asking holds the uids of pods without a worker that the API is being asked about.
	asking sync.Map

	mu    sync.Mutex
	state lookState
	// last is, by uid, what the last look saw.
	last    map[string]uint64
	flowing bool
	timer   *time.Timer
}

type lookState uint8

const (
	lookWaits lookState = iota
	looking
	lookAgain
)

// flow says whether events flow, and looks once more, at what was missed in between.
func (l *looker) flow(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := l.timer == nil
	l.flowing = on
	if began {
		l.timer = time.AfterFunc(l.agent.cfg.PollInterval, func() {
			l.agent.spawn(func(context.Context) { l.look() }) // so that the agent's end waits for it
		})
		return
	}
	if l.state != lookWaits {
		l.state = lookAgain
		return
	}
	l.timer.Reset(0)
}

func (l *looker) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || l.state != lookWaits {
		return
	}
	l.state = looking
	last := l.last
	l.mu.Unlock()
	began := now()
	seen, err := l.relist(last)
	if l.ctx.Err() == nil {
		l.agent.looked(began, err)
	}
	l.mu.Lock()
	again := l.state == lookAgain
	l.state = lookWaits
	if err == nil {
		l.last = seen
	}
	wait := l.agent.cfg.PollInterval
	switch {
	case again:
		wait = 0
	case err != nil:
		wait = min(wait, blindInterval)
	case l.flowing && err == nil:
		wait = l.agent.cfg.RelistInterval
	}
	if l.ctx.Err() == nil {
		l.timer.Reset(wait)
	}
}

// blindInterval is the time between looks that fail. With the time that connecting again takes at most (package
// runtime/connect), a runtime is seen to be back within a second of its first answer. spec: NODE-2
const blindInterval = 250 * time.Millisecond

// blindLimit is how long looks may fail before the node is no longer ready; kubelet has the same.
const blindLimit = 3 * time.Minute

// looked notes how a look went that began at a time.
func (a *Agent) looked(began time.Time, err error) {
	a.mu.Lock()
	was := a.blind
	switch {
	case err == nil:
		a.blind = time.Time{}
	case was.IsZero():
		a.blind = began
	}
	a.mu.Unlock()
	switch {
	case err != nil && was.IsZero():
		a.cfg.Logger.Warn("the container runtime cannot be read", "error", err) // once, not every second
	case err == nil && !was.IsZero():
		a.cfg.Logger.Warn("the container runtime can be read again")
		a.LookAtNode()
		for _, w := range a.list() {
			w.post(podstate.RuntimeBack{})
		}
	}
}

// blindness says, after a while, that the runtime does not tell what runs, in kubelet's words; empty when it does. The
// caller holds the lock.
func (a *Agent) blindness() string {
	if a.blind.IsZero() || now().Sub(a.blind) < blindLimit {
		return ""
	}
	return fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v",
		now().Sub(a.blind).Truncate(time.Second), blindLimit)
}

// stop ends the looks. Their context has ended before.
func (l *looker) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}

// event brings one event to its pod's worker.
func (a *Agent) event(ev *runtimeapi.ContainerEventResponse) {
	box := ev.GetPodSandboxStatus()
	w := a.worker(box.GetMetadata().GetUid())
	if w == nil {
		return // relist deals with what nobody knows
	}
	if ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		return // we deleted it, or relist will find it missing
	}
	if len(ev.GetContainersStatuses()) == 0 {
		w.post(podstate.Poke{})
		return
	}
	seen := podstate.Observation{Sandboxes: []podstate.Sandbox{sandboxOf(box)}}
	for _, c := range ev.GetContainersStatuses() {
		if c.GetId() == "" {
			w.post(podstate.Poke{})
			return
		}
		in := a.instanceOf(c)
		in.SandboxID = box.GetId()
		seen.Instances = append(seen.Instances, in)
	}
	w.post(podstate.Observed{Seen: seen})
}

// relist looks at everything that the runtime has, pokes the workers whose pods have changed since the last look, and
// ends pods that nobody knows. It returns what it saw, to compare the next time.
func (l *looker) relist(last map[string]uint64) (map[string]uint64, error) {
	a := l.agent
	containers, sandboxes, err := a.listRuntime(l.ctx, nil)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]uint64)
	// Sums do not depend on the order in which the runtime lists.
	for _, s := range sandboxes {
		if a.owns(s.GetLabels()) {
			seen[s.GetLabels()[criconfig.LabelPodUID]] += print(s.GetId(), int32(s.GetState()))
		}
	}
	for _, c := range containers {
		if a.owns(c.GetLabels()) {
			seen[c.GetLabels()[criconfig.LabelPodUID]] += print(c.GetId(), int32(c.GetState()))
		}
	}
	for uid, sum := range seen {
		switch w := a.worker(uid); {
		case w == nil:
			l.ask(uid)
		case last[uid] != sum:
			w.post(podstate.Poke{})
		}
	}
	for _, w := range a.list() {
		if _, still := seen[w.uid]; still {
			continue
		}
		_, was := last[w.uid]
		if was || w.expectsSomething() { // it may have come and gone between two looks
			w.post(podstate.Poke{})
		}
	}
	return seen, nil
}

// looks seeds the sums of this process's looks.
var looks = maphash.MakeSeed()

// print returns a number for a thing in a state. Sums of such numbers tell sets of them apart, so that no bit of one
// may depend on few bits of the state: the changes of two things would cancel each other out.
func print(id string, state int32) uint64 {
	type thing struct {
		id    string
		state int32
	}
	return maphash.Comparable(looks, thing{id, state})
}

// ask deals with an unknown pod beside the looks, which do not wait for it, nor for one another's.
func (l *looker) ask(uid string) {
	if _, busy := l.asking.LoadOrStore(uid, true); busy {
		return
	}
	l.agent.spawn(func(context.Context) {
		defer l.asking.Delete(uid)
		l.agent.unknown(l.ctx, uid)
	})
}

// unknown deals with something that runs here for a pod without a worker: it is stopped if the API, read live, does
// not have the pod on this node.
func (a *Agent) unknown(ctx context.Context, uid string) {
	all, err := a.observeAll(ctx, map[string]string{criconfig.LabelPodUID: uid})
	l := all[uid]
	if err != nil || l == nil || a.worker(uid) != nil || a.static.holds(uid) {
		return // gone, or known by now; else the next look will try again
	}
	var p *corev1.Pod
	err = a.call(ctx, func(ctx context.Context) (err error) {
		p, err = a.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: l.namespace, Name: l.name})
		return err
	})
	switch {
	case err == nil && uidOf(p) == uid && p.GetSpec().GetNodeName() == a.cfg.NodeName:
		a.adopt(p, l)
	case err == nil, apierrors.Is(err, apierrors.NotFound):
		a.end(uid, l)
	}
}
