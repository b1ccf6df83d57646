package nodeagent_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// spec: TERM-3, DEL-2
func TestShortening(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.create("b", annotated("ignore-term", "true"))
		w.create("c", annotated("ignore-term", "true"))
		w.settle() // 0.5 s
		w.delete("a", 30)
		w.delete("b", 30)
		w.delete("c", 30)
		time.Sleep(10 * time.Second)
		w.delete("a", 15)
		w.delete("b", 25) // ends after the old deadline: nothing changes
		w.delete("c", 5)  // would have ended by now: the server makes it one second from now
		time.Sleep(25 * time.Second)
		w.expect("a", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @25.5s", "EXIT main/0 @25.5s")
		w.expect("b", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @30.5s", "EXIT main/0 @30.5s")
		w.expect("c", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @11.5s", "EXIT main/0 @11.5s")
	})
}

// A process has at least 2 s between TERM and KILL. spec: TERM-1
func TestLeastGrace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.settle()
		w.delete("a", 1)
		time.Sleep(5 * time.Second)
		w.expect("a", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @2.5s", "EXIT main/0 @2.5s")
	})
}

// A pod deleted by force is stopped with a short grace, also when it is terminating with a long one. spec: DEL-9
func TestForced(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.create("b", annotated("ignore-term", "true"))
		w.settle()
		w.delete("b", 300)
		time.Sleep(10 * time.Second)
		w.delete("a", 0)
		w.delete("b", 0)
		w.create("a") // the successor runs at once; it is another pod
		time.Sleep(5 * time.Second)
		w.expect("a", "START main/0 @0s", "START main/0 @10.5s", "TERM main/0 @10.5s", "KILL main/0 @12.5s",
			"EXIT main/0 @12.5s")
		w.expect("b", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @12.5s", "EXIT main/0 @12.5s")
		w.phase("a", "Running")
		if n := w.runs(); n != 1 {
			t.Errorf("%d containers run, want 1", n)
		}
	})
}

// What the watch says is not believed: only a live read tells that a pod is gone. spec: DEL-9
func TestVanishedOnlyAfterLiveRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.settle()
		var down atomic.Bool
		down.Store(true)
		w.api.React(func(_ context.Context, method string, _ any) error {
			if down.Load() && method == corev1rpc.Pods_Get_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.delete("a", 0)
		time.Sleep(time.Minute)
		w.expect("a", "START main/0 @0s")
		down.Store(false)
		time.Sleep(time.Minute)
		if got := w.signals("a"); len(got) != 4 || !strings.HasPrefix(got[2], "KILL") {
			t.Errorf("got %v", got)
		}
		w.empty()
	})
}

// spec: DEL-10, DEL-13
func TestTerminationBeginsAnewAfterRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.settle()
		w.delete("a", -1)
		time.Sleep(20 * time.Second)
		w.kill()
		time.Sleep(4500 * time.Millisecond) // 25 s
		w.start()
		time.Sleep(29500 * time.Millisecond)
		w.phase("a", "Running")
		time.Sleep(time.Second)
		if w.get("a") != nil {
			t.Error("a is still there")
		}
		w.expect("a", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @55s", "EXIT main/0 @55s")
	})
}

// A pod that has ended is removed from the API at once; what the node keeps of it goes then. spec: DEL-3
func TestEndedPodIsDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", restart("Never"), annotated("exit-after", "1s"))
		time.Sleep(5 * time.Second)
		w.phase("a", "Succeeded")
		w.delete("a", -1)
		w.settle()
		if w.get("a") != nil {
			t.Error("a is still there")
		}
		w.empty()
	})
}

// A pod that was deleted before it was started never runs. spec: LIFE-5
func TestDeletedBeforeItStarts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("a")
		w.delete("a", -1)
		w.start()
		w.settle()
		w.expect("a")
		if w.get("a") != nil {
			t.Error("a is still there")
		}
	})
}

// A finalizer holds the object; the processes end all the same. spec: DEL-6, LIFE-5
func TestFinalizer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", edit(func(p *corev1.Pod) { p.Metadata.Finalizers = []string{"example.com/hold"} }))
		w.settle()
		w.delete("a", -1)
		time.Sleep(40 * time.Second)
		p := w.phase("a", "Failed")
		w.empty()
		n := w.api.Calls(corev1rpc.Pods_Delete_FullMethodName)
		time.Sleep(time.Hour)
		if got := w.api.Calls(corev1rpc.Pods_Delete_FullMethodName); got != n {
			t.Errorf("the deletion was asked for %d times more", got-n)
		}
		p = proto.CloneOf(p)
		p.Metadata.Finalizers = nil
		if _, err := w.c.Pods.Update(w.t.Context(), &corev1rpc.UpdatePodRequest{Namespace: "default", Name: "a",
			Object: p}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if w.get("a") != nil {
			t.Error("a is still there")
		}
	})
}

// Three of four calls to the API fail; nothing is lost. spec: DEL-13
func TestFailingAPI(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		rng := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		w.api.React(func(_ context.Context, method string, req any) error {
			if req == nil || !strings.Contains(method, "Pods") {
				return nil
			}
			switch req := req.(type) {
			case *corev1rpc.CreatePodRequest:
				return nil
			case *metav1.DeleteRequest:
				if req.GetOptions().GetGracePeriodSeconds() != 0 {
					return nil
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if rng.IntN(4) != 0 {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.create("a")
		time.Sleep(10 * time.Second)
		w.delete("a", 5)
		time.Sleep(time.Minute)
		w.api.React(nil)
		if w.get("a") != nil {
			t.Error("a is still there")
		}
		w.empty()
	})
}

// The runtime fails for a while at every step; the pod runs, and ends, all the same.
func TestFailingRuntime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		rng := rand.New(rand.NewPCG(1, 1))
		w.setFault(func(string, string) error {
			if rng.IntN(3) != 0 {
				return errors.New("the runtime is busy")
			}
			return nil
		})
		w.create("a", annotated("ignore-term", "true"))
		time.Sleep(time.Hour) // an attempt needs two calls that succeed, and backs off up to 5 min
		w.phase("a", "Running")
		w.delete("a", 5)
		time.Sleep(10 * time.Minute)
		if w.get("a") != nil {
			t.Error("a is still there")
		}
		w.empty()
	})
}

// The first Ctrl-C: processes stop with their own grace, objects stay, and pods go on by policy. spec: decision 13
func TestStopPods(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("always", annotated("stop-after", "3s"))
		w.create("never", restart("Never"), annotated("ignore-term", "true"), grace(10))
		w.create("onfailure", restart("OnFailure"), annotated("stop-after", "1s", "stop-code", "0"))
		w.settle()
		var said []string
		if err := w.agent.StopPods(w.t.Context(), func(waiting []string) {
			said = append(said,
				strings.Join(waiting, " "))
		}); err != nil {
			t.Fatal(err)
		}
		want := "default/always default/never default/onfailure|default/always default/never|default/never|"
		if got := strings.Join(said, "|"); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
		if n := w.runs(); n != 0 {
			t.Errorf("%d containers run", n)
		}
		w.phase("always", "Running")
		w.phase("never", "Failed")
		w.phase("onfailure", "Succeeded")
		w.create("late")
		w.settle()
		w.phase("late", "Pending")
		w.kill()
		w.start()
		w.settle()
		p := w.phase("always", "Running")
		if c := p.GetStatus().GetContainerStatuses()[0]; c.GetRestartCount() != 1 || !c.GetReady() {
			t.Errorf("always: %v", c)
		}
		w.phase("late", "Running")
		w.phase("never", "Failed")
		synctest.Wait()
		if n := w.runs(); n != 2 {
			t.Errorf("%d containers run, want 2", n)
		}
	})
}
