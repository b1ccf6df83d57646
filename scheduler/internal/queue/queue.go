package queue

import (
	"sync"
	"time"

	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

// The defaults.
const (
	InitialBackoff = time.Second
	MaxBackoff     = 10 * time.Second
	MaxWait        = 5 * time.Minute
)

// Config describes a queue.
type Config struct {
	// Less orders pods that are ready to be tried.
	Less func(a, b *framework.QueuedPod) bool
	// PreEnqueue says whether a pod may be tried at all.
	PreEnqueue func(pod *framework.PodInfo) *framework.Status
	// Interest returns the kinds of changes that these plugins want to look at for the pod.
	Interest func(plugins []string, pod *framework.PodInfo) framework.Event
	// Helps says whether a change could make any of these plugins accept the pod.
	Helps func(plugins []string, pod *framework.PodInfo, change *framework.Change) bool
	// InitialBackoff doubles with each failed try up to MaxBackoff. MaxWait is how long a pod waits for a change that
	// helps.
	InitialBackoff, MaxBackoff, MaxWait time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Queue holds waiting pods. All methods may be called from any goroutine.
type Queue struct {
	cfg Config

	mu      sync.Mutex
	pods    map[cache.Key]*item
	active  heap
	backoff heap // by the end of the back-off
	waiting heap // unschedulable, by the time of the last try
	gated   map[cache.Key]*item

	// Changes that happened while pods were being tried. Invariant: change i has number first+i, and everything that a
	// pod in flight has not been judged by is still there.
	changes []framework.Change
	first   uint64
	flying  map[*item]struct{}

	sequence uint64
	wake     chan struct{} // holds a token when there may be something new to Pop or to wake up for
}

type place int

const (
	inActive place = iota
	inBackoff
	inWaiting
	inGated
	inFlight
)

// item is one pod. mu of the queue guards it.
type item struct {
	framework.QueuedPod
	place place
	index int // in the heap of its place
	// sequence keeps pods that are otherwise equal in the order they came.
	sequence uint64
	// failed is when the last try failed; ready is when its back-off ends.
	failed, ready time.Time
	// refusedBy are the plugins that refused the last try.
	refusedBy []string
	interest  framework.Event
	// seen is the number of the first change that the try in flight does not know.
	seen uint64
	// removed, updated and hurried say what happened to the pod while it was in flight.
	removed, updated, hurried bool
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	if cfg.InitialBackoff <= 0 {
		cfg.InitialBackoff = InitialBackoff
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = MaxBackoff
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = MaxWait
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	q := &Queue{
		cfg:    cfg,
		pods:   map[cache.Key]*item{},
		gated:  map[cache.Key]*item{},
		flying: map[*item]struct{}{},
		wake:   make(chan struct{}, 1),
	}
	q.active.less = func(a, b *item) bool {
		switch {
		case cfg.Less(&a.QueuedPod, &b.QueuedPod):
			return true
		case cfg.Less(&b.QueuedPod, &a.QueuedPod):
			return false
		default:
			return a.sequence < b.sequence
		}
	}
	q.waiting.less = func(a, b *item) bool { return a.failed.Before(b.failed) }
	q.backoff.less = func(a, b *item) bool { return a.ready.Before(b.ready) }
	return q
}

// Wake returns a channel that has a token when Pop may find something new.
func (q *Queue) Wake() <-chan struct{} { return q.wake }

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Add adds a pod, or replaces one of the same name.
func (q *Queue) Add(pod *framework.PodInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if old, ok := q.pods[pod.Key]; ok {
		if old.UID == pod.UID {
			q.update(old, pod, true)
			return
		}
		q.drop(old)
	}
	q.sequence++
	i := &item{QueuedPod: framework.QueuedPod{PodInfo: pod}, sequence: q.sequence}
	q.pods[pod.Key] = i
	q.enter(i)
}

// Update takes a newer state of a pod. relevant says whether anything changed that a decision could depend on.
func (q *Queue) Update(pod *framework.PodInfo, relevant bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.pods[pod.Key]; ok && i.UID == pod.UID {
		q.update(i, pod, relevant)
	}
}

func (q *Queue) update(i *item, pod *framework.PodInfo, relevant bool) {
	i.PodInfo = pod
	if !relevant {
		return
	}
	switch i.place {
	case inActive:
		q.active.fix(i.index)
	case inGated:
		delete(q.gated, i.Key)
		q.enter(i)
	case inWaiting:
		q.waiting.remove(i)
		q.retry(i)
	case inFlight:
		i.updated = true
	case inBackoff:
	}
}

// Remove forgets the pod of that uid: it was deleted, or bound.
func (q *Queue) Remove(key cache.Key, uid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.pods[key]; ok && i.UID == uid {
		q.drop(i)
	}
}

// drop takes a pod out of wherever it is.
func (q *Queue) drop(i *item) {
	switch i.place {
	case inActive:
		q.active.remove(i)
	case inBackoff:
		q.backoff.remove(i)
	case inWaiting:
		q.waiting.remove(i)
	case inGated:
		delete(q.gated, i.Key)
	case inFlight:
		i.removed = true // whoever tries it finds out
	}
	if q.pods[i.Key] == i {
		delete(q.pods, i.Key)
	}
}

// enter puts a pod into the active queue, if PreEnqueue lets it.
func (q *Queue) enter(i *item) {
	if s := q.cfg.PreEnqueue(i.PodInfo); !s.IsSuccess() {
		i.place = inGated
		q.gated[i.Key] = i
		return
	}
	i.place = inActive
	i.Since = q.cfg.Now()
	q.active.push(i)
	q.signal()
}

// retry puts a pod that failed before where it can be tried again: active, or back-off while that lasts.
func (q *Queue) retry(i *item) {
	if i.hurried {
		q.enter(i)
		return
	}
	i.ready = roundUp(i.failed.Add(q.backoffOf(i.Attempts)))
	if !q.cfg.Now().Before(i.ready) {
		q.enter(i)
		return
	}
	i.place = inBackoff
	q.backoff.push(i)
	q.signal()
}

// window is what the ends of back-offs are rounded up to, so that pods that failed at about the same time come back
// together, and then the one of the highest priority is tried first.
const window = 100 * time.Millisecond

// roundUp keeps the monotonic reading, which Truncate takes away: whoever sets the clock back does not delay anybody.
func roundUp(t time.Time) time.Time {
	if past := t.Sub(t.Truncate(window)); past > 0 {
		return t.Add(window - past)
	}
	return t
}

func (q *Queue) backoffOf(attempts int) time.Duration {
	d := q.cfg.InitialBackoff
	for range attempts - 1 {
		if d *= 2; d >= q.cfg.MaxBackoff {
			return q.cfg.MaxBackoff
		}
	}
	return min(d, q.cfg.MaxBackoff)
}

// Len returns how many pods wait in each place, for metrics.
func (q *Queue) Len() (active, backoff, unschedulable, gated int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.active.items), len(q.backoff.items), len(q.waiting.items), len(q.gated)
}

// Hurry lets the pod of that uid be tried at once, without the rest of its back-off: room has been made for it. One
// that is being tried is tried once more after that.
func (q *Queue) Hurry(key cache.Key, uid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.pods[key]
	if !ok || i.UID != uid {
		return
	}
	switch i.place {
	case inWaiting:
		q.waiting.remove(i)
		q.enter(i)
	case inBackoff:
		q.backoff.remove(i)
		q.enter(i)
	case inFlight:
		i.hurried = true
	case inActive, inGated:
	}
}

// Activate lets the pod of that uid be tried again without a change that helps, after its back-off.
func (q *Queue) Activate(key cache.Key, uid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.pods[key]; ok && i.UID == uid {
		q.update(i, i.PodInfo, true)
	}
}
