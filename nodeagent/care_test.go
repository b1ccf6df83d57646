package nodeagent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// command returns a probe that executes a command every second.
func command(words ...string) *corev1.Probe {
	return &corev1.Probe{
		Handler: &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: words}}, PeriodSeconds: 1, TimeoutSeconds: 1,
		FailureThreshold: 2,
	}
}

// without returns the entries of a pod's journal but those that begin with a word.
func (w *world) without(pod, word string) []string {
	return slices.DeleteFunc(w.signals(pod), func(s string) bool { return strings.HasPrefix(s, word) })
}

func (w *world) same(got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("\n got %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// A container that becomes well after a while, then ill, is not ready, ready, not ready, and is not ended for it; its
// status is written when that changes and not otherwise. spec: PROBE-1, PROBE-3
func TestReadiness(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exec-fails-until", "20s", "exec-fails-after", "60s"), edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = command("ready")
		}))
		ready := func() string { return cond(w.get("a"), "Ready").GetStatus() }
		time.Sleep(19 * time.Second)
		if got := ready(); got != "False" || w.get("a").GetStatus().GetPhase() != "Running" {
			t.Errorf("ready before it is well: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := ready(); got != "True" {
			t.Errorf("ready when it is well: %s", got)
		}
		time.Sleep(38 * time.Second)
		if n := w.api.Calls(corev1.Pods_UpdateStatus_FullMethodName); n != 2 {
			t.Errorf("%d status writes, want 2", n)
		}
		time.Sleep(4 * time.Second)
		if got := ready(); got != "False" {
			t.Errorf("ready when it is ill: %s", got)
		}
		w.same(w.without("a", "EXEC"), "START main/0 @0s")
	})
}

// spec: PROBE-2, PROBE-3, CTR-3
func TestLiveness(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		own := int64(3)
		w.create("a", annotated("exec-fails-after", "10s", "exec-output", "no pulse", "ignore-term", "true"),
			edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].LivenessProbe = command("alive")
				p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = &own
			}))
		time.Sleep(16 * time.Second)
		w.same(w.without("a", "EXEC"), "START main/0 @0s", "TERM main/0 @11s", "KILL main/0 @14s", "EXIT main/0 @14s",
			"START main/1 @14s")
		c := w.get("a").GetStatus().GetContainerStatuses()[0]
		if c.GetRestartCount() != 1 || c.GetLastState().GetTerminated().GetExitCode() != 137 || !c.GetReady() {
			t.Errorf("status: %v", c)
		}
	})
}

// On a machine that does not exist the runtime answers for the network. spec: PROBE-1, PROBE-3
func TestStartup(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exec-fails-until.tcpSocket", "5s"), edit(func(p *corev1.Pod) {
			startup := command("x")
			startup.FailureThreshold = 30
			port := &metav1.IntOrString{IntVal: 80}
			startup.Handler = &corev1.ProbeHandler{TcpSocket: &corev1.TCPSocketAction{Port: port}}
			p.Spec.Containers[0].StartupProbe = startup
			p.Spec.Containers[0].LivenessProbe = command("alive")
			p.Spec.Containers[0].ReadinessProbe = command("x")
			p.Spec.Containers[0].ReadinessProbe.Handler = &corev1.ProbeHandler{HttpGet: &corev1.HTTPGetAction{Port: port}}
		}))
		time.Sleep(4500 * time.Millisecond)
		if c := w.get("a").GetStatus().GetContainerStatuses()[0]; c.GetStarted() || c.GetReady() ||
			c.GetState().GetRunning() == nil {
			t.Errorf("before its startup probe has passed: %v", c)
		}
		time.Sleep(time.Second)
		if c := w.get("a").GetStatus().GetContainerStatuses()[0]; !c.GetStarted() || !c.GetReady() {
			t.Errorf("after its startup probe has passed: %v", c)
		}
		w.expect("a", "START main/0 @0s", "EXEC tcpSocket main/0 @0s", "EXEC tcpSocket main/0 @1s",
			"EXEC tcpSocket main/0 @2s", "EXEC tcpSocket main/0 @3s", "EXEC tcpSocket main/0 @4s",
			"EXEC tcpSocket main/0 @5s", "EXEC httpGet main/0 @5s", "EXEC alive main/0 @5s")
	})
}

// A probe that takes too long fails; an agent that comes back leaves what was ready as it was. spec: PROBE-2
func TestProbeTimesOut(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exec-delay", "1s"), edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = command("ready")
			p.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 2
		}))
		time.Sleep(1500 * time.Millisecond)
		if c := w.get("a").GetStatus().GetContainerStatuses()[0]; !c.GetReady() {
			t.Errorf("it answers in time: %v", c)
		}
		w.kill()
		w.start()
		time.Sleep(500 * time.Millisecond)
		if c := w.get("a").GetStatus().GetContainerStatuses()[0]; !c.GetReady() {
			t.Errorf("it was ready before the agent came back: %v", c)
		}
		w.create("slow", annotated("exec-delay", "3s"), edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = command("alive")
			p.Spec.RestartPolicy = "Never"
		}))
		time.Sleep(5 * time.Second)
		w.phase("slow", "Failed")
	})
}
