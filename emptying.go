package monoplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"monoplane.dev/nodeagent"
)

// ErrLeft says that a stop of the pods was cut short, by Stop or by who asked to leave them: those that run go on, and
// the next start adopts them.
var ErrLeft = errors.New("the pods were left running")

// emptying is the stop of all pods of a cluster. There is one at most; once begun it belongs to the cluster and goes
// on without those who asked for it, until nothing runs or the cluster ends.
//
//	not begun ──► begun: the pods are stopping, nothing is ready ──► done: the cluster is finished
type emptying struct {
	begun, done chan struct{}

	mu sync.Mutex
	// over: the cluster ends, so nothing is begun any more.
	over bool
	// waiting is, by agent, what is waited for; changed is closed, and made anew, when it has changed.
	waiting [][]string
	changed chan struct{}
	err     error // why not everything has stopped. Written before done is closed.
}

func newEmptying() *emptying {
	return &emptying{begun: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{})}
}

// Stopping is closed when the stop of the pods has begun, by StopPods or by an administrator. The cluster is not ready
// from then on, and Done is closed once the pods have stopped.
func (c *Cluster) Stopping() <-chan struct{} { return c.emptying.begun }

// StopPods stops the processes of all pods, each with its pod's own grace period, and starts no more. The
// objects stay: the next Start on the same directory runs the pods again by their restart policy. It returns
// when nothing runs, or ctx ends; the stop, once begun, goes on without its caller, and Done is closed when it is
// over. Who calls while it goes on waits for the same stop. Report, if not nil, is told the pods (namespace/name) that
// are waited for: at once, then now and again, and none at the end.
//
// It fails when some pods could not be stopped, which go on then, with ErrLeft when the stop is cut short, and with
// ctx's error.
func (c *Cluster) StopPods(ctx context.Context, report func(pods []string)) error {
	e := c.emptying
	c.beginEmptying()
	if report == nil {
		report = func([]string) {}
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		var pods []string
		var changed chan struct{}
		select {
		case <-pause.C: // that much time has passed since the last report
			if pods, changed = e.look(); len(pods) > 0 {
				report(pods)
			}
		case <-e.done:
			report(nil)
			return e.err
		case <-c.done:
			select {
			case <-e.done: // which is why the cluster ends
				report(nil)
				return e.err
			default:
				return ErrLeft
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-changed:
			if len(pods) == 0 {
				pause.Reset(0) // nothing was reported, so what comes is news
			} else {
				pause.Reset(reportEvery)
			}
		case <-e.done:
		case <-c.done:
		case <-ctx.Done():
		}
	}
}

// look returns the pods that are waited for, and what is closed when they have changed.
func (e *emptying) look() ([]string, chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Concat(e.waiting...), e.changed
}

// isEmpty tells whether all pods were stopped.
func (c *Cluster) isEmpty() bool {
	select {
	case <-c.emptying.done:
		return c.emptying.err == nil
	default:
		return false
	}
}

// beginEmptying begins the stop of all pods, once.
func (c *Cluster) beginEmptying() {
	e := c.emptying
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.waiting != nil {
		return
	}
	e.waiting = make([][]string, len(c.members))
	close(e.begun)
	c.group.Go(func() error {
		e.err = c.empty()
		if c.running.Err() != nil && e.err != nil {
			e.err = ErrLeft
		}
		close(e.done)
		c.finish(e.err)
		return nil
	})
}

// end keeps a stop from beginning from now on.
func (e *emptying) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}

// empty stops the pods of all nodes; an agent that was stopped comes back to do so. What becomes of one node keeps
// none of the others from being emptied.
func (c *Cluster) empty() error {
	e := c.emptying
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() {
			a, err := c.worker(m)
			if a == nil {
				errs[i] = err
				return
			}
			errs[i] = a.StopPods(c.running, func(pods []string) {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.waiting[i] = pods
				close(e.changed)
				e.changed = make(chan struct{})
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// worker returns the agent of a node, which begins anew if it was stopped. Where there are no processes, there is
// nothing to begin for: nil.
func (c *Cluster) worker(m *member) (*nodeagent.Agent, error) {
	a, silent := m.current()
	if !silent {
		return a, nil
	}
	if c.cfg.Runtime.Simulated() {
		return nil, nil
	}
	if _, err := m.start(c.running, c.running, c.newAgent); err != nil {
		return nil, fmt.Errorf("the agent of node %s was stopped, and cannot stop its pods: %w", m.name, err)
	}
	a, _ = m.current()
	return a, nil
}

// shutdown is the check that fails once the cluster is stopping.
func (c *Cluster) shutdown() error {
	select {
	case <-c.emptying.begun:
		return errors.New("the pods are being stopped, and the server stops after them")
	default:
	}
	select {
	case <-c.done:
		return errors.New("the server is stopping")
	default:
		return nil
	}
}
