package framework

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Waiting is a pod that has its node, but whose binding a Permit plugin delays. A plugin that answers Wait keeps it,
// and says later what it thinks, from any goroutine:
//
//	func (p *Plugin) Permit(state *CycleState, pod *PodInfo, node string) (*Status, time.Duration) {
//		p.keep(pod, state.Waiting()) // and somewhere else: waiting.Allow(Name), or waiting.Refuse(status)
//		return p.wait, time.Minute
//	}
type Waiting struct {
	mu sync.Mutex
	// until are the deadlines of the plugins that have not allowed the pod yet; allowed are those that have.
	until   map[string]deadline
	allowed map[string]bool
	refused *Status
	changed chan struct{}
}

type deadline struct {
	at    time.Time
	after time.Duration
}

// MaxPermitWait bounds how long a plugin can delay a pod.
const MaxPermitWait = 15 * time.Minute

// Waiting returns the pod of the decision as one that waits.
func (c *CycleState) Waiting() *Waiting {
	if c.waiting == nil {
		c.waiting = &Waiting{until: map[string]deadline{}, allowed: map[string]bool{}, changed: make(chan struct{}, 1)}
	}
	return c.waiting
}

// Allow says that a plugin delays the pod no more.
func (w *Waiting) Allow(plugin string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed[plugin] = true
	delete(w.until, plugin)
	w.signal()
}

// Refuse ends the wait: the pod gives its place up, and waits for changes that help the plugin that the status names.
// A later refusal changes nothing.
func (w *Waiting) Refuse(s *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused == nil {
		w.refused = s
	}
	w.signal()
}

func (w *Waiting) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// hold notes that a plugin delays the pod, unless it has allowed it meanwhile.
func (w *Waiting) hold(plugin string, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.allowed[plugin] {
		timeout = min(timeout, MaxPermitWait)
		w.until[plugin] = deadline{time.Now().Add(timeout), timeout}
	}
}

// Wait returns nil when all plugins have allowed the pod, or why it is refused: by a plugin, because one let its time
// pass, or because ctx has ended.
func (w *Waiting) Wait(ctx context.Context) *Status {
	for {
		plugin, next, s := w.state()
		if s != nil || plugin == "" {
			return s
		}
		timer := time.NewTimer(time.Until(next.at))
		select {
		case <-w.changed:
		case <-timer.C:
			w.Refuse(NewStatus(Unschedulable, plugin, fmt.Sprintf("rejected due to timeout after waiting %v at plugin %v",
				next.after, plugin)))
		case <-ctx.Done():
			timer.Stop()
			return AsError(plugin, ctx.Err())
		}
		timer.Stop()
	}
}

// state returns the plugin whose deadline is next, "" when none delays the pod, and the refusal if there is one.
func (w *Waiting) state() (plugin string, next deadline, refused *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, d := range w.until {
		if plugin == "" || d.at.Before(next.at) {
			plugin, next = name, d
		}
	}
	return plugin, next, w.refused
}
