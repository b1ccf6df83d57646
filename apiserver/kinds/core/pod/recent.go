package pod

import "sync"

// remembered is how many values a recent set takes in before it forgets those that were not asked for since.
const remembered = 256

// recent is a bounded set of what was lately added or asked for. The zero value is empty; it may be used concurrently.
type recent[T comparable] struct {
	mu         sync.Mutex
	young, old map[T]struct{}
}

func (r *recent[T]) has(v T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.young[v]; ok {
		return true
	}
	_, ok := r.old[v]
	if ok {
		r.keep(v)
	}
	return ok
}

func (r *recent[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(v)
}

func (r *recent[T]) keep(v T) {
	if r.young == nil || len(r.young) >= remembered {
		r.old, r.young = r.young, make(map[T]struct{}, remembered)
	}
	r.young[v] = struct{}{}
}
