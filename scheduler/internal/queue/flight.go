package queue

import (
	"time"

	"monoplane.dev/scheduler/framework"
)

// Try is a pod in flight: it has left the queue to be tried. Exactly one of Done, Retry and Unschedulable ends it.
type Try struct {
	queue *Queue
	item  *item
	// QueuedPod is the pod as it was when it was popped.
	framework.QueuedPod
	// Began is when it was popped.
	Began time.Time
}

// Pop takes the first pod that is ready to be tried. When there is none it returns nil and how long it is until one
// may be; zero when only Wake can tell.
func (q *Queue) Pop() (try *Try, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Now()
	q.flush(now)
	i := q.active.pop()
	if i == nil {
		return nil, q.nextWake(now)
	}
	i.place = inFlight
	i.Attempts++
	if i.First.IsZero() {
		i.First = now
	}
	i.removed, i.updated, i.hurried = false, false, false
	i.seen = q.first + uint64(len(q.changes))
	q.flying[i] = struct{}{}
	return &Try{queue: q, item: i, QueuedPod: i.QueuedPod, Began: now}, 0
}

// flush moves what has waited long enough.
func (q *Queue) flush(now time.Time) {
	for i := q.backoff.peek(); i != nil && !now.Before(i.ready); i = q.backoff.peek() {
		q.backoff.pop()
		q.enter(i)
	}
	for i := q.waiting.peek(); i != nil && now.Sub(i.failed) >= q.cfg.MaxWait; i = q.waiting.peek() {
		q.waiting.pop()
		q.retry(i)
	}
}

func (q *Queue) nextWake(now time.Time) time.Duration {
	var next time.Time
	earlier := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if i := q.backoff.peek(); i != nil {
		earlier(i.ready)
	}
	if i := q.waiting.peek(); i != nil {
		earlier(i.failed.Add(q.cfg.MaxWait))
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// Landed says that the decision has been made: from now on changes in the cluster no longer matter to this try.
func (t *Try) Landed() {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.queue.land(t.item)
}

func (q *Queue) land(i *item) {
	if _, ok := q.flying[i]; !ok {
		return
	}
	delete(q.flying, i)
	q.prune()
}

// prune forgets the changes that every pod in flight knows.
func (q *Queue) prune() {
	keep := q.first + uint64(len(q.changes))
	for i := range q.flying {
		keep = min(keep, i.seen)
	}
	n := keep - q.first
	clear(q.changes[:n])
	q.changes = q.changes[n:]
	if len(q.changes) == 0 {
		q.changes = nil
	}
	q.first = keep
}

// Gone says whether the pod has left the queue since it was popped: it was deleted, or bound by somebody else.
func (t *Try) Gone() bool {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	return t.item.removed
}

// Done ends a try: the pod is bound, or no longer ours.
func (t *Try) Done() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.land(t.item)
	if q.pods[t.item.Key] == t.item {
		delete(q.pods, t.item.Key)
	}
}

// Retry ends a try that failed for a reason that is not the pod's: a lost race, an unreachable server. The pod comes
// back after its back-off.
func (t *Try) Retry() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.land(t.item)
	if t.item.removed {
		return
	}
	t.item.failed = q.cfg.Now()
	t.item.refusedBy = nil
	q.retry(t.item)
}

// Unschedulable ends a try that found no node. The pod waits until a change helps one of the plugins that refused; if
// one has happened since the pod was popped, it comes back after its back-off.
func (t *Try) Unschedulable(refusedBy []string) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	i := t.item
	missed := q.changes[min(i.seen-q.first, uint64(len(q.changes))):]
	helped := i.updated || i.hurried
	for n := range missed {
		helped = helped || q.cfg.Helps(refusedBy, i.PodInfo, &missed[n])
	}
	q.land(i)
	if i.removed {
		return
	}
	i.failed = q.cfg.Now()
	i.refusedBy, i.interest = refusedBy, q.cfg.Interest(refusedBy, i.PodInfo)
	if helped {
		q.retry(i)
		return
	}
	i.place = inWaiting
	q.waiting.push(i)
	q.signal() // the next wake-up may have come closer
}

// Change tells the queue what has happened in the cluster.
func (q *Queue) Change(c framework.Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.flying) > 0 {
		q.changes = append(q.changes, c)
	} else {
		q.first++ // nobody needs it, but it has its number
	}
	var helped []*item
	for _, i := range q.waiting.items {
		if i.interest&c.Event != 0 && q.cfg.Helps(i.refusedBy, i.PodInfo, &c) {
			helped = append(helped, i)
		}
	}
	for _, i := range helped {
		q.waiting.remove(i)
		q.retry(i)
	}
}
