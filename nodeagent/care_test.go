package nodeagent_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
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
		if n := w.api.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName); n != 2 {
			t.Errorf("%d status writes, want 2", n)
		}
		time.Sleep(4 * time.Second)
		if got := ready(); got != "False" {
			t.Errorf("ready when it is ill: %s", got)
		}
		w.same(w.without("a", "EXEC"), "START main/0 @0s")
	})
}

// A container that becomes well between two attempts of its probe does not wait for the next one: meanwhile it is
// looked at, which neither counts nor is told, and which ends when it has succeeded. spec: PROBE-2, PROBE-3
func TestReadyAtOnce(t *testing.T) {
	for _, kind := range []string{"exec", "httpGet", "tcpSocket", "grpc"} {
		inWatchedWorld(t, func(w *world, _ *watched, _ *logBuffer) {
			w.start()
			late := "exec-fails-until." + kind
			w.create("a", annotated(late, "7250ms"), edit(func(p *corev1.Pod) {
				port := &metav1.IntOrString{IntVal: 80}
				h := map[string]*corev1.ProbeHandler{
					"exec":      {Exec: &corev1.ExecAction{Command: []string{kind}}},
					"httpGet":   {HttpGet: &corev1.HTTPGetAction{Port: port}},
					"tcpSocket": {TcpSocket: &corev1.TCPSocketAction{Port: port}},
					"grpc":      {Grpc: &corev1.GRPCAction{Port: 80}},
				}[kind]
				p.Spec.Containers[0].StartupProbe = &corev1.Probe{Handler: h}
				p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{Handler: h, InitialDelaySeconds: 6}
			}))
			time.Sleep(7200 * time.Millisecond)
			if cond(w.get("a"), "Ready").GetStatus() != "False" {
				t.Errorf("%s: ready before it is well", kind)
			}
			time.Sleep(350 * time.Millisecond)
			if cond(w.get("a"), "Ready").GetStatus() != "True" {
				t.Errorf("%s: not ready 300 ms after it has become well", kind)
			}
			looks := len(w.signals("a"))
			if looks < 30 || looks > 75 {
				t.Errorf("%s: looked at %d times", kind, looks)
			}
			time.Sleep(9500 * time.Millisecond)
			if n := len(w.signals("a")) - looks; n != 0 {
				t.Errorf("%s: looked at %d times more within a period of the success", kind, n)
			}
			time.Sleep(500 * time.Millisecond)
			if n := len(w.signals("a")) - looks; n != 1 {
				t.Errorf("%s: looked at %d times more after a period", kind, n)
			}
			if got := w.told("a", "Unhealthy"); len(got) != 1 || !strings.Contains(got[0], "Startup probe failed") {
				t.Errorf("%s: told of each attempt: %q", kind, got)
			}
		})
	}
}

// What never becomes ready is looked at ever more rarely, what asks a lot of the machine from the beginning, and all
// pods together a bounded number of times.
func TestEarlyLooksAreBounded(t *testing.T) {
	inWatchedWorld(t, func(w *world, _ *watched, _ *logBuffer) {
		w.start()
		never := func(name, delay string) {
			w.create(name, annotated("exec-fails-until", "10h", "exec-delay", delay), edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].ReadinessProbe = command("ready")
				p.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 10
			}))
		}
		during := func(pod string, d time.Duration) int {
			before := len(w.signals(pod))
			time.Sleep(d)
			return len(w.signals(pod)) - before
		}
		never("dear", "900ms")
		if n := during("dear", time.Minute); n > 21 {
			t.Errorf("a probe that takes 900 ms is made %d times in the first minute", n)
		}
		never("never", "0s")
		time.Sleep(6 * time.Minute)
		if n := during("never", 10*time.Minute); n < 59 || n > 61 {
			t.Errorf("what has not been ready for long is looked at %d times in 10 minutes", n)
		}
		const pods = 60
		for i := range pods {
			never("many"+strconv.Itoa(i), "0s")
		}
		time.Sleep(9 * time.Second)
		sum := 0
		for i := range pods {
			n := len(w.without("many"+strconv.Itoa(i), "START"))
			if n < 2 {
				t.Errorf("one of many pods was looked at %d times", n)
			}
			sum += n
		}
		if limit := pods + (100+9*100)/5; sum > limit {
			t.Errorf("%d pods were looked at %d times, want at most %d", pods, sum, limit)
		}
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
		want := []string{"START main/0 @0s", "EXEC tcpSocket main/0 @0s"}
		for at, due := time.Duration(0), time.Second; at < 5*time.Second; {
			at += max(100*time.Millisecond, at/32) // an early attempt
			if at >= due {
				at, due = due, due+time.Second
			}
			want = append(want, fmt.Sprintf("EXEC tcpSocket main/0 @%s", at.Round(100*time.Millisecond)))
		}
		want = append(want, "EXEC httpGet main/0 @5s", "EXEC alive main/0 @5s")
		w.expect("a", want...)
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

// hooked gives the first container hooks that execute a command each.
func hooked(postStart, preStop string) podOption {
	return edit(func(p *corev1.Pod) {
		l := &corev1.Lifecycle{}
		if postStart != "" {
			l.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{postStart}}}
		}
		if preStop != "" {
			l.PreStop = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{preStop}}}
		}
		p.Spec.Containers[0].Lifecycle = l
	})
}

// spec: HOOK-1, HOOK-2, TERM-1
func TestHooks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", containers("main", "other"), hooked("hello", "bye"), grace(10),
			annotated("exec-delay.hello", "5s", "exec-delay.bye", "4s", "ignore-term", "true"))
		time.Sleep(4 * time.Second)
		if c := w.phase("a", "Pending").GetStatus().GetContainerStatuses()[0]; c.GetStarted() ||
			c.GetState().GetWaiting().GetReason() != "ContainerCreating" {
			t.Errorf("before postStart has ended: %v", c)
		}
		time.Sleep(2 * time.Second)
		w.phase("a", "Running")
		w.delete("a", -1)
		time.Sleep(11 * time.Second)
		if w.get("a") != nil {
			t.Error("it is still there")
		}
		w.expect("a", "START main/0 @0s", "EXEC hello main/0 @0s", "START other/0 @5s", "EXEC bye main/0 @6s",
			"TERM other/0 @6s", "TERM main/0 @10s", "KILL main/0 @16s", "EXIT main/0 @16s", "KILL other/0 @16s",
			"EXIT other/0 @16s")
		w.empty()
	})
}

// spec: HOOK-1
func TestHooksFail(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("bad", hooked("hello", ""), annotated("exec-code.hello", "3"), restart("Never"))
		w.create("hangs", hooked("hello", "bye"), annotated("exec-delay", "1000h"), grace(5))
		time.Sleep(time.Hour)
		c := w.phase("bad", "Failed").GetStatus().GetContainerStatuses()[0]
		if c.GetState().GetTerminated().GetExitCode() != 143 {
			t.Errorf("status: %v", c)
		}
		w.phase("hangs", "Pending")
		w.delete("hangs", -1)
		time.Sleep(8 * time.Second)
		if w.get("hangs") != nil {
			t.Error("hooks that hang hold up the deletion")
		}
		w.expect("hangs", "START main/0 @0s", "EXEC hello main/0 @0s", "EXEC bye main/0 @1h0m0s", "TERM main/0 @1h0m5s",
			"EXIT main/0 @1h0m5s")
	})
}

// spec: HOOK-1: the runtime of a machine that does not exist answers for the network; sleep needs none.
func TestHooksWithoutExec(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
				PostStart: &corev1.LifecycleHandler{HttpGet: &corev1.HTTPGetAction{Port: &metav1.IntOrString{IntVal: 80}}},
				PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}},
			}
		}))
		w.settle()
		w.phase("a", "Running")
		w.delete("a", -1)
		time.Sleep(4 * time.Second)
		w.expect("a", "START main/0 @0s", "EXEC httpGet main/0 @0s", "TERM main/0 @3.5s", "EXIT main/0 @3.5s")
	})
}

// An agent that is killed while hooks run leaves nothing behind and goes on with the pod. spec: DEL-10, HOOK-1
func TestHooksWhenTheAgentRestarts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", hooked("hello", "bye"), annotated("exec-delay", "10s"), grace(20))
		time.Sleep(5 * time.Second)
		w.kill()
		w.start()
		time.Sleep(11 * time.Second)
		w.phase("a", "Running")
		w.delete("a", -1)
		time.Sleep(4 * time.Second)
		w.kill()
		w.start()
		time.Sleep(11 * time.Second)
		w.expect("a", "START main/0 @0s", "EXEC hello main/0 @0s", "EXEC hello main/0 @5s", "EXEC bye main/0 @16s",
			"EXEC bye main/0 @20s", "TERM main/0 @30s", "EXIT main/0 @30s")
		if w.get("a") != nil {
			t.Error("it is still there")
		}
	})
}

// spec: CTR-2, CTR-3
func TestRestartRules(t *testing.T) {
	rules := func(policy, action string) podOption {
		return edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicy = &policy
			p.Spec.Containers[0].RestartPolicyRules = []*corev1.ContainerRestartRule{{
				Action:    action,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{42}},
			}}
		})
	}
	inWorld(t, func(w *world) {
		w.start()
		ends := annotated("exit-after.main", "1s", "exit-code.main", "42")
		w.create("one", containers("main", "other"), restart("Never"), rules("Never", "Restart"), ends)
		w.create("all", containers("main", "other"), restart("Never"), rules("Never", "RestartAllContainers"), ends,
			annotated("exit-after.first", "0s"), edit(func(p *corev1.Pod) {
				p.Spec.InitContainers = []*corev1.Container{{Name: "first", Image: "host"}}
			}))
		time.Sleep(11500 * time.Millisecond)
		w.expect("one", "START main/0 @0s", "START other/0 @0s", "EXIT main/0 @1s", "START main/1 @1s", "EXIT main/1 @2s")
		w.expect("all", "START first/0 @0s", "EXIT first/0 @0s", "START main/0 @0s", "START other/0 @0s",
			"EXIT main/0 @1s", "TERM other/0 @1s", "EXIT other/0 @1s",
			"START first/1 @1s", "EXIT first/1 @1s", "START main/1 @1s", "START other/1 @1s",
			"EXIT main/1 @2s", "TERM other/1 @2s", "EXIT other/1 @2s")
		s := w.phase("all", "Running")
		if c := cond(s, "AllContainersRestarting"); c.GetStatus() != "True" ||
			c.GetReason() != "RestartAllContainersStarted" {
			t.Errorf("condition: %v", c)
		}
		if c := cond(s, "Initialized"); c.GetStatus() != "True" {
			t.Errorf("condition: %v", c)
		}
		w.delete("all", 0)
		w.delete("one", 0)
		w.settle()
		w.empty()
	})
}

// spec: INIT-6, LIFE-9
func TestEphemeralContainers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after.shell", "5s", "exit-code.shell", "3", "create-error.bad", "no"))
		w.settle()
		p := w.phase("a", "Running")
		p = proto.CloneOf(p)
		for _, name := range []string{"bad", "shell"} {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, &corev1.EphemeralContainer{
				EphemeralContainerCommon: &corev1.EphemeralContainerCommon{Name: name, Image: "host"},
				TargetContainerName:      "main",
			})
		}
		_, err := w.c.Pods.UpdateEphemeralContainers(w.t.Context(), &corev1rpc.UpdatePodRequest{
			Namespace: "default", Name: "a", Object: p,
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s := w.phase("a", "Running").GetStatus()
		if bad := s.GetEphemeralContainerStatuses()[0]; bad.GetState().GetWaiting().GetReason() != "CreateContainerError" {
			t.Errorf("status: %v", bad)
		}
		if shell := s.GetEphemeralContainerStatuses()[1]; shell.GetState().GetTerminated().GetExitCode() != 3 ||
			shell.Started != nil || shell.GetRestartCount() != 0 {
			t.Errorf("status: %v", shell)
		}
		if got := cond(w.get("a"), "Ready").GetStatus(); got != "True" {
			t.Errorf("ready: %s", got)
		}
		w.same(w.signals("a")[1:], "START shell/0 @500ms", "EXIT shell/0 @5.5s")
	})
}
