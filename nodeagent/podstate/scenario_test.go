package podstate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/resources"
)

var rewrite = flag.Bool("rewrite", false, "write what the machine does into the scenario files")

// TestScenarios replays the files in testdata. A file is a list of steps: the line that says what happens, a line
// of dashes, and what the machine wants done about it, up to an empty line. Text from # on is a comment. See
// testdata/README.md for what can happen.
//
// spec: LIFE-1, LIFE-5, LIFE-6, LIFE-10, LIFE-12, CTR-3, CTR-4, TERM-1, TERM-2, TERM-3, DEL-7, DEL-9, DEL-10, INIT-1,
// INIT-4, INIT-5, INIT-6, CTR-2, PROBE-2, PROBE-3, PROBE-4, HOOK-1, HOOK-2, OBJ-10
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(data))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(data) {
				t.Errorf("%s differs; -rewrite writes what the machine does now. It does:\n%s", file, got)
			}
		})
	}
}

// replay runs the steps of a scenario and returns it with the actions that came of them.
func replay(t *testing.T, text string) string {
	var out strings.Builder
	var w *model
	inOutput := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case inOutput:
			if line == "" {
				inOutput = false
				out.WriteString("\n")
			}
		case line == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		case line == "----":
		default:
			out.WriteString(line + "\n----\n")
			command, _, _ := strings.Cut(line, "#")
			w = happen(t, w, strings.Fields(command))
			for _, a := range w.last {
				out.WriteString(w.describe(a) + "\n")
			}
			w.last = nil
			inOutput = true
		}
	}
	return out.String()
}

// options reads key=value words.
func options(words []string) map[string]string {
	m := make(map[string]string)
	for _, word := range words {
		k, v, _ := strings.Cut(word, "=")
		m[k] = v
	}
	return m
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// happen makes one line of a scenario happen.
func happen(t *testing.T, w *model, words []string) *model {
	t.Helper()
	o := options(words[1:])
	if words[0] == "pod" {
		w = newModel(o["policy"], number(t, o["grace"]), list(o["containers"]), list(o["init"]))
		if o["deadline"] != "" {
			n := number(t, o["deadline"])
			w.pod.Spec.ActiveDeadlineSeconds = &n
		}
		w.define(t, o)
		w.agentStarts()
		return w
	}
	if !w.answers(t, words, o) && !w.facts(t, words, o) {
		t.Fatalf("nobody knows what %q means", strings.Join(words, " "))
	}
	return w
}

// define adds to the spec what the options say of single containers: NAME/KEY:VALUE/KEY:VALUE,NAME...
func (w *model) define(t *testing.T, o map[string]string) {
	t.Helper()
	for key, text := range o {
		for _, entry := range list(text) {
			words := strings.Split(entry, "/")
			values := make(map[string]string)
			for _, v := range words[1:] {
				k, value, _ := strings.Cut(v, ":")
				values[k] = value
			}
			w.defineOne(t, key, w.container(words[0]), values)
		}
	}
}

func (w *model) defineOne(t *testing.T, key string, c *corev1.Container, values map[string]string) {
	t.Helper()
	switch key {
	case "startup":
		c.StartupProbe = probeOf(t, values)
	case "readiness":
		c.ReadinessProbe = probeOf(t, values)
	case "liveness":
		c.LivenessProbe = probeOf(t, values)
	case "asks":
		c.Resources = &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: values["cpu"]}}}
	case "resizing":
		c.ResizePolicy = []*corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: values["policy"]}}
	case "own":
		policy := values["policy"]
		c.RestartPolicy = &policy
	case "rules":
		for op, v := range values {
			code, action, _ := strings.Cut(v, ":")
			c.RestartPolicyRules = append(c.RestartPolicyRules, &corev1.ContainerRestartRule{Action: action,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{int32(number(t, code))}}})
		}
	case "poststart", "prestop":
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		if key == "poststart" {
			c.Lifecycle.PostStart = &corev1.LifecycleHandler{}
		} else {
			c.Lifecycle.PreStop = &corev1.LifecycleHandler{}
		}
	}
}

func probeOf(t *testing.T, values map[string]string) *corev1.Probe {
	t.Helper()
	p := &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	for key, value := range values {
		n := number(t, value)
		switch key {
		case "delay":
			p.InitialDelaySeconds = int32(n)
		case "period":
			p.PeriodSeconds = int32(n)
		case "success":
			p.SuccessThreshold = int32(n)
		case "failure":
			p.FailureThreshold = int32(n)
		case "grace":
			p.TerminationGracePeriodSeconds = &n
		default:
			t.Fatalf("a probe has no %s", key)
		}
	}
	return p
}

// answers makes an action come to its end.
func (w *model) answers(t *testing.T, words []string, o map[string]string) bool {
	t.Helper()
	text := strings.Join(words[1:], " ")
	switch words[0] {
	case "admitted":
		must[Admit](t, w, nil)
		w.step(Admission{})
	case "refused":
		must[Admit](t, w, nil)
		w.step(Admission{Reason: words[1], Message: strings.Join(words[2:], " ")})
	case "sandbox-runs":
		w.step(SandboxRun{Sandbox: w.runSandbox(must[RunSandbox](t, w, nil))})
	case "sandbox-fails":
		must[RunSandbox](t, w, nil)
		w.step(SandboxRun{Err: text})
	case "starts":
		a := must(t, w, func(a StartContainer) bool { return ContainerAt(w.pod, a.Index).GetName() == words[1] })
		w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
	case "start-fails":
		a := must(t, w, func(a StartContainer) bool { return ContainerAt(w.pod, a.Index).GetName() == words[1] })
		run := ContainerRun{Index: a.Index, Reason: words[2], Message: strings.Join(words[3:], " ")}
		if words[2] == "RunContainerError" {
			run.Instance = w.startContainer(a)
			run.Instance = w.exit(run.Instance.ID, 128)
			run.Instance.Reason, run.Instance.Message = "StartError", run.Message
		}
		w.step(run)
	case "start-unanswered":
		a := must(t, w, func(a StartContainer) bool { return ContainerAt(w.pod, a.Index).GetName() == words[1] })
		d, err := time.ParseDuration(o["expires"])
		if err != nil {
			t.Fatal(err)
		}
		expiry := w.now.Add(d)
		w.step(ContainerRun{Index: a.Index, Instance: w.queue(a, expiry), Expiry: expiry, Reason: "StartUnconfirmed",
			Message: "timeout"})
	case "invalid":
		if a, ok := take[RunSandbox](w, nil); ok {
			w.step(SandboxRun{Err: fmt.Sprintf("sandbox %d: %s", a.Attempt, text), Invalid: true})
			break
		}
		a := must[StartContainer](t, w, nil)
		w.step(ContainerRun{Index: a.Index, Reason: "CreateContainerError", Message: text, Invalid: true})
	case "remove-fails":
		a := must[RemoveContainer](t, w, nil)
		w.step(ContainerRemoved{ID: a.ID, Err: "busy"})
	case "stopped":
		a := must(t, w, func(a StopContainer) bool { return a.Name == words[1] })
		w.step(ContainerStopped{ID: a.ID, Instance: w.exit(a.ID, int32(number(t, o["code"])))})
	case "stop-fails":
		a := must(t, w, func(a StopContainer) bool { return a.Name == words[1] })
		w.step(ContainerStopped{ID: a.ID, Err: "busy"})
	case "probe":
		a := must(t, w, func(a Probe) bool {
			return ContainerAt(w.pod, a.Index).GetName() == words[1] && strings.EqualFold(a.Kind.String(), words[2])
		})
		w.step(Probed{Probe: a, Result: results[words[3]], Message: strings.Join(words[4:], " ")})
	case "hook":
		a := must(t, w, func(a RunHook) bool {
			return ContainerAt(w.pod, a.Index).GetName() == words[1] && hooks[a.Kind] == words[2]
		})
		w.step(HookRun{Index: a.Index, ID: a.ID, Kind: a.Kind, Failed: words[3] == "fails"})
	case "granted":
		w.step(w.grant(must[AskResize](t, w, nil)))
	case "deferred", "infeasible":
		a := must[AskResize](t, w, nil)
		w.step(ResizeDecided{Serial: a.Serial, Pod: a.Pod, Infeasible: words[0] == "infeasible", Reason: words[1],
			Message: strings.Join(words[2:], " ")})
	case "actuated":
		w.step(w.actuate(must[Actuate](t, w, nil), "", 0))
	case "actuate-fails":
		w.step(w.actuate(must[Actuate](t, w, nil), text, 1))
	case "sandbox-stopped":
		a := must[StopSandbox](t, w, nil)
		w.stopSandbox(a.ID)
		w.step(SandboxStopped{ID: a.ID})
	case "observed":
		must[Observe](t, w, nil)
		w.step(Observed{Seen: w.seen(), Asked: true})
	case "container-removed":
		a := must[RemoveContainer](t, w, nil)
		w.removeContainer(a.ID)
		w.step(ContainerRemoved{ID: a.ID})
	case "removed":
		must[Remove](t, w, nil)
		w.removeAll()
		w.step(Removed{})
	case "written":
		w.step(w.write(must[WriteStatus](t, w, nil)))
	case "write-fails":
		must[WriteStatus](t, w, nil)
		w.step(StatusWritten{Outcome: Failed})
	case "deleted":
		must[DeletePod](t, w, nil)
		w.pod = nil
		w.step(PodDeleted{})
	case "looked-up":
		must[Lookup](t, w, nil)
		switch words[1] {
		case "there":
			w.step(LookedUp{Pod: w.pod})
		case "gone":
			w.step(LookedUp{Outcome: Missing})
		default:
			w.step(LookedUp{Outcome: Failed})
		}
	default:
		return false
	}
	return true
}

var hooks = map[HookKind]string{PostStart: "postStart", PreStop: "preStop"}

var results = map[string]ProbeResult{"passes": ProbeSuccess, "fails": ProbeFailure, "errs": ProbeUnknown}

// facts makes something happen by itself.
func (w *model) facts(t *testing.T, words []string, o map[string]string) bool {
	t.Helper()
	switch words[0] {
	case "starts-late":
		for i := range w.instances {
			if in := &w.instances[i]; in.Name == words[1] && w.takeUp(in) {
				return true
			}
		}
		t.Fatalf("no start of %s is on its way", words[1])
	case "runs-twice":
		w.haunt(words[1], w.boxes[len(w.boxes)-1].ID, uint32(number(t, o["attempt"])))
		w.step(Observed{Seen: w.seen()})
	case "lost":
		w.lose(words[1])
		w.step(Observed{Seen: w.seen()})
	case "exits":
		in, ok := w.running(words[1])
		if !ok {
			t.Fatalf("%s does not run", words[1])
		}
		w.exit(in.ID, int32(number(t, o["code"])))
		w.step(Observed{Seen: w.seen()})
	case "sandbox-dies":
		w.stopSandbox(w.boxes[len(w.boxes)-1].ID)
		w.step(Observed{Seen: w.seen()})
	case "delete":
		w.markDeleted(number(t, o["grace"]))
	case "debug":
		w.change(func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, &corev1.EphemeralContainer{
				EphemeralContainerCommon: &corev1.EphemeralContainerCommon{Name: words[1], Image: "host"},
				TargetContainerName:      o["target"],
			})
		})
	case "image":
		w.change(func(p *corev1.Pod) { p.Spec.Containers[0].Image = words[1] })
	case "resize":
		w.resize(words[1], o["cpu"])
	case "room":
		w.step(Reconsider{})
	case "absent":
		w.step(Absent{})
	case "content-changes":
		w.step(ContentChanged{})
	case "node-stops":
		w.step(NodeStopping{})
	case "evict":
		w.step(Evict{Reason: words[1], Message: strings.Join(words[2:], " "), Grace: -1})
	case "agent-restarts":
		w.agentStarts()
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		end := w.now.Add(d)
		for !w.wake.IsZero() && !w.wake.After(end) {
			w.now, w.wake = w.wake, time.Time{}
			w.step(Tick{})
		}
		w.now = end
	default:
		return false
	}
	return true
}

func must[A Action](t *testing.T, w *model, fits func(A) bool) A {
	t.Helper()
	a, ok := take(w, fits)
	if !ok {
		var pending []string
		for _, p := range w.pending {
			pending = append(pending, w.describe(p))
		}
		t.Fatalf("nobody asked for %T after %s; pending: %q", a, w.now.Sub(w.began), pending)
	}
	return a
}

// describe words an action.
func (w *model) describe(a Action) string {
	switch a := a.(type) {
	case Admit:
		return "admit?"
	case RunSandbox:
		return fmt.Sprintf("run sandbox %d", a.Attempt)
	case StartContainer:
		s := fmt.Sprintf("start %s/%d", ContainerAt(w.m.pod, a.Index).GetName(), a.Attempt)
		if a.TargetID != "" {
			s += " for " + a.TargetID
		}
		if a.Delay > 0 {
			s += fmt.Sprintf(" (back-off afterwards %s)", a.Delay)
		}
		return s
	case CancelStart:
		return "cancel the pull"
	case StopContainer:
		return fmt.Sprintf("stop %s, KILL after %s", a.Name, a.Timeout)
	case Probe:
		early := map[bool]string{true: " early"}[a.Early]
		return fmt.Sprintf("probe %s of %s%s", strings.ToLower(a.Kind.String()), ContainerAt(w.m.pod, a.Index).GetName(),
			early)
	case RunHook:
		s := fmt.Sprintf("run %s of %s", hooks[a.Kind], ContainerAt(w.m.pod, a.Index).GetName())
		if a.Timeout > 0 {
			s += fmt.Sprintf(" for at most %s", a.Timeout)
		}
		return s
	case CancelHook:
		return "cancel the hooks of " + a.ID
	case StopSandbox:
		return "stop sandbox " + a.ID
	case Observe:
		return "observe"
	case RemoveContainer:
		return fmt.Sprintf("remove container %s (attempt %d)", a.ID, a.Attempt)
	case Remove:
		return "remove everything: " + strings.Join(a.Sandboxes, " ")
	case WriteStatus:
		return "write status: " + summary(a.Pod.GetStatus())
	case Lookup:
		return "look the pod up"
	case DeletePod:
		return "delete the object"
	case Wake:
		if a.At.IsZero() {
			return "no wake"
		}
		return fmt.Sprintf("wake at %s", a.At.Sub(w.began))
	case Note:
		return fmt.Sprintf("note %s: %s", a.Reason, a.Message)
	case AskResize:
		return fmt.Sprintf("grant generation %d?", a.Pod.GetMetadata().GetGeneration())
	case Actuate:
		s := "actuate"
		for _, t := range a.Targets {
			c := ContainerAt(a.To, t.Index)
			s += fmt.Sprintf(" %s=%s", c.GetName(), c.GetResources().GetRequests()["cpu"].GetString_())
		}
		if a.Group {
			s += " and the pod's cgroup"
		}
		return s
	case Forget:
		return "forget"
	default:
		return fmt.Sprintf("%T", a)
	}
}

func summary(s *corev1.PodStatus) string {
	var parts []string
	parts = append(parts, s.GetPhase())
	if s.GetReason() != "" {
		parts = append(parts, s.GetReason())
	}
	for _, c := range s.GetConditions() {
		switch c.GetType() {
		case condReady:
			parts = append(parts, "ready="+c.GetStatus())
		case condRestarting:
			parts = append(parts, "restarting="+c.GetStatus())
		case resources.ResizePending, resources.ResizeInProgress:
			parts = append(parts, fmt.Sprintf("%s(%s,%d)", c.GetType(), c.GetReason(), c.GetObservedGeneration()))
		}
	}
	for i, list := range [][]*corev1.ContainerStatus{s.GetInitContainerStatuses(), s.GetContainerStatuses(),
		s.GetEphemeralContainerStatuses()} {
		for _, c := range list {
			state := "running"
			if x := c.GetState().GetWaiting(); x != nil {
				state = x.GetReason()
			}
			if x := c.GetState().GetTerminated(); x != nil {
				state = fmt.Sprintf("%s(%d)", x.GetReason(), x.GetExitCode())
			}
			switch {
			case state != "running" || i == 2:
			case !c.GetStarted():
				state = "starting"
			case !c.GetReady() && i > 0:
				state = "unready"
			}
			part := fmt.Sprintf("%s:%s/%d", c.GetName(), state, c.GetRestartCount())
			if cpu := c.GetAllocatedResources()["cpu"]; cpu != nil {
				part += fmt.Sprintf("[%s of %s]", c.GetResources().GetRequests()["cpu"].GetString_(), cpu.GetString_())
			}
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}
