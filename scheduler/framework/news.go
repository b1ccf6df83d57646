package framework

import (
	"slices"
	"sync"

	"monoplane.dev/client/cache"
)

// News wakes up the plugins that wait in PreBind for changes of objects.
//
// What it guarantees: a change that the scheduler hears of after About was called is not missed. What it does not: the
// watch may lag, or be lost for a while. Who waits asks the server what has happened, when it is woken up and now and
// then besides.
type News struct {
	mu      sync.Mutex
	waiting map[Subject][]chan struct{}
}

// Subject is an object that there may be news about. Volumes have no namespace.
type Subject struct {
	Kind SubjectKind
	Key  cache.Key
}

// SubjectKind is the kind of a subject.
type SubjectKind int

// The kinds that the scheduler tells of.
const (
	PodSubject SubjectKind = iota
	ClaimSubject
	VolumeSubject
)

// NewNews returns news that nobody waits for.
func NewNews() *News { return &News{waiting: map[Subject][]chan struct{}{}} }

// About returns a channel that gets a value when there is news about any of the subjects, until stop is called, once.
// Without news, which is nil, it never gets one.
func (n *News) About(subjects ...Subject) (wake <-chan struct{}, stop func()) {
	if n == nil {
		return nil, func() {}
	}
	ring := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range subjects {
		n.waiting[s] = append(n.waiting[s], ring)
	}
	return ring, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, s := range subjects {
			n.waiting[s] = slices.DeleteFunc(n.waiting[s], func(c chan struct{}) bool { return c == ring })
			if len(n.waiting[s]) == 0 {
				delete(n.waiting, s)
			}
		}
	}
}

// Tell says that an object has changed or is gone.
func (n *News) Tell(s Subject) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ring := range n.waiting[s] {
		select {
		case ring <- struct{}{}:
		default: // it has not looked since the last time
		}
	}
}

type newsKey struct{}

// SetNews has PreBind plugins hear of changes.
func (c *CycleState) SetNews(n *News) { c.Write(newsKey{}, n) }

// News returns where PreBind plugins hear of changes; nil where nobody tells.
func (c *CycleState) News() *News {
	n, _ := c.Read(newsKey{}).(*News)
	return n
}
