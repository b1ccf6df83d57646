package nodeagent

import (
	"context"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/shutdown"
)

// ShutDown ends the pods for good because the machine is about to go down: those of less priority first, each class
// within its part of the time that Config.Shutdown gives. They fail, so that whoever wants them makes them anew
// elsewhere, and pods that come meanwhile are refused. It returns when nothing runs any more, or when the time is
// over, or ctx ends. Without a time it does nothing. Called by two, the second waits for the first, and goes on where
// the first gives up. spec: DISR-4
func (a *Agent) ShutDown(ctx context.Context) error {
	if len(a.cfg.Shutdown) == 0 {
		return nil
	}
	down := make(chan struct{})
	for {
		a.mu.Lock()
		first := a.down
		if first == nil {
			a.goingDown, a.down = true, down
		}
		a.mu.Unlock()
		if first == nil {
			break
		}
		select {
		case <-first:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		a.mu.Lock()
		a.down = nil
		a.mu.Unlock()
		close(down)
	}()
	return a.shutDown(ctx)
}

// StayUp takes it back that the machine goes down: pods are admitted again. Those that were ended stay so.
func (a *Agent) StayUp() {
	a.mu.Lock()
	a.goingDown = false
	a.mu.Unlock()
	a.LookAtNode()
}

func (a *Agent) shutDown(ctx context.Context) error {
	a.LookAtNode() // the Ready condition is another
	if err := a.waitKnown(ctx); err != nil {
		return err
	}
	workers := make(map[*corev1.Pod]*worker)
	var pods []*corev1.Pod
	for _, w := range a.list() {
		w.look(func(m *podstate.StateMachine) {
			if !m.Empty() {
				workers[m.Pod()] = w
				pods = append(pods, m.Pod())
			}
		})
	}
	for _, g := range a.cfg.Shutdown.Groups(pods) {
		if err := a.endGroup(ctx, g, workers); err != nil {
			return err
		}
	}
	// What is killed when its time is over ends a moment later. How pods ended should be told, but need not.
	flush, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_ = a.waitUntil(flush, func() bool { return ended(pods, workers) && !a.anyUnwritten() })
	return ctx.Err()
}

// ended reports whether nothing of the pods runs that may soon be gone.
func ended(pods []*corev1.Pod, workers map[*corev1.Pod]*worker) bool {
	return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return workers[p].waitedFor() })
}

// endGroup ends pods of one class, and waits for them as long as the class has time.
func (a *Agent) endGroup(ctx context.Context, g shutdown.Group, workers map[*corev1.Pod]*worker) error {
	a.cfg.Logger.Info("ending pods, since the machine goes down", "pods", len(g.Pods), "priority", g.Priority,
		"period", g.Period)
	for _, p := range g.Pods {
		workers[p].post(podstate.Evict{
			Reason: shutdown.Reason, Message: shutdown.Message, Disruption: shutdown.Message,
			Grace: max(g.Period, time.Second),
		})
	}
	wait, cancel := context.WithTimeout(ctx, g.Period)
	defer cancel()
	err := a.waitUntil(wait, func() bool { return ended(g.Pods, workers) })
	if err != nil && ctx.Err() == nil {
		a.cfg.Logger.Warn("pods have not ended in time", "priority", g.Priority, "period", g.Period)
	}
	return ctx.Err()
}

// downNow reports whether the machine is about to go down.
func (a *Agent) downNow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.goingDown
}
