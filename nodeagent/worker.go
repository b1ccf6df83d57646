package nodeagent

import (
	"context"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/podstate"
)

// worker drives the machine of one pod: facts come in by post, on whatever goroutine learns them; each action
// runs on a goroutine of its own and posts what came of it. Between facts a worker is only memory.
type worker struct {
	agent *Agent
	uid   string
	// static is the static pod that this is the worker of, nil for a pod of the API. It never changes.
	static *staticPod

	mu sync.Mutex // guards what follows
	m  *podstate.StateMachine
	// timer is nil while the machine does not ask to be woken.
	timer *time.Timer
	// cancelStart says that what is being started is no longer wanted, nil when there is nothing.
	cancelStart context.CancelFunc
	// hooks ends what runs as hooks of containers, nil for nothing.
	hooks map[hookKey]context.CancelFunc
	// holds: the pod was admitted, even if the machine has not been told yet.
	holds bool
	// reserved is the pod with more resources, which it is about to be granted; nil for none.
	reserved *corev1.Pod
	// deferred: the pod is known to wait for room. freed: it is known to hold none any more.
	deferred, freed bool
	// evicted: it was said that the pod is evicted.
	evicted bool
	// volumesEnded: the volumes of a pod that has ended were taken away, or that was tried.
	volumesEnded bool
	// probed is how often its probes have ended in each way; nil on simulated nodes, where nobody asks.
	probed map[probed]results
	closed bool
}

// post tells the machine a fact and sees to what it wants done.
func (w *worker) post(in podstate.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	life, stuck, granted := w.m.Life(), w.m.Stuck(), w.m.Granted()
	actions := w.m.Step(time.Now(), in)
	w.track(in, life)
	w.agent.resizes.track(w, in, granted)
	for _, action := range actions {
		w.handle(action)
	}
	w.endVolumes()
	if w.m.Life() != life {
		w.agent.cfg.Logger.Debug("pod moves on", "pod", name(w.m.Pod()), "uid", w.uid, "life", w.m.Life().String())
	}
	if now := w.m.Stuck(); now != stuck || w.closed {
		w.agent.setStuck(w, now)
	}
	if w.m.Life() != life || w.m.Empty() || (stuck == "") != (w.m.Stuck() == "") {
		w.agent.progress()
	}
}

// handle does what takes no time and starts what does. The caller holds the lock.
func (w *worker) handle(action podstate.Action) {
	switch action := action.(type) {
	case podstate.Wake:
		w.wakeAt(action.At)
	case podstate.CancelStart:
		if w.cancelStart != nil {
			w.cancelStart()
		}
	case podstate.Probe:
		w.runProbe(action)
	case podstate.RunHook:
		w.runHook(action)
	case podstate.CancelHook:
		for key, cancel := range w.hooks {
			if key.id == action.ID {
				cancel()
			}
		}
	case podstate.Note:
		w.agent.note(w.m.Pod(), action)
	case podstate.AskResize:
		w.agent.resizes.ask(w, action)
	case podstate.Forget:
		w.closed = true
		w.stopTimer()
		w.agent.forget(w)
	case podstate.RunSandbox:
		job := w.job()
		w.start(func(ctx, wanted context.Context) podstate.Input { return job.runSandbox(ctx, wanted, action) })
	case podstate.StartContainer:
		job := w.job()
		w.start(func(ctx, wanted context.Context) podstate.Input { return job.startContainer(ctx, wanted, action) })
	default:
		job := w.job()
		w.agent.spawn(func(ctx context.Context) { w.post(job.do(ctx, action)) })
	}
}

// start does something that CancelStart can end. A machine asks for one at a time. The caller holds the lock.
func (w *worker) start(do func(ctx, wanted context.Context) podstate.Input) {
	wanted, cancel := context.WithCancel(w.agent.context())
	w.cancelStart = cancel
	w.agent.spawn(func(ctx context.Context) {
		in := do(ctx, wanted)
		cancel()
		w.mu.Lock()
		w.cancelStart = nil
		w.mu.Unlock()
		w.post(in)
	})
}

// job takes along what an action needs of the state: what is made for the pod is made with the resources that it was
// granted. The caller holds the lock.
func (w *worker) job() job {
	return job{agent: w.agent, pod: w.m.Granted(), podIPs: w.m.PodIPs(), static: w.static}
}

// wakeAt sets the timer. The caller holds the lock.
func (w *worker) wakeAt(at time.Time) {
	if at.IsZero() {
		w.stopTimer()
		return
	}
	d := max(0, time.Until(at))
	if w.timer == nil {
		w.timer = time.AfterFunc(d, func() { w.post(podstate.Tick{}) })
		return
	}
	w.timer.Reset(d)
}

func (w *worker) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// close makes the worker let go of its pod.
func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.stopTimer()
}

// waitedFor reports whether something of the pod runs and may soon be gone.
func (w *worker) waitedFor() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && !w.m.Empty() && w.m.Stuck() == ""
}

// hold makes the pod count as a holder of resources.
func (w *worker) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = true
}

// expectsSomething reports whether the runtime should have something of the pod.
func (w *worker) expectsSomething() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := w.m.Missing(&podstate.Observation{})
	return len(missing.Sandboxes)+len(missing.Instances) > 0
}

// pod returns the newest object.
func (w *worker) pod() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.m.Pod()
}

// look calls f with the machine, which f must neither change nor keep.
func (w *worker) look(f func(m *podstate.StateMachine)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.m)
}

// name returns "namespace/name" for logs.
func name(p *corev1.Pod) string {
	return p.GetMetadata().GetNamespace() + "/" + p.GetMetadata().GetName()
}

// restarting reports whether the named container has ended and is to run again.
func (w *worker) restarting(container string) bool {
	on := false
	w.look(func(m *podstate.StateMachine) { on = m.Restarting(container) })
	return on
}
