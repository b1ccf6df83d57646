package nodeagent_test

import (
	"testing"
	"time"

	"monoplane.dev/object"
	"monoplane.dev/rules/lingering"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// spec: LIFE-1, LIFE-3, LIFE-9, LIFE-12, NODE-1
func TestRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a")
		w.settle()
		p := w.phase("a", "Running")
		s := p.GetStatus()
		c := s.GetContainerStatuses()[0]
		if !c.GetReady() || !c.GetStarted() || c.GetState().GetRunning().GetStartedAt() == nil ||
			c.GetContainerID()[:7] != "fake://" {
			t.Errorf("container status: %v", c)
		}
		for _, kind := range []string{"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady",
			"Ready"} {
			if got := cond(p, kind); got.GetStatus() != "True" || got.GetLastTransitionTime() == nil ||
				got.GetObservedGeneration() != 1 {
				t.Errorf("%s: %v", kind, got)
			}
		}
		if s.GetPodIP() == "" || s.GetHostIP() == "" || s.GetStartTime() == nil || s.GetQosClass() != "BestEffort" ||
			s.GetObservedGeneration() != 1 {
			t.Errorf("status: %v", s)
		}
		if n := w.api.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName); n != 1 {
			t.Errorf("%d status writes, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := w.api.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName); n != 1 {
			t.Errorf("%d status writes after an hour, want 1", n)
		}
	})
}

// spec: LIFE-5, LIFE-10, TERM-1, TERM-2, DEL-7
func TestGracefulDeletion(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.create("b", annotated("stop-after", "3s", "stop-code", "0"))
		w.settle()
		began := time.Since(w.began)
		w.delete("a", -1)
		w.delete("b", -1)
		time.Sleep(29 * time.Second)
		w.phase("a", "Running")
		if w.get("b") != nil {
			t.Error("b is still there")
		}
		time.Sleep(2 * time.Second)
		if w.get("a") != nil {
			t.Error("a is still there")
		}
		w.expect("a", "START main/0 @0s", "TERM main/0 @"+began.String(), "KILL main/0 @30.5s", "EXIT main/0 @30.5s")
		w.expect("b", "START main/0 @0s", "TERM main/0 @"+began.String(), "EXIT main/0 @3.5s")
		w.empty()
	})
}

// A user says that a pod has failed: it is stopped with its grace, and then said to have.
//
// spec: LIFE-10
func TestUserEndsAPod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("stop-after", "3s"))
		w.settle()
		p := object.Clone(w.phase("a", "Running"))
		p.Status.Phase, p.Status.Reason = "Failed", "Mine"
		p.Status.Conditions = append(p.Status.Conditions,
			&corev1.PodCondition{Type: lingering.Unconfirmed, Status: "True"})
		if _, err := w.c.Pods.UpdateStatus(w.t.Context(), &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if now := w.get("a"); lingering.Confirmed(now) {
			t.Errorf("confirmed while it runs: %v", now.Status)
		}
		time.Sleep(5 * time.Second)
		now := w.phase("a", "Failed")
		if c := now.Status.ContainerStatuses[0]; !lingering.Confirmed(now) || now.Status.Reason != "Mine" ||
			c.GetState().GetTerminated() == nil || c.GetReady() {
			t.Errorf("it is not said to have ended: %v", now.Status)
		}
		w.delete("a", -1)
		w.settle()
		w.expect("a", "START main/0 @0s", "TERM main/0 @500ms", "EXIT main/0 @3.5s")
		w.empty()
	})
}

func cond(p *corev1.Pod, kind string) *corev1.PodCondition {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}
