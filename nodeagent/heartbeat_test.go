package nodeagent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent"
)

const leases = "/monoplane.coordination.v1.Leases/"

// logBuffer collects log lines of many goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// logged collects what the agent logs from a level on.
func (w *world) logged(level slog.Level) *logBuffer {
	out := &logBuffer{}
	w.cfg.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	return out
}

func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()
	l, err := w.c.Leases.Get(w.t.Context(), &metav1.GetRequest{Namespace: "kube-node-lease", Name: nodeName})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// renewed returns when a Lease was renewed.
func renewed(l *coordinationv1.Lease) time.Time { return value.GoMicroTime(l.GetSpec().GetRenewTime()) }

// nodeUID returns the uid of the node, empty when there is none.
func (w *world) nodeUID() string {
	w.t.Helper()
	n, err := w.c.Nodes.Get(w.t.Context(), &metav1.GetRequest{Name: nodeName})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		w.t.Fatal(err)
	}
	return n.GetMetadata().GetUid()
}

// A live agent sees at once that its Node has been deleted, whether it watches the Node itself or is told, and
// registers again; its pods go on, and its Lease belongs to the new Node. spec: NODE-7
func TestDeletedNodeIsRegisteredAtOnce(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprint("watched by the caller ", watched), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.cfg.NodeWatched = watched
				w.start()
				w.create("a")
				time.Sleep(beat)
				for range 3 {
					uid, began := w.nodeUID(), time.Now()
					w.deleteNode()
					if watched {
						w.agent.LookAtNode()
					}
					synctest.Wait()
					now := w.nodeUID()
					if took := time.Since(began); now == "" || now == uid || took > 0 {
						t.Fatalf("after %s the node is %q, was %q", took, now, uid)
					}
					if got := w.lease().GetMetadata().GetOwnerReferences()[0].GetUid(); got != now {
						t.Errorf("the lease belongs to %s, want %s", got, now)
					}
					time.Sleep(3 * time.Second)
				}
				w.expect("a", "START main/0 @0s")
			})
		})
	}
}

// A node that somebody else writes while it registers, as who gives it the ranges of its pods does, is ready at once
// all the same, and nobody is told of trouble. spec: NODE-1
func TestNodeIsWrittenWhileItRegisters(t *testing.T) {
	inWorld(t, func(w *world) {
		out := w.logged(slog.LevelWarn)
		var lost atomic.Int32
		w.api.React(func(_ context.Context, method string, _ any) error {
			if strings.HasSuffix(method, ".Nodes/UpdateStatus") && lost.Add(1) <= 2 {
				return apierrors.New(apierrors.Conflict, "lost")
			}
			return nil
		})
		_, err := w.c.Nodes.Create(w.t.Context(), &corev1rpc.CreateNodeRequest{
			Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: nodeName}}})
		if err != nil {
			t.Fatal(err)
		}
		w.start()
		if took := time.Since(w.began); took > 0 || lost.Load() < 3 || out.String() != "" {
			t.Errorf("the node was ready after %s, at write %d, and the log says %q", took, lost.Load(), out)
		}
	})
}

// The same when the deletion comes while a heartbeat is under way, or while the watch is lost. spec: NODE-7
func TestNodeIsDeletedMeanwhile(t *testing.T) {
	t.Run("during a beat", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.start()
			time.Sleep(beat)
			var held atomic.Bool
			w.api.React(func(_ context.Context, method string, _ any) error {
				if strings.HasPrefix(method, leases) && held.CompareAndSwap(false, true) {
					time.Sleep(5 * time.Second)
				}
				return nil
			})
			for !held.Load() {
				time.Sleep(time.Millisecond)
			}
			uid := w.nodeUID()
			time.Sleep(time.Second)
			w.deleteNode()
			time.Sleep(4*time.Second + 100*time.Millisecond)
			if now := w.nodeUID(); now == "" || now == uid {
				t.Errorf("right after the beat the node is %q, was %q", now, uid)
			}
		})
	})
	t.Run("without a watch", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.start()
			time.Sleep(beat)
			uid := w.nodeUID()
			w.api.Cut()
			w.deleteNode()
			w.api.Expire()
			time.Sleep(time.Second)
			if now := w.nodeUID(); now == "" || now == uid {
				t.Errorf("a second later the node is %q, was %q", now, uid)
			}
		})
	})
}

// Who sees that the node is ready finds its Lease. spec: NODE-1
func TestReadyNodeHasItsLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		if l := w.lease(); l.GetSpec().GetHolderIdentity() != nodeName {
			t.Errorf("the lease is %v", l)
		}
	})
}

// Whatever becomes of the Lease, the agent looks at its Node, reports its status and finds its way back; the log says
// so at a level that is seen, and not with every beat. spec: NODE-1, NODE-7
func TestLeaseCannotBeWritten(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"its namespace is gone": func(context.Context) error {
			return apierrors.NewNotFound(corev1.NamespaceKind,
				"kube-node-lease")
		},
		"it is refused": func(context.Context) error {
			return apierrors.NewForbidden(coordinationv1.LeaseKind,
				nodeName, "no")
		},
		"it always conflicts": func(context.Context) error { return apierrors.New(apierrors.Conflict, "lost") },
		"nobody answers":      func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				out := w.logged(slog.LevelWarn)
				var mu sync.Mutex
				broken := true
				w.api.React(func(ctx context.Context, method string, _ any) error {
					mu.Lock()
					now := broken
					mu.Unlock()
					if now && strings.HasPrefix(method, leases) {
						return fail(ctx)
					}
					return nil
				})
				w.start()
				if took := time.Since(w.began); took > time.Second {
					t.Errorf("the node was ready after %s", took)
				}
				w.create("a")
				time.Sleep(10 * time.Minute)
				for _, c := range w.node().GetStatus().GetConditions() {
					if age := time.Since(time.Unix(c.GetLastHeartbeatTime().GetSeconds(), 0)); age > report+beat {
						t.Errorf("%s is %s old", c.GetType(), age)
					}
				}
				uid := w.nodeUID()
				w.deleteNode()
				time.Sleep(beat)
				if now := w.nodeUID(); now == "" || now == uid {
					t.Errorf("the node is %q, was %q", now, uid)
				}
				at := "@0s"
				if name == "nobody answers" {
					at = "@500ms" // the node waits no longer for its Lease
				}
				w.expect("a", "START main/0 "+at)
				if n := strings.Count(out.String(), "lease cannot be renewed"); n < 9 || n > 11 {
					t.Errorf("the log says it %d times in ten minutes:\n%s", n, out)
				}
				mu.Lock()
				broken = false
				mu.Unlock()
				time.Sleep(2 * beat)
				if l := w.lease(); l == nil || time.Since(time.Unix(l.GetSpec().GetRenewTime().GetSeconds(), 0)) > beat {
					t.Errorf("the lease is %v", l)
				}
				if n := strings.Count(out.String(), "lease cannot be renewed: that is over"); n != 1 {
					t.Errorf("the log says %d times that it is over", n)
				}
			})
		})
	}
}

// A Lease that was deleted, or that somebody else wrote to, is there again with the next beat. spec: NODE-1
func TestLeaseIsMadeAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		out := w.logged(slog.LevelWarn)
		w.start()
		time.Sleep(beat)
		if _, err := w.c.Leases.Delete(w.t.Context(), &metav1.DeleteRequest{Namespace: "kube-node-lease",
			Name: nodeName}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat)
		l := w.lease()
		if l == nil {
			t.Fatal("there is no lease")
		}
		l = l.Clone()
		l.Spec.RenewTime = nil
		if _, err := w.c.Leases.Update(w.t.Context(), &coordinationv1rpc.UpdateLeaseRequest{Namespace: "kube-node-lease",
			Name: nodeName, Object: l}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat)
		if w.lease().GetSpec().GetRenewTime() == nil {
			t.Error("the lease was not renewed")
		}
		if out.String() != "" {
			t.Errorf("it was taken for a failure:\n%s", out)
		}
	})
}

// The agent's own writes are no failure of one another, whether they meet or one that was given up without an answer
// is carried out late. spec: NODE-1
func TestOwnWritesOfTheLeaseMeet(t *testing.T) {
	type update = *coordinationv1rpc.UpdateLeaseRequest
	var late update
	for name, meet := range map[string]func(ctx context.Context, w *world, a *nodeagent.Agent, n int, req update) error{
		"a beat comes while the first lease is written": func(
			_ context.Context, _ *world, a *nodeagent.Agent, n int, _ update,
		) error {
			switch n {
			case 1:
				a.LookAtNode()
				time.Sleep(200 * time.Millisecond)
			case 2:
				time.Sleep(400 * time.Millisecond) // the first write is done by then
			}
			return nil
		},
		"the first write is carried out during the next": func(
			ctx context.Context, w *world, _ *nodeagent.Agent, n int, req update,
		) error {
			switch n {
			case 1:
				late = req
				<-ctx.Done()
				return ctx.Err()
			case 2:
				if _, err := w.c.Leases.Update(w.t.Context(), late); err != nil {
					w.t.Error(err)
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				out := w.logged(slog.LevelWarn)
				w.start()
				time.Sleep(beat)
				w.kill() // there is a lease now
				agent := make(chan *nodeagent.Agent, 1)
				var updates atomic.Int32
				w.api.React(func(ctx context.Context, method string, req any) error {
					l, ok := req.(update)
					if !ok || time.Since(renewed(l.GetObject())) > time.Millisecond {
						return nil // the one that comes late
					}
					a := <-agent
					agent <- a
					return meet(ctx, w, a, int(updates.Add(1)), l)
				})
				w.begin()
				agent <- w.agent
				time.Sleep(2 * beat)
				if n := updates.Load(); n < 2 {
					t.Errorf("the lease was written %d times", n)
				}
				if age := time.Since(renewed(w.lease())); age > beat {
					t.Errorf("the lease was renewed %s ago", age)
				}
				if out.String() != "" {
					t.Errorf("it was taken for a failure:\n%s", out)
				}
			})
		})
	}
}

// The agent changes nothing that it has received: the Lease that the server has in memory stays as it was written.
func TestLeaseIsNotChangedInPlace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		time.Sleep(beat)
		held := w.lease() // as the server holds it
		before := proto.CloneOf(held)
		w.deleteNode()
		time.Sleep(2 * beat)
		l := w.lease()
		if l.GetMetadata().GetOwnerReferences()[0].GetUid() == before.GetMetadata().GetOwnerReferences()[0].GetUid() {
			t.Fatal("the lease still belongs to the node that is gone")
		}
		if !proto.Equal(before, held) {
			t.Errorf("was\n%v\nis\n%v", before, held)
		}
	})
}
