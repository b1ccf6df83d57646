package volumes

import (
	"context"
	"fmt"
	"time"
)

// turn is the right to work on the volumes of one pod, which one operation at a time has.
type turn struct {
	taken chan struct{}
	// users counts who has it and who waits for it; the turn is forgotten with the last.
	users int
	// what the one who has it is at, and since when.
	what  string
	since time.Time
}

// alone calls f when nothing else works on the pod's volumes. When f does not end in time, for the kernel may hold it,
// alone does without it; the pod's turn then comes when f has ended after all.
func (m *Manager) alone(ctx context.Context, uid, what string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	t := m.enter(uid)
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		cancel()
		m.mu.Lock()
		was, since := t.what, t.since
		m.mu.Unlock()
		m.leave(uid, t)
		return fmt.Errorf("%s has to wait: %s has not ended since %s", what, was, since.UTC().Format(time.RFC3339))
	}
	m.mu.Lock()
	t.what, t.since = what, time.Now()
	m.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		err := f(ctx)
		<-t.taken
		m.leave(uid, t)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("%s takes too long: %w", what, ctx.Err())
	}
}

func (m *Manager) enter(uid string) *turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.turns[uid]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		m.turns[uid] = t
	}
	t.users++
	return t
}

func (m *Manager) leave(uid string, t *turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(m.turns, uid)
	}
}

// busy reports whether an operation on the pod's volumes is going on.
func (m *Manager) busy(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turns[uid] != nil
}
