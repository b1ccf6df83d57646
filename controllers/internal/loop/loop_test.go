package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		l := loop.New(loop.Config[string]{
			Workers: 1, MinDelay: time.Second, MaxDelay: 4 * time.Second,
			Reconcile: func(_ context.Context, key string) (time.Duration, error) {
				at = append(at, time.Since(begin).Round(time.Second))
				switch len(at) {
				case 1, 2, 3, 4:
					return 0, errors.New("no")
				case 5:
					return time.Minute, nil
				default:
					return 0, nil
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		l.Add("a")
		l.Add("a") // before a worker has the first one
		go func() { done <- l.Run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// Failures at 0, 1, 3, 7 s; success at 11 s asks for one more after a minute.
		want := []time.Duration{0, 1, 3, 7, 11, 71}
		if len(at) != len(want) {
			t.Fatalf("reconciled at %v", at)
		}
		for i := range want {
			if at[i] != want[i]*time.Second {
				t.Fatalf("reconciled at %v, want %v", at, want)
			}
		}
	})
}

// Races that were lost are tried again without a word; all other failures are told. What is not found may be an owner
// that has just gone, and is told when it stays so. What nobody may make because its namespace goes is no failure.
func TestQuietRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := &object.Kind{Kind: "Pod", Plural: "pods"}
		invalid := func(field string) error {
			return fmt.Errorf("patch: %w", apierrors.NewInvalid(kind, "p", []apierrors.Cause{
				{Type: "FieldValueInvalid", Field: field, Message: "field is immutable"},
			}))
		}
		gone := fmt.Errorf("patch: %w", apierrors.New(apierrors.NotFound, "gone"))
		going := apierrors.NewForbidden(kind, "p", "the namespace goes").WithCause(
			apierrors.Cause{Type: "NamespaceTerminating", Field: "metadata.namespace"})
		outcomes := []error{
			apierrors.New(apierrors.Conflict, "lost"), invalid("metadata.uid"), invalid("spec.nodeName"), nil,
			gone, gone, nil, gone, gone, gone, gone, nil, going, going, going, going, nil,
		}
		var log bytes.Buffer
		runs := 0
		l := loop.New(loop.Config[string]{
			Workers: 1, MinDelay: time.Second, MaxDelay: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Reconcile: func(context.Context, string) (time.Duration, error) {
				runs++
				return 0, outcomes[runs-1]
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		for range 4 {
			l.Add("a")
			time.Sleep(time.Hour)
		}
		cancel()
		<-done
		if lines := strings.Count(log.String(), "reconcile failed"); runs != len(outcomes) || lines != 2 ||
			!strings.Contains(log.String(), "spec.nodeName") || strings.Count(log.String(), "gone") != 1 {
			t.Errorf("reconciled %d times, log\n%s", runs, &log)
		}
	})
}
