package nodeagent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/admission"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/shutdown"
	"monoplane.dev/rules/qos"
)

// resizes decides about pods that ask for other resources than they have, one at a time: first those that ask for no
// more than they have, then by priority, by class, and by how long they have been waiting. While there is nothing to
// decide it is only memory. spec: OBJ-10
type resizes struct {
	agent *Agent

	mu    sync.Mutex
	queue []question
	// deciding: somebody works on the queue. holding counts those who fill it, until when nothing is decided: so it is
	// until an agent that comes back has a worker for each pod.
	deciding bool
	holding  int
	// deferred are the uids of the pods that wait for room; nil for none.
	deferred map[string]struct{}
	// retrying: it is about to be told that there may be room.
	retrying bool
}

// question is of one pod.
type question struct {
	w         *worker
	ask       podstate.AskResize
	increases bool
	since     time.Time // zero for one that was not deferred before
}

// ask puts a question. The caller holds the worker's lock.
func (r *resizes) ask(w *worker, ask podstate.AskResize) {
	since, _ := w.m.Deferred()
	q := question{w: w, ask: ask, increases: admission.Increases(ask.Pod, w.m.Granted()), since: since}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, q)
	r.begin()
}

// begin has the queue worked on, unless somebody does. The caller holds the lock.
func (r *resizes) begin() {
	if r.deciding || r.holding > 0 || len(r.queue) == 0 {
		return
	}
	r.deciding = true
	r.agent.spawn(r.decideAll)
}

func (r *resizes) decideAll(ctx context.Context) {
	for {
		q, ok := r.next()
		if !ok || ctx.Err() != nil {
			return
		}
		q.w.post(r.decide(ctx, q))
	}
}

// next takes the question that is to be decided first.
func (r *resizes) next() (question, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.holding > 0 {
		r.deciding = false
		return question{}, false
	}
	first := slices.MinFunc(r.queue, question.compare)
	r.queue = slices.DeleteFunc(r.queue, func(q question) bool {
		return q.w == first.w && q.ask.Serial == first.ask.Serial
	})
	if len(r.queue) == 0 {
		r.queue = nil
	}
	return first, true
}

// compare returns a negative number when q is decided before o.
func (q question) compare(o question) int {
	less := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		default:
			return 1
		}
	}
	guaranteed := func(q question) bool { return qos.Of(q.ask.Pod) == qos.Guaranteed }
	order := cmp.Or(
		less(!q.increases, !o.increases),
		cmp.Compare(o.ask.Pod.GetSpec().GetPriority(), q.ask.Pod.GetSpec().GetPriority()),
		less(guaranteed(q), guaranteed(o)),
		less(!q.since.IsZero(), !o.since.IsZero()),
	)
	if order != 0 {
		return order
	}
	return q.since.Compare(o.since)
}

// decide answers a question. What is granted is kept before it is said.
func (r *resizes) decide(ctx context.Context, q question) podstate.ResizeDecided {
	a, p := r.agent, q.ask.Pod
	out := podstate.ResizeDecided{Serial: q.ask.Serial, Pod: p}
	if a.downNow() {
		out.Reason, out.Message = shutdown.RejectReason, shutdown.RejectMessage
		return out
	}
	if d := a.checkResize(q); d.Refused != nil {
		out.Reason, out.Message = d.Refused.Reason, d.Refused.Message
		a.preempt(p, d.Preempt)
		return out
	}
	if err := a.keepGrant(p); err != nil {
		a.cfg.Logger.Warn("it cannot be kept what a pod was granted", "pod", name(p), "uid", q.w.uid, "error", err)
		out.Undecided = true
		return out
	}
	out.Granted = true
	return out
}

// checkResize decides whether the node, as last seen, has room for what a pod asks for, and holds it for the pod if it
// has. Nobody is waited for meanwhile.
func (a *Agent) checkResize(q question) admission.Decision {
	node := a.nodeNow()
	if node == nil {
		node = a.nodeObject()
	}
	a.admitting.Lock()
	defer a.admitting.Unlock()
	d := admission.DecideResize(admission.Request{
		Pod: q.ask.Pod, Static: q.w.static != nil, Node: node, Others: a.holders(q.w.uid), Pressure: a.pressing(),
	})
	if d.Refused == nil && q.increases {
		q.w.reserve(q.ask.Pod)
	}
	return d
}

// reserve makes the pod hold what it is about to be granted.
func (w *worker) reserve(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reserved = p
}

// track follows what a fact has changed: who waits for room, and whether there is more. The caller holds the worker's
// lock; granted is what the pod had before.
func (r *resizes) track(w *worker, in podstate.Input, granted *corev1.Pod) {
	if _, decided := in.(podstate.ResizeDecided); decided {
		w.reserved = nil
	}
	now := w.m.Granted()
	_, deferred := w.m.Deferred()
	if deferred != w.deferred {
		w.deferred = deferred
		r.defers(w.uid, deferred)
	}
	if !w.freed && (w.m.Empty() || w.m.Vanished()) {
		w.freed = true
		r.room()
	} else if now != granted && admission.Increases(granted, now) {
		r.room()
	}
}

func (r *resizes) defers(uid string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !on:
		delete(r.deferred, uid)
	case r.deferred == nil:
		r.deferred = map[string]struct{}{uid: {}}
	default:
		r.deferred[uid] = struct{}{}
	}
	if len(r.deferred) == 0 {
		r.deferred = nil
	}
}

// room has the pods that wait for room ask again, and decides about them once all have asked.
func (r *resizes) room() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.deferred) == 0 || r.retrying {
		return
	}
	r.retrying = true
	r.agent.spawn(func(context.Context) {
		r.mu.Lock()
		r.retrying = false
		r.holding++
		var uids []string
		for uid := range r.deferred {
			uids = append(uids, uid)
		}
		r.mu.Unlock()
		for _, uid := range uids {
			if w := r.agent.worker(uid); w != nil {
				w.post(podstate.Reconsider{})
			}
		}
		r.release()
	})
}

// release ends a hold.
func (r *resizes) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding--
	r.begin()
}
