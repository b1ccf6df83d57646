package volumes

import (
	"sync"
	"time"
)

// renewals calls due for pods whose tokens are to be renewed, by one timer for all of them.
type renewals struct {
	mu     sync.Mutex
	at     map[string]time.Time
	timer  *time.Timer
	closed bool
}

// soonest and latest bound the time between two looks at a token.
const (
	soonest = time.Minute
	latest  = 24 * time.Hour
)

// note sees to it that due is called before a token that ends at expires has ended: when a fifth of its time is left,
// which is when a new one is issued.
func (r *renewals) note(uid string, expires time.Time, due func(uid string)) {
	at := time.Now().Add(min(latest, max(soonest, time.Until(expires)*4/5)))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || due == nil {
		return
	}
	if was, ok := r.at[uid]; ok && was.Before(at) && was.After(time.Now()) {
		return // another token of the pod
	}
	if r.at == nil {
		r.at = make(map[string]time.Time)
	}
	r.at[uid] = at
	r.arm(due)
}

func (r *renewals) forget(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, uid)
}

// arm sets the timer to the first that is due. The caller holds the lock.
func (r *renewals) arm(due func(uid string)) {
	var first time.Time
	for _, at := range r.at {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	if !first.IsZero() {
		r.timer = time.AfterFunc(max(0, time.Until(first)), func() { r.fire(due) })
	}
}

func (r *renewals) fire(due func(uid string)) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	var now []string
	for uid, at := range r.at {
		if !at.After(time.Now()) {
			now = append(now, uid)
			delete(r.at, uid)
		}
	}
	r.arm(due)
	r.mu.Unlock()
	for _, uid := range now {
		due(uid)
	}
}

func (r *renewals) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
