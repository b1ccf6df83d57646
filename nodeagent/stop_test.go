package nodeagent_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// readyCondition returns the node's Ready condition as "status: message".
func (w *world) readyCondition() string {
	w.t.Helper()
	for _, c := range w.node().GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() + ": " + c.GetMessage()
		}
	}
	return ""
}

// A stop, once begun, goes on without its caller. The node is not Ready from then on, who asks again waits for the
// same stop, and the next start is as any other. spec: design decision 13, NODE-1
func TestStopGoesOnWithoutItsCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("long", annotated("ignore-term", "true"), grace(20))
		w.create("short", annotated("stop-after", "3s"))
		time.Sleep(beat)
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.agent.StopPods(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cut short: %v", err)
		}
		if got := w.readyCondition(); got != "False: node is shutting down" {
			t.Errorf("while it stops the node is Ready %s", got)
		}
		if got := w.agent.Unready(); got != "node is shutting down" {
			t.Errorf("the agent says %q", got)
		}
		time.Sleep(4 * time.Second)
		var said []string
		if err := w.agent.StopPods(w.t.Context(), func(waiting []string) {
			said = append(said,
				strings.Join(waiting, " "))
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"default/long", ""}; !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("the stop took %s, want the grace of 20 s, once", took)
		}
		if n := w.runs(); n != 0 {
			t.Errorf("%d containers run", n)
		}
		w.kill()
		w.start()
		w.settle()
		if got := w.readyCondition(); !strings.HasPrefix(got, "True: ") {
			t.Errorf("after the next start the node is Ready %s", got)
		}
		if n := w.runs(); n != 2 {
			t.Errorf("%d containers run", n)
		}
	})
}

// A stop of the node is no failure of its containers: after the next start they run at once, however often that
// happens, and what they have earned by failures of their own stays as it was. spec: design decision 13, CTR-3
func TestStopIsNoFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.StateDir = t.TempDir()
		w.start()
		w.create("steady")
		w.create("failing", annotated("exit-after", "1s", "exit-code", "1"))
		// failing: runs at 0 s, 1 s, 12 s, 33 s, then waits for 40 s, until 74 s.
		time.Sleep(40 * time.Second)
		for range 3 {
			if err := w.agent.StopPods(w.t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			w.kill()
			time.Sleep(time.Second)
			w.start()
			w.settle()
		}
		steady := func(from int) []string { return w.signals("steady")[from:] }
		want := []string{
			"START main/0 @0s", "TERM main/0 @40s", "EXIT main/0 @40s", "START main/1 @41s", "TERM main/1 @41.5s",
			"EXIT main/1 @41.5s",
			"START main/2 @42.5s", "TERM main/2 @43s", "EXIT main/2 @43s", "START main/3 @44s",
		}
		if got := steady(0); !slices.Equal(got, want) {
			t.Errorf("steady:\n got %q\nwant %q", got, want)
		}
		if p := w.phase("steady", "Running"); p.GetStatus().GetContainerStatuses()[0].GetRestartCount() != 3 {
			t.Errorf("steady: %v", p.GetStatus().GetContainerStatuses())
		}
		time.Sleep(time.Minute)
		got := w.signals("failing")
		if i := slices.Index(got, "EXIT main/3 @34s"); i < 0 || len(got) < i+2 || got[i+1] != "START main/4 @1m14s" {
			t.Errorf("failing: %q; it has to wait until 74 s", got)
		}
		if files, err := os.ReadDir(w.cfg.StateDir); err != nil || len(files) != 0 {
			t.Errorf("left: %v, %v", files, err)
		}
	})
}

// What the node stopped while it failed again and again goes on with the back-off that it had, and a failure after the
// next start is one. So it is when the agent dies in the middle of the stop, and without a place for the note.
// spec: CTR-3
func TestFailuresAfterAStop(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.StateDir = t.TempDir()
		w.start()
		w.create("a", annotated("exit-after", "5s", "exit-code", "1", "stop-after", "2s"))
		// Runs at 0 s, 5 s, then after 10 s at 20 s.
		time.Sleep(22 * time.Second)
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.agent.StopPods(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		w.kill()
		time.Sleep(10 * time.Second) // it has ended at 24 s
		w.start()
		time.Sleep(time.Minute)
		w.expect("a", "START main/0 @0s", "EXIT main/0 @5s", "START main/1 @5s", "EXIT main/1 @10s",
			"START main/2 @20s", "TERM main/2 @22s", "EXIT main/2 @24s", "START main/3 @33s", "EXIT main/3 @38s",
			"START main/4 @58s",
			"EXIT main/4 @1m3s")
	})
}

// A stop that is asked for while the agent is still coming back ends in bounded time: with the pods stopped, if it is
// known what runs here, and else with word that they go on. spec: NODE-2, design decision 13
func TestStopWhileComingBack(t *testing.T) {
	down := apierrors.New(apierrors.ServiceUnavailable, "down")
	for name, tc := range map[string]struct {
		react func(method string) error
		fault error
		runs  int
		took  time.Duration
		said  string
	}{
		"not yet registered": {func(m string) error { return failing(m, "/monoplane.core.v1.Nodes/", down) }, nil,
			0, 3 * time.Second, ""},
		"the API does not answer": {func(string) error { return down }, nil, 1, 30 * time.Second, "could not be read"},
		"the pods cannot be read": {func(m string) error { return failing(m, "/monoplane.core.v1.Pods/List", down) },
			nil, 1, 30 * time.Second, "could not be read"},
		"the runtime does not answer": {func(string) error { return nil }, errors.New("no"), 1, 30 * time.Second,
			"could not be read"},
		"all is well": {func(string) error { return nil }, nil, 0, 3 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.create("a", annotated("stop-after", "3s"))
				w.settle()
				w.kill()
				w.api.React(func(_ context.Context, method string, _ any) error { return tc.react(method) })
				if tc.fault != nil {
					w.cri.Stop()
					w.cri = inproc.NewServer(nil, nil)
					runtimeapi.RegisterRuntimeServiceServer(w.cri, mute{w.rt, tc.fault})
					runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
					conn := w.cri.Conn()
					w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
				}
				w.begin()
				began := time.Now()
				err := w.agent.StopPods(w.t.Context(), nil)
				if took := time.Since(began); took < tc.took || took > tc.took+3*time.Second {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
				if tc.said == "" && err != nil || tc.said != "" && (err == nil || !strings.Contains(err.Error(), tc.said)) {
					t.Errorf("got %v, want %q", err, tc.said)
				}
				if n := w.runs(); n != tc.runs {
					t.Errorf("%d containers run, want %d", n, tc.runs)
				}
			})
		})
	}
}

// mute is a runtime that does not say who it is.
type mute struct {
	*fake.Runtime

	err error
}

func (m mute) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return nil, m.err
}

func failing(method, prefix string, err error) error {
	if strings.HasPrefix(method, prefix) {
		return err
	}
	return nil
}

// Who waits for a stop is told when the agent ends before.
func TestStopIsCutShort(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"), grace(600))
		w.settle()
		got := make(chan error, 1)
		agent := w.agent
		go func() { got <- agent.StopPods(context.Background(), nil) }()
		time.Sleep(time.Second)
		w.kill()
		synctest.Wait()
		select {
		case err := <-got:
			if err == nil || !strings.Contains(err.Error(), "the agent has ended") {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("it still waits")
		}
		if err := agent.StopPods(w.t.Context(), nil); err == nil {
			t.Error("a stop of an agent that has ended succeeds")
		}
		if n := w.runs(); n != 1 {
			t.Errorf("%d containers run", n)
		}
	})
}

// An agent deletes a pod by its uid, so that it never touches a successor. spec: DEL-7, DEL-11
func TestDeletesByUID(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		p := w.create("a", annotated("stop-after", "3s"))
		w.settle()
		var mu sync.Mutex
		var asked []*metav1.DeleteRequest
		w.delete("a", -1)
		w.api.React(func(_ context.Context, method string, req any) error {
			if method == corev1rpc.Pods_Delete_FullMethodName {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, req.(*metav1.DeleteRequest))
			}
			return nil
		})
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(asked) == 0 {
			t.Fatal("the agent did not delete the pod")
		}
		for _, req := range asked {
			o := req.GetOptions()
			if o.GetPreconditions().GetUid() != uidOf(p) || o.GracePeriodSeconds == nil || o.GetGracePeriodSeconds() != 0 {
				t.Errorf("asked for %v, want grace 0 and uid %s", req, uidOf(p))
			}
		}
	})
}

func uidOf(p *corev1.Pod) string { return p.GetMetadata().GetUid() }
