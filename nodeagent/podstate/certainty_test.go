package podstate

import (
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
)

// began returns a pod of one container that runs, with nothing asked for.
func began(t *testing.T, policy string) *model {
	t.Helper()
	w := newModel(policy, 30, []string{"main"}, nil)
	w.agentStarts()
	must[Admit](t, w, nil)
	w.step(Admission{})
	w.step(SandboxRun{Sandbox: w.runSandbox(must[RunSandbox](t, w, nil))})
	a := must[StartContainer](t, w, nil)
	w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
	w.step(w.write(must[WriteStatus](t, w, nil)))
	return w
}

// pass lets time pass, with the ticks that were asked for.
func (w *model) pass(d time.Duration) {
	end := w.now.Add(d)
	for !w.wake.IsZero() && !w.wake.After(end) {
		w.now, w.wake = w.wake, time.Time{}
		w.step(Tick{})
	}
	w.now = end
}

// A runtime that says of a container that has ended that it runs is asked again before anything is started.
func TestRuntimeContradictsItself(t *testing.T) {
	w := began(t, "Always")
	w.step(Observed{Seen: w.seen()})
	for range 2 { // the first exit is followed by a restart at once, the second by a back-off
		in, _ := w.running("main")
		w.exit(in.ID, 1)
		w.step(Observed{Seen: w.seen()})
		if a, ok := take[StartContainer](w, nil); ok {
			w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
		}
	}
	ended := &w.instances[len(w.instances)-1]
	w.pass(9500 * time.Millisecond)
	ended.State = Running
	w.step(Poke{})
	must[Observe](t, w, nil)
	w.step(Observed{Asked: true, Seen: w.seen()})
	w.pass(600 * time.Millisecond) // the back-off is over
	if _, ok := take[StartContainer](w, nil); ok {
		t.Fatal("it is started although the runtime says that it runs")
	}
	w.pass(time.Second)
	must[Observe](t, w, nil)
	ended.State = Exited
	w.step(Observed{Asked: true, Seen: w.seen()})
	must[StartContainer](t, w, nil)
}

// The newest instance ended; the one before it, which had ended as well, runs as the runtime shows now: it is stopped
// with its grace, reported, and removed, before anything is started.
func TestInstanceBeforeRuns(t *testing.T) {
	w := began(t, "Always")
	first, _ := w.running("main")
	w.exit(first.ID, 1)
	w.step(Observed{Seen: w.seen()})
	a := must[StartContainer](t, w, nil)
	w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
	w.instances[0].State = Running
	w.exit(w.instances[1].ID, 1)
	w.last = nil
	w.step(Poke{})
	must[Observe](t, w, nil)
	w.step(Observed{Asked: true, Seen: w.seen()})
	w.pass(time.Minute)
	if _, ok := take[StartContainer](w, nil); ok {
		t.Fatal("something is started beside it")
	}
	stop := must[StopContainer](t, w, nil)
	if stop.ID != first.ID || stop.Timeout != 30*time.Second {
		t.Errorf("asked for %+v", stop)
	}
	warned := false
	for _, a := range w.last {
		n, ok := a.(Note)
		warned = warned || ok && n.Warning && n.Reason == "DuplicateContainer" &&
			strings.Contains(n.Message, "main (attempt 0, test://c1)")
	}
	if !warned {
		t.Errorf("no event: %v", w.last)
	}
	w.step(ContainerStopped{ID: stop.ID, Instance: w.exit(stop.ID, 137)})
	must[StartContainer](t, w, nil)
}

// A restarted agent finds a container that another may be starting: it looks once more, takes it for what it is if it
// runs by then, and otherwise removes it, after it was stopped, before it starts it anew.
func TestFoundCreated(t *testing.T) {
	for _, starts := range []bool{false, true} {
		w := newModel("Never", 30, []string{"main"}, nil)
		w.agentStarts()
		must[Admit](t, w, nil)
		w.step(Admission{})
		w.step(SandboxRun{Sandbox: w.runSandbox(must[RunSandbox](t, w, nil))})
		w.queue(must[StartContainer](t, w, nil), w.now.Add(time.Minute))
		w.agentStarts()
		must[Observe](t, w, nil)
		if starts {
			w.takeUp(&w.instances[0])
		}
		w.step(Observed{Asked: true, Seen: w.seen()})
		if starts {
			if in, _, _ := w.m.Instance("main"); in.State != Running || len(w.m.strays) > 0 {
				t.Errorf("it is %v", in)
			}
			continue
		}
		stop := must[StopContainer](t, w, nil)
		w.step(ContainerStopped{ID: stop.ID, Instance: w.exit(stop.ID, 0)})
		if _, ok := take[StartContainer](w, nil); ok {
			t.Fatal("started before the other one is removed")
		}
		gone := must[RemoveContainer](t, w, nil)
		w.removeContainer(gone.ID)
		w.step(ContainerRemoved{ID: gone.ID})
		if a := must[StartContainer](t, w, nil); a.Attempt != 0 {
			t.Errorf("attempt %d: one that never ran does not count", a.Attempt)
		}
	}
}

// A pod that is stuck says so in a condition, which goes back when it is dead, and its phase stays.
func TestStuckCondition(t *testing.T) {
	w := began(t, "Always")
	w.markDeleted(5)
	stop := must[StopContainer](t, w, nil)
	status := func() *corev1.PodStatus {
		t.Helper()
		a := must[WriteStatus](t, w, nil)
		w.step(w.write(a))
		return a.Pod.GetStatus()
	}
	w.pass(24 * time.Second)
	if w.m.Stuck() != "" {
		t.Error("stuck before the runtime had its time")
	}
	w.pass(2 * time.Second)
	s := status()
	c := condition(s, condKillFailed)
	if w.m.Stuck() == "" || c.GetStatus() != "True" || c.GetReason() != "FailedKillPod" || c.GetMessage() == "" ||
		s.GetPhase() != phase.Running {
		t.Errorf("stuck: %q, condition %v, phase %s", w.m.Stuck(), c, s.GetPhase())
	}
	w.step(ContainerStopped{ID: stop.ID, Instance: w.exit(stop.ID, 137)})
	w.stopSandbox("s0")
	w.step(SandboxStopped{ID: must[StopSandbox](t, w, nil).ID})
	must[Observe](t, w, nil)
	w.step(Observed{Asked: true, Seen: w.seen()})
	s = status()
	if c := condition(s, condKillFailed); w.m.Stuck() != "" || c.GetStatus() != "False" || s.GetPhase() != phase.Failed {
		t.Errorf("stuck: %q, condition %v, phase %s", w.m.Stuck(), c, s.GetPhase())
	}
}

// A pod that has ended, and of which something stays on the node, says what, and no more of its status changes.
func TestRemainingCondition(t *testing.T) {
	w := began(t, "Always")
	w.markDeleted(5)
	stop := must[StopContainer](t, w, nil)
	w.step(ContainerStopped{ID: stop.ID, Instance: w.exit(stop.ID, 137)})
	w.stopSandbox("s0")
	w.step(SandboxStopped{ID: must[StopSandbox](t, w, nil).ID})
	must[Observe](t, w, nil)
	w.step(Observed{Asked: true, Seen: w.seen()})
	w.step(w.write(must[WriteStatus](t, w, nil)))
	must[Remove](t, w, nil)
	w.step(Removed{Err: "busy"})
	if a, ok := take[WriteStatus](w, nil); ok {
		t.Errorf("one failure is told: %v", a.Pod.GetStatus())
	}
	for _, why := range []string{"driver a is away", "driver b is away"} {
		w.pass(10 * time.Second)
		must[Remove](t, w, nil)
		w.step(Removed{Err: why})
		a := must[WriteStatus](t, w, nil)
		s := a.Pod.GetStatus()
		if c := condition(s, lingering.RemoveFailed); c.GetStatus() != "True" || c.GetMessage() != "not removed: "+why ||
			s.GetPhase() != phase.Failed || lingering.Why(a.Pod) != c.GetMessage() {
			t.Errorf("status %v", s)
		}
		w.step(w.write(a))
	}
	w.m.pod.Metadata.Finalizers = []string{"x/hold"}
	w.pass(10 * time.Second)
	must[Remove](t, w, nil)
	w.step(Removed{})
	must[DeletePod](t, w, nil)
	w.step(PodDeleted{})
	s := must[WriteStatus](t, w, nil).Pod.GetStatus()
	if c := condition(s, lingering.RemoveFailed); c.GetStatus() != "False" {
		t.Errorf("condition %v after it was removed", c)
	}
}

// An agent that was killed after it made the sandbox and before it wrote a status goes on with the pod, and reports
// it.
func TestRestartBeforeTheFirstStatus(t *testing.T) {
	w := newModel("Always", 30, []string{"main"}, nil)
	w.agentStarts()
	must[Admit](t, w, nil)
	w.step(Admission{})
	w.runSandbox(must[RunSandbox](t, w, nil))
	w.agentStarts()
	a := must[StartContainer](t, w, nil)
	w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
	if s := must[WriteStatus](t, w, nil).Pod.GetStatus(); s.GetPhase() != phase.Running ||
		s.GetStartTime().GetSeconds() != w.now.Unix() {
		t.Errorf("status: %v", s)
	}
}

// A stop that is answered twice over is begun anew all the same, when it failed. spec: TERM-4, DEL-13
func TestStopAnsweredTwice(t *testing.T) {
	w := began(t, "Always")
	w.markDeleted(5)
	stop := must[StopContainer](t, w, nil)
	for range 2 {
		w.step(ContainerStopped{ID: stop.ID, Err: "busy"})
	}
	w.pass(2 * time.Second)
	if again := must[StopContainer](t, w, nil); again.Timeout != 5*time.Second {
		t.Errorf("asked for %+v", again)
	}
}
