package nodeagent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// spec: CTR-3, CTR-1, CTR-4
func TestBackoff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after", "1s", "exit-code", "3"))
		time.Sleep(1500 * time.Millisecond)
		p := w.phase("a", "Running")
		if c := p.GetStatus().GetContainerStatuses()[0]; c.GetRestartCount() != 1 || c.GetState().GetRunning() == nil ||
			c.GetLastState().GetTerminated().GetExitCode() != 3 || c.GetLastState().GetTerminated().GetReason() != "Error" {
			t.Errorf("after the first restart: %v", c)
		}
		time.Sleep(2 * time.Second)
		p = w.phase("a", "Running")
		c := p.GetStatus().GetContainerStatuses()[0]
		wait := c.GetState().GetWaiting()
		if wait.GetReason() != "CrashLoopBackOff" || !strings.HasPrefix(wait.GetMessage(),
			"back-off 10s restarting failed container=main pod=a_default(") {
			t.Errorf("waiting: %v", c)
		}
		if c.GetReady() || cond(p, "Ready").GetStatus() != "False" ||
			cond(p, "Ready").GetMessage() != "containers with unready status: [main]" {
			t.Errorf("ready: %v", p.GetStatus())
		}
		time.Sleep(30 * time.Minute)
		var starts []string
		for _, s := range w.signals("a") {
			if at, ok := strings.CutPrefix(s, "START main/"); ok {
				_, at, _ = strings.Cut(at, "@")
				starts = append(starts, at)
			}
		}
		// 0, at once, then 10, 20, 40, 80, 160 and 300 s after each exit.
		want := "0s 1s 12s 33s 1m14s 2m35s 5m16s 10m17s 15m18s 20m19s 25m20s"
		if got := strings.Join(starts, " "); got != want {
			t.Errorf("starts at %s\nwant      %s", got, want)
		}
	})
}

// A long clean run makes the next failure the first one. spec: CTR-3
func TestBackoffReset(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after", "601s"))
		time.Sleep(35 * time.Minute)
		w.expect("a", "START main/0 @0s", "EXIT main/0 @10m1s", "START main/1 @10m1s", "EXIT main/1 @20m2s",
			"START main/2 @20m2s", "EXIT main/2 @30m3s", "START main/3 @30m3s")
	})
}

// The back-off goes on after a restart of the agent. spec: CTR-3
func TestBackoffSurvivesAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after", "1s", "exit-code", "1"))
		time.Sleep(40 * time.Second) // the fourth instance ran from 33 s to 34 s
		w.kill()
		time.Sleep(10 * time.Second)
		w.start()
		time.Sleep(time.Minute)
		got := w.signals("a")
		if last := got[len(got)-2]; last != "START main/4 @1m14s" {
			t.Errorf("got %v", got)
		}
	})
}

// spec: CTR-2, LIFE-1, LIFE-10
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy, code, phase string
		restarts            int32
	}{
		{"Never", "0", "Succeeded", 0},
		{"Never", "1", "Failed", 0},
		{"OnFailure", "0", "Succeeded", 0},
		{"OnFailure", "1", "Running", 2},
		{"Always", "0", "Running", 2},
	} {
		t.Run(c.policy+c.code, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.create("a", restart(c.policy), annotated("exit-after", "5s", "exit-code", c.code))
				time.Sleep(22 * time.Second)
				p := w.phase("a", c.phase)
				if got := p.GetStatus().GetContainerStatuses()[0].GetRestartCount(); got != c.restarts {
					t.Errorf("%d restarts", got)
				}
				if c.phase != "Running" {
					if r := cond(p, "Ready"); r.GetStatus() != "False" || !strings.HasPrefix(r.GetReason(), "Pod") {
						t.Errorf("ready: %v", r)
					}
					if w.runs() != 0 {
						t.Error("something runs")
					}
				}
			})
		})
	}
}

// A pod ends when all its containers have; one that fails makes it Failed. spec: LIFE-1
func TestManyContainers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", restart("Never"), containers("x", "y"), annotated("exit-after.x", "1s", "exit-after.y", "5s",
			"exit-code.x", "7"))
		time.Sleep(3 * time.Second)
		p := w.phase("a", "Running")
		if cs := p.GetStatus().GetContainerStatuses(); cs[0].GetState().GetTerminated().GetExitCode() != 7 ||
			cs[1].GetState().GetRunning() == nil {
			t.Errorf("status: %v", cs)
		}
		time.Sleep(3 * time.Second)
		w.phase("a", "Failed")
	})
}

// spec: CTR-4
func TestStartErrors(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("image", edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "missing:1"
			p.Spec.Containers[0].ImagePullPolicy = "Always"
		}))
		w.create("never", edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "missing:1"
			p.Spec.Containers[0].ImagePullPolicy = "Never"
		}))
		w.create("name", edit(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "no such image" }))
		w.create("command", annotated("start-error", "no such file"))
		w.create("once", restart("Never"), annotated("start-error", "no such file"))
		w.create("create", annotated("create-error", "cannot"))
		w.settle()
		waiting := func(name string) *corev1.ContainerStateWaiting {
			return w.get(name).GetStatus().GetContainerStatuses()[0].GetState().GetWaiting()
		}
		for name, want := range map[string]string{
			"image": "ErrImagePull", "never": "ErrImageNeverPull", "name": "InvalidImageName", "create": "CreateContainerError",
		} {
			if got := waiting(name); got.GetReason() != want || got.GetMessage() == "" {
				t.Errorf("%s: %v, want %s", name, got, want)
			}
			w.phase(name, "Pending")
		}
		c := w.phase("command", "Running").GetStatus().GetContainerStatuses()[0]
		if r := c.GetState().GetWaiting().GetReason(); r != "RunContainerError" && r != "CrashLoopBackOff" {
			t.Errorf("command: %v", c)
		}
		if last := c.GetLastState().GetTerminated(); last.GetReason() != "StartError" || last.GetExitCode() != 128 ||
			last.GetMessage() != "no such file" {
			t.Errorf("command: %v", c)
		}
		c = w.phase("once", "Failed").GetStatus().GetContainerStatuses()[0]
		if c.GetState().GetTerminated().GetReason() != "StartError" {
			t.Errorf("once: %v", c)
		}
		time.Sleep(15 * time.Second)
		if got := waiting("image"); got.GetReason() != "ImagePullBackOff" ||
			!strings.Contains(got.GetMessage(), `Back-off pulling image "missing:1"`) {
			t.Errorf("image: %v", got)
		}
	})
}

// A new image restarts the container at once, whatever its policy. spec: OBJ-10
func TestNewImage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", restart("Never"), annotated("stop-after", "2s"))
		w.settle()
		p := proto.CloneOf(w.get("a"))
		p.Spec.Containers[0].Image = "other"
		if _, err := w.c.Pods.Update(w.t.Context(), &corev1rpc.UpdatePodRequest{Namespace: "default", Name: "a",
			Object: p}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.expect("a", "START main/0 @0s", "TERM main/0 @500ms", "EXIT main/0 @2.5s", "START main/1 @2.5s")
		if c := w.phase("a", "Running").GetStatus().GetContainerStatuses()[0]; c.GetImage() != "other" ||
			c.GetRestartCount() != 1 {
			t.Errorf("status: %v", c)
		}
	})
}

// A new image does not bring back a container that has ended and stays so by policy: the server would refuse every
// later status. spec: OBJ-10, CTR-2
func TestNewImageOfEndedContainer(t *testing.T) {
	for policy, wantRun := range map[string]bool{"Never": false, "Always": true} {
		t.Run(policy, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.create("a", restart(policy), containers("x", "y"), annotated("exit-after.x", "1s", "exit-after.y", "1m"))
				time.Sleep(1500 * time.Millisecond)
				p := proto.CloneOf(w.phase("a", "Running"))
				p.Spec.Containers[0].Image = "other"
				if _, err := w.c.Pods.Update(w.t.Context(), &corev1rpc.UpdatePodRequest{Namespace: "default", Name: "a",
					Object: p}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
				c := w.phase("a", "Running").GetStatus().GetContainerStatuses()[0]
				if runs := c.GetState().GetRunning() != nil; runs != wantRun || (c.GetImage() == "other") != wantRun {
					t.Errorf("status: %v", c)
				}
				if again := strings.Contains(fmt.Sprint(w.signals("a")), "START x/1"); again != wantRun {
					t.Errorf("it ran again: %v, want %v", again, wantRun)
				}
				time.Sleep(time.Minute)
				if !wantRun {
					w.phase("a", "Succeeded")
				}
			})
		})
	}
}

// Dead containers are removed but for the newest of each.
func TestDeadContainersAreRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after", "1s"))
		time.Sleep(20 * time.Minute)
		l, err := w.cfg.Runtime.ListContainers(w.t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(l.GetContainers()); n < 1 || n > 2 {
			t.Errorf("%d containers are kept", n)
		}
	})
}

// spec: LIFE-6
func TestActiveDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"),
			edit(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = proto.Int64(10) }))
		time.Sleep(20 * time.Second)
		w.phase("a", "Running")
		time.Sleep(21 * time.Second)
		if s := w.phase("a", "Failed").GetStatus(); s.GetReason() != "DeadlineExceeded" || s.GetMessage() == "" {
			t.Errorf("status: %v", s)
		}
		w.expect("a", "START main/0 @0s", "TERM main/0 @10s", "KILL main/0 @40s", "EXIT main/0 @40s")
	})
}

// spec: LIFE-4
func TestReadinessGates(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", edit(func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []*corev1.PodReadinessGate{{ConditionType: "example.com/x"}}
		}))
		w.settle()
		p := w.phase("a", "Running")
		if cond(p, "ContainersReady").GetStatus() != "True" || cond(p, "Ready").GetStatus() != "False" ||
			cond(p, "Ready").GetReason() != "ReadinessGatesNotReady" {
			t.Errorf("conditions: %v", p.GetStatus().GetConditions())
		}
		p = proto.CloneOf(p)
		p.Status.Conditions = append(p.Status.Conditions, &corev1.PodCondition{Type: "example.com/x", Status: "True"})
		if _, err := w.c.Pods.UpdateStatus(w.t.Context(), &corev1rpc.UpdatePodRequest{Namespace: "default", Name: "a",
			Object: p}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if p := w.get("a"); cond(p, "Ready").GetStatus() != "True" || cond(p, "example.com/x").GetStatus() != "True" {
			t.Errorf("conditions: %v", p.GetStatus().GetConditions())
		}
	})
}
