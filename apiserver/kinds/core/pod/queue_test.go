package pod

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev/apierrors"
)

// spec: DISR-2
func TestQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queues
		begin := time.Now()
		first, err := q.enter(t.Context(), "default", "b")
		if err != nil {
			t.Fatal(err)
		}
		other, err := q.enter(t.Context(), "default", "other")
		if err != nil {
			t.Fatal(err)
		}
		passed := make(chan func(), 1)
		go func() {
			release, err := q.enter(t.Context(), "default", "b")
			if err != nil {
				t.Error(err)
			}
			passed <- release
		}()
		synctest.Wait()
		select {
		case <-passed:
			t.Error("two pass at once")
		default:
		}

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := q.enter(gone, "default", "b"); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that is gone: %v", err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("somebody waited for %v", took)
		}
		first()
		release := <-passed

		if _, err := q.enter(t.Context(), "default", "b"); !apierrors.Is(err, apierrors.TooManyRequests) ||
			apierrors.From(err).Status().GetDetails().GetRetryAfterSeconds() == 0 {
			t.Errorf("after a long wait: %v", err)
		}
		if took := time.Since(begin); took != queueLimit {
			t.Errorf("waited for %v, want %v", took, queueLimit)
		}
		release()
		other()
		if len(q.all) != 0 {
			t.Errorf("left behind: %v", q.all)
		}
	})
}
