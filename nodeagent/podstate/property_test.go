package podstate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/resources"
)

// stop is what a container was told: when TERM came and when KILL may come at the earliest.
type stop struct {
	term, kill time.Time
}

// chaos runs a StateMachine in a world where everything may fail, come late or happen by itself, and checks what
// must hold whatever happens.
type chaos struct {
	*model

	t *rapid.T
	// kills holds, for every container that was told to stop, the earliest KILL that anybody asked for.
	kills   map[string]*stop
	gone    bool // the object was deleted by force
	dead    bool // the machine has ended
	handled int
	looks   int // observations since time has passed
	// agreeable: the node grants everything, and nothing is said twice.
	agreeable bool
	// shown is what the runtime has shown in the past, for observations that come late or twice.
	shown []Observation
	// failed holds the instances of which a liveness or startup probe was answered with a failure, passed those of which
	// a probe was answered with a success, by kind.
	failed map[string]bool
	passed [probeKinds]map[string]bool
	// lost holds the instances of which the machine was told that the runtime does not know their state.
	lost map[string]bool
	// over holds the instances whose startup probe has an end that this agent knows.
	over map[string]bool
	// posted holds the instances whose postStart hook has ended well, hooked those whose preStop hook was asked for.
	posted map[string]bool
	hooked map[string]*hooking
}

// probeGrace is the grace period of the probes that have their own.
const probeGrace = 5 * time.Second

// newChaos returns a world whose pods have probes as drawn.
func newChaos(t *rapid.T) *chaos {
	var inits []string
	if rapid.Bool().Draw(t, "inits") {
		inits = []string{"one", "side*"}
	}
	policy := rapid.SampledFrom([]string{"Always", "OnFailure", "Never"}).Draw(t, "policy")
	c := &chaos{model: newModel(policy, int64(rapid.IntRange(0, 40).Draw(t, "grace")), []string{"a", "b"}, inits), t: t,
		kills: map[string]*stop{}, failed: map[string]bool{}, over: map[string]bool{},
		posted: map[string]bool{}, hooked: map[string]*hooking{}}
	c.lost = map[string]bool{}
	for kind := range c.passed {
		c.passed[kind] = map[string]bool{}
	}
	probe := func(what string) *corev1.Probe {
		if !rapid.Bool().Draw(t, what) {
			return nil
		}
		p := &corev1.Probe{
			InitialDelaySeconds: int32(rapid.IntRange(0, 3).Draw(t, "delay")),
			PeriodSeconds:       int32(rapid.IntRange(1, 20).Draw(t, "period")),
			SuccessThreshold:    int32(rapid.IntRange(0, 2).Draw(t, "success")),
			FailureThreshold:    int32(rapid.IntRange(0, 3).Draw(t, "failure")),
		}
		if rapid.Bool().Draw(t, "own grace") {
			p.TerminationGracePeriodSeconds = proto.Int64(int64(probeGrace / time.Second))
		}
		return p
	}
	for _, name := range []string{"a", "side"} {
		if d := c.container(name); d != nil && policy != "Never" && rapid.Bool().Draw(t, "resized by a restart") {
			d.ResizePolicy = []*corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "RestartContainer"}}
		}
		if d := c.container(name); d != nil && rapid.Bool().Draw(t, "probes") {
			d.StartupProbe, d.LivenessProbe, d.ReadinessProbe = probe("startup"), probe("liveness"), probe("readiness")
		}
		if d := c.container(name); d != nil && rapid.IntRange(0, 2).Draw(t, "rules") == 0 {
			d.RestartPolicyRules = []*corev1.ContainerRestartRule{{
				Action: rapid.SampledFrom([]string{"Restart", restartAll}).Draw(t, "action"),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
					Operator: rapid.SampledFrom([]string{"In", "NotIn"}).Draw(t, "operator"), Values: []int32{1},
				},
			}}
		}
		if d := c.container(name); d != nil && rapid.Bool().Draw(t, "hooks") {
			d.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}
			if rapid.Bool().Draw(t, "postStart") {
				d.Lifecycle.PostStart = &corev1.LifecycleHandler{}
			}
		}
	}
	return c
}

// grace is the period that holds for the pod now, by the rules and not by the code under test.
func (c *chaos) grace() time.Duration {
	if c.m.resetting && c.m.Life() == Active { // all are being restarted: nothing is left of them
		return 2 * time.Second
	}
	if c.m.Vanished() {
		return 2 * time.Second
	}
	g := c.m.pod.GetSpec().GetTerminationGracePeriodSeconds()
	if meta := c.m.pod.GetMetadata(); meta.GetDeletionTimestamp() != nil {
		g = meta.GetDeletionGracePeriodSeconds()
	}
	return max(2*time.Second, time.Duration(g)*time.Second)
}

// check looks at what the machine asked for since the last check.
func (c *chaos) check() {
	c.shortenHooks()
	for _, a := range c.last {
		switch a := a.(type) {
		case StopContainer:
			c.checkStop(a)
		case StopSandbox:
			for _, in := range c.instances {
				if in.SandboxID == a.ID && in.State == Running && !c.hidden(in.ID) {
					c.t.Fatalf("the sandbox is stopped while %s/%d runs: it is killed without its grace (TERM-1)", in.Name,
						in.Attempt)
				}
			}
		case WriteStatus:
			c.checkStatus(a)
		case DeletePod:
			if !phase.Terminal(c.pod) || len(c.boxes)+len(c.instances) > 0 {
				c.t.Fatalf("the object is deleted in phase %s with %d sandboxes left (DEL-7)", c.pod.GetStatus().GetPhase(),
					len(c.boxes))
			}
		case Forget:
			if len(c.boxes)+len(c.instances) > 0 {
				c.t.Fatalf("the machine ends and leaves %d sandboxes", len(c.boxes))
			}
			c.dead = true
		case StartContainer:
			c.checkPosted()
			c.checkDebug(a)
			c.checkInits(a)
			for _, in := range c.instances {
				if in.Name == ContainerAt(c.m.pod, a.Index).GetName() && (in.State == Running && !c.hidden(in.ID) ||
					c.mayStart(&in)) {
					c.t.Fatalf("%s/%d is started although %s/%d is %s and may run", in.Name, a.Attempt, in.Name, in.Attempt, in.State)
				}
			}
		case Probe:
			c.checkProbe(a)
		case RunHook:
			if a.Kind == PreStop {
				c.hooked[a.ID] = &hooking{term: c.now.Add(a.Timeout - 2*time.Second)}
				delete(c.kills, a.ID) // what was asked for before it was seen to run is over
			}
		case RemoveContainer:
			if known := c.m.byID(a.ID); known != nil && known.State == Running {
				c.t.Fatalf("%s/%d is removed, so killed, while it runs (TERM-1)", known.Name, known.Attempt)
			}
		case Remove:
			if in, ok := c.running(""); ok {
				c.t.Fatalf("everything is removed while %s/%d runs", in.Name, in.Attempt)
			}
		}
	}
	c.last = nil
	c.checkOne()
}

// hooking is a preStop hook that was asked for: whether it has been answered, and when TERM may follow although it has
// not.
type hooking struct {
	term     time.Time
	answered bool
}

// shortenHooks takes in the grace period that holds now: a hook is not waited for any longer.
func (c *chaos) shortenHooks() {
	period := c.m.grace()
	if c.m.resetting {
		period = 0
	}
	for id, h := range c.hooked {
		limit := period
		if c.failed[id] {
			limit = min(limit, probeGrace)
		}
		if end := c.now.Add(limit); end.Before(h.term) {
			h.term = end
		}
	}
}

// checkHook fails when a container is told to end without its preStop hook, or before that has ended or the grace
// period is over. spec: HOOK-1, HOOK-2
func (c *chaos) checkHook(a StopContainer) {
	d, h := c.container(a.Name), c.hooked[a.ID]
	none := c.m.resetting || c.m.Vanished() || c.m.pod.GetSpec().GetTerminationGracePeriodSeconds() == 0
	switch {
	case h != nil && !h.answered && c.now.Before(h.term):
		c.t.Fatalf("%s is told to end %s before its hook has to be over", a.Name, h.term.Sub(c.now))
	case h == nil && !none && PreStop.Of(d) != nil && c.m.strayByID(a.ID) == nil && !c.sidecar(a.Name):
		c.t.Fatalf("%s is told to end without its hook", a.Name)
	}
}

// checkPosted fails when an instance runs whose postStart hook has not ended: nothing is started beside it.
func (c *chaos) checkPosted() {
	for i := range c.m.containers {
		if in := &c.m.containers[i]; in.State == Running && PostStart.Of(c.m.spec(i)) != nil && !c.posted[in.ID] {
			c.t.Fatalf("something is started before the postStart hook of %s has ended", in.Name)
		}
	}
}

// answerHook answers a hook, or never does, or twice.
func (c *chaos) answerHook(a RunHook, fail bool) {
	if fail && rapid.IntRange(0, 2).Draw(c.t, "lost") == 0 {
		return
	}
	if h := c.hooked[a.ID]; h != nil && a.Kind == PreStop {
		h.answered = true
	}
	c.posted[a.ID] = c.posted[a.ID] || a.Kind == PostStart && !fail
	in := HookRun{Index: a.Index, ID: a.ID, Kind: a.Kind, Failed: fail}
	c.step(in)
	if rapid.IntRange(0, 4).Draw(c.t, "twice") == 0 {
		c.check()
		c.step(in)
	}
}

// checkProbe fails when an attempt is asked for that must not be. spec: PROBE-3, PROBE-4
func (c *chaos) checkProbe(a Probe) {
	name := ContainerAt(c.m.pod, a.Index).GetName()
	if a.Kind != ReadinessProbe && c.m.Life() != Active {
		c.t.Fatalf("the %s probe of %s goes on while the pod stops", a.Kind, name)
	}
	if a.Kind == StartupProbe && c.over[a.ID] {
		c.t.Fatalf("the startup probe of %s goes on although it has passed", name)
	}
	if a.Kind != StartupProbe && c.container(name).StartupProbe != nil && !c.passed[StartupProbe][a.ID] {
		c.t.Fatalf("the %s probe of %s begins before its startup probe has passed", a.Kind, name)
	}
	n := 0
	for _, p := range c.pending {
		if p, ok := p.(Probe); ok && p.ID == a.ID && p.Kind == a.Kind {
			n++
		}
	}
	if n > 1 {
		c.t.Fatalf("the %s probe of %s is asked for twice at a time", a.Kind, name)
	}
}

// answerProbe answers an attempt, or loses the answer, or gives it twice.
func (c *chaos) answerProbe(a Probe, fail bool) {
	in := Probed{Probe: a, Result: ProbeSuccess}
	switch {
	case fail && rapid.IntRange(0, 4).Draw(c.t, "lost") == 0:
		return
	case fail:
		in.Result = rapid.SampledFrom([]ProbeResult{ProbeFailure, ProbeFailure, ProbeUnknown}).Draw(c.t, "result")
	}
	switch in.Result {
	case ProbeSuccess:
		c.passed[a.Kind][a.ID] = true
		enough := c.container(ContainerAt(c.m.pod, a.Index).GetName()).StartupProbe.GetSuccessThreshold() < 2
		c.over[a.ID] = c.over[a.ID] || a.Kind == StartupProbe && enough
	case ProbeFailure:
		c.failed[a.ID] = c.failed[a.ID] || a.Kind != ReadinessProbe
	}
	c.step(in)
	if rapid.IntRange(0, 4).Draw(c.t, "twice") == 0 {
		c.check()
		c.step(in)
	}
}

// checkOne fails when two instances of one container run.
func (c *chaos) checkOne() {
	runs := map[string]uint32{}
	for _, in := range c.instances {
		if _, ghost := c.ghosts[in.ID]; in.State != Running || ghost {
			continue
		}
		if other, two := runs[in.Name]; two {
			c.t.Fatalf("%s/%d and %s/%d run side by side", in.Name, other, in.Name, in.Attempt)
		}
		runs[in.Name] = in.Attempt
	}
}

// hidden reports whether nobody can know yet that a container runs.
func (c *chaos) hidden(id string) bool {
	seen, ghost := c.ghosts[id]
	return ghost && !seen
}

func (c *chaos) checkStop(a StopContainer) {
	at := c.now.Add(a.Timeout)
	s := c.kills[a.ID]
	if s == nil || !c.inFlight(a.ID) {
		c.checkHook(a)
		left := c.grace()
		if h := c.hooked[a.ID]; h != nil && s == nil {
			left = max(2*time.Second, min(left, h.term.Sub(c.now)))
		}
		if a.Timeout < left && !c.sidecar(a.Name) && (!c.failed[a.ID] || a.Timeout < probeGrace) {
			c.t.Fatalf("stop of %s after %s, its grace is %s (TERM-1, DEL-10)", a.Name, a.Timeout, c.grace())
		}
		c.kills[a.ID] = &stop{term: c.now, kill: at}
		return
	}
	if at.Before(c.now.Add(c.grace()-2*time.Second)) && at.Before(s.kill) && !c.sidecar(a.Name) {
		c.t.Fatalf("stop of %s is cut to %s, the grace is %s (TERM-3)", a.Name, a.Timeout, c.grace())
	}
	if at.Before(s.term.Add(2 * time.Second)) {
		c.t.Fatalf("KILL %s after TERM", at.Sub(s.term))
	}
	if at.Before(s.kill) {
		s.kill = at
	}
}

func (c *chaos) sidecar(name string) bool { return name == "side" }

// inFlight reports whether a stop of the container was asked for before and has not been answered.
func (c *chaos) inFlight(id string) bool {
	n := 0
	for _, a := range c.pending {
		if x, ok := a.(StopContainer); ok && x.ID == id {
			n++
		}
	}
	return n > 1
}

var order = map[string]int{"": 0, "Pending": 1, "Running": 2, "Succeeded": 3, "Failed": 3}

// checkRemaining makes sure that of a pod that has ended nothing changes but what it says to be left on the node.
func (c *chaos) checkRemaining(was, is *corev1.PodStatus) {
	but := func(s *corev1.PodStatus) *corev1.PodStatus {
		s = s.Shallow()
		s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c *corev1.PodCondition) bool {
			return c.GetType() == lingering.RemoveFailed
		})
		return s
	}
	if same(was, is) || !same(but(was), but(is)) {
		c.t.Fatalf("status %v after %v (LIFE-1)", is, was)
	}
}

func (c *chaos) checkStatus(a WriteStatus) {
	was, is := c.m.pod.GetStatus().GetPhase(), a.Pod.GetStatus().GetPhase()
	if order[was] == 3 {
		c.checkRemaining(c.m.pod.GetStatus(), a.Pod.GetStatus())
	} else if order[is] < order[was] {
		c.t.Fatalf("phase %s after %s (LIFE-1)", is, was)
	}
	if order[is] == 3 {
		if in, ok := c.running(""); ok || c.anyReady() {
			c.t.Fatalf("phase %s while %s runs, sandbox ready: %v (LIFE-10)", is, in.Name, c.anyReady())
		}
	}
	if c.gone && c.m.Vanished() {
		c.t.Fatal("a status is written for a pod that has vanished")
	}
	if a.Pod.GetMetadata().GetUid() != "u" {
		c.t.Fatal("the uid is missing (DEL-11)")
	}
	settled := condition(a.Pod.GetStatus(), resources.ResizeInProgress) == nil
	for _, list := range [][]*corev1.ContainerStatus{a.Pod.GetStatus().GetInitContainerStatuses(),
		a.Pod.GetStatus().GetContainerStatuses()} {
		for _, s := range list {
			c.checkReady(s)
			if settled {
				c.checkAmounts(s)
			}
		}
	}
	for _, cond := range a.Pod.GetStatus().GetConditions() {
		old := condition(c.m.pod.GetStatus(), cond.GetType())
		if old != nil && old.GetStatus() == cond.GetStatus() && !proto.Equal(old.GetLastTransitionTime(),
			cond.GetLastTransitionTime()) {
			c.t.Fatalf("the transition time of %s changed without its status (LIFE-3)", cond.GetType())
		}
	}
}

// checkReady fails when a container is said to be ready, or started, without a probe having said so. spec: PROBE-3
func (c *chaos) checkReady(s *corev1.ContainerStatus) {
	id, d := bareID(s.GetContainerID()), c.container(s.GetName())
	if in := c.instance(id); in != nil && in.Unclear && c.lost[id] && (s.GetStarted() || s.GetReady()) {
		c.t.Fatalf("%s is said to have started, or to be ready, and the runtime does not know its state", s.GetName())
	}
	if d.StartupProbe != nil && s.GetStarted() && !c.passed[StartupProbe][id] {
		c.t.Fatalf("%s has started, by its status, before its startup probe has passed", s.GetName())
	}
	if PostStart.Of(d) != nil && (s.GetState().GetRunning() != nil || s.GetStarted()) && !c.posted[id] {
		c.t.Fatalf("%s is said to run before its postStart hook has ended well (HOOK-2)", s.GetName())
	}
	if d.ReadinessProbe != nil && s.GetReady() && !c.passed[ReadinessProbe][id] {
		c.t.Fatalf("%s is ready before its readiness probe has passed", s.GetName())
	}
}

// answer answers pending action i; fail makes it fail.
func (c *chaos) answer(i int, fail bool) {
	c.check() // by what could be known until now
	a := c.pending[i]
	c.pending = slices.Delete(c.pending, i, i+1)
	c.handled++
	err := ""
	outcome := OK
	if fail {
		err, outcome = "busy", Failed
	}
	switch a := a.(type) {
	case Admit:
		c.step(Admission{})
	case RunSandbox:
		if fail {
			if rapid.Bool().Draw(c.t, "made all the same") {
				c.runSandbox(a)
				c.boxes[len(c.boxes)-1].ID += fmt.Sprintf("-%d", c.handled)
			}
			c.step(SandboxRun{Err: err})
			return
		}
		c.runSandbox(a)
		b := &c.boxes[len(c.boxes)-1]
		b.ID += fmt.Sprintf("-%d", c.handled)
		c.step(SandboxRun{Sandbox: *b})
	case StartContainer:
		c.answerStart(a, fail)
	case StopContainer:
		c.answerStop(a, fail)
	case Probe:
		c.answerProbe(a, fail)
	case RunHook:
		c.answerHook(a, fail)
	case AskResize:
		c.answerResize(a, fail)
	case Actuate:
		c.answerActuate(a, fail)
	case StopSandbox:
		if !fail {
			c.stopSandbox(a.ID)
		}
		c.step(SandboxStopped{ID: a.ID, Err: err})
	case Observe:
		if c.looks++; c.looks > 100 {
			c.t.Fatalf("observed %d times at one instant", c.looks)
		}
		in := Observed{Asked: true, Err: err}
		if !fail && rapid.IntRange(0, 3).Draw(c.t, "began long ago") == 0 {
			in.Seen = c.asked
		} else if !fail {
			in.Seen = c.seen()
			for id := range c.ghosts {
				c.ghosts[id] = true
			}
		}
		c.step(in)
	case RemoveContainer:
		if !fail {
			c.removeContainer(a.ID)
		}
		c.step(ContainerRemoved{ID: a.ID, Err: err})
	case Remove:
		if !fail {
			c.removeAll()
		}
		c.step(Removed{Err: err})
	case WriteStatus:
		if fail {
			c.step(StatusWritten{Outcome: outcome})
			return
		}
		c.step(c.write(a))
	case Lookup:
		switch {
		case fail:
			c.step(LookedUp{Outcome: Failed})
		case c.pod == nil || c.gone:
			c.step(LookedUp{Outcome: Missing})
		default:
			c.step(LookedUp{Pod: c.pod})
		}
	case DeletePod:
		if !fail {
			c.gone = true
		}
		c.step(PodDeleted{Outcome: outcome})
	}
}

func (c *chaos) answerStart(a StartContainer, fail bool) {
	ready := slices.ContainsFunc(c.boxes, func(s Sandbox) bool { return s.ID == a.SandboxID && s.Ready })
	switch {
	case !ready:
		c.step(ContainerRun{Index: a.Index, Reason: "CreateContainerError", Message: "no sandbox"})
	case !fail:
		c.step(ContainerRun{Index: a.Index, Instance: c.startContainer(a)})
	default:
		switch rapid.IntRange(0, 4).Draw(c.t, "how it fails") {
		case 3: // it was not answered; it runs, or has ended
			in := c.startContainer(a)
			if rapid.Bool().Draw(c.t, "ended") {
				c.exit(in.ID, 1)
			}
			in.State = Created
			c.step(ContainerRun{Index: a.Index, Instance: in, Expiry: c.expiry(), Reason: "StartUnconfirmed",
				Message: "timeout"})
		case 4: // it was not answered, and it will be taken up before it expires, or never
			expiry := c.expiry()
			c.step(ContainerRun{
				Index: a.Index, Instance: c.queue(a, expiry), Expiry: expiry, Reason: "StartUnconfirmed", Message: "timeout",
			})
		case 0:
			c.step(ContainerRun{Index: a.Index, Reason: "ErrImagePull", Message: "no"})
		case 1:
			in := c.startContainer(a)
			c.step(ContainerRun{Index: a.Index, Reason: "RunContainerError", Message: "no", Instance: c.exit(in.ID, 128)})
		default: // the answer was lost: it runs
			c.startContainer(a)
			c.step(ContainerRun{Index: a.Index, Reason: "CreateContainerError", Message: "timeout"})
		}
	}
}

func (c *chaos) expiry() time.Time {
	return c.now.Add(time.Duration(rapid.IntRange(0, 120).Draw(c.t, "expiry")) * time.Second)
}

func (c *chaos) answerStop(a StopContainer, fail bool) {
	if fail {
		if rapid.Bool().Draw(c.t, "stopped all the same") {
			c.exit(a.ID, 137)
		}
		c.step(ContainerStopped{ID: a.ID, Err: "busy"})
		return
	}
	code := int32(rapid.SampledFrom([]int{0, 137, 143}).Draw(c.t, "code"))
	c.step(ContainerStopped{ID: a.ID, Instance: c.exit(a.ID, code)})
}

// spec: LIFE-1, LIFE-3, LIFE-10, CTR-2, INIT-1, INIT-6, PROBE-3, PROBE-4, HOOK-1, HOOK-2, TERM-1, TERM-3, DEL-7,
// DEL-10, DEL-11, DEL-13
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t)
		c.agentStarts()
		c.check()
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				c.t = t
				c.check()
			},
			"answer": func(t *rapid.T) {
				c.t = t
				if c.dead || len(c.pending) == 0 {
					return
				}
				c.answer(rapid.IntRange(0, len(c.pending)-1).Draw(t, "which"), rapid.IntRange(0, 4).Draw(t, "fails") == 0)
			},
			"wait":   c.wait,
			"exit":   c.exits,
			"reboot": c.reboots,
			"delete": c.deletes,
			"force": func(t *rapid.T) {
				if c.dead || c.gone || rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					return
				}
				c.gone = true
				c.step(Absent{})
			},
			"rumour": func(t *rapid.T) { // a watch says that the pod is gone; it may be wrong
				if c.dead {
					return
				}
				c.step(Absent{})
			},
			"agent restarts": func(t *rapid.T) {
				if c.dead || c.gone || rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
					return
				}
				for _, a := range c.pending { // what it was about to start may be on its way
					if a, ok := a.(StartContainer); ok && rapid.Bool().Draw(t, "sent") {
						c.queue(a, c.now.Add(2*time.Minute))
					}
				}
				clear(c.lost)
				c.kills, c.shown, c.over, c.hooked = map[string]*stop{}, nil, map[string]bool{}, map[string]*hooking{}
				for id := range c.ghosts {
					c.ghosts[id] = true
				}
				c.agentStarts()
			},
			"late start": func(t *rapid.T) {
				c.t = t
				for i := range c.instances {
					if c.takeUp(&c.instances[i]) {
						if rapid.Bool().Draw(t, "told") {
							c.step(Observed{Seen: c.seen()})
						}
						return
					}
				}
			},
			"ghost":  c.appears,
			"lost":   c.loses,
			"debug":  c.debugs,
			"resize": c.resizes,
			"room": func(*rapid.T) {
				if !c.dead {
					c.step(Reconsider{})
				}
			},
			"remind": c.reminds,
			"looks around": func(t *rapid.T) { // while something is being started, many times
				c.t = t
				for range 20 {
					i := slices.IndexFunc(c.pending, func(a Action) bool { _, ok := a.(Observe); return ok })
					if i < 0 {
						return
					}
					c.answer(i, false)
				}
				t.Fatal("it looks around for ever")
			},
			"poke": func(t *rapid.T) {
				if c.dead {
					return
				}
				c.step(Poke{})
			},
			"runtime back": func(t *rapid.T) {
				if c.dead {
					return
				}
				c.step(RuntimeBack{})
			},
			"content": func(t *rapid.T) {
				if c.dead {
					return
				}
				c.step(ContentChanged{})
			},
		})
		c.finish(t)
	})
}

// appears makes the runtime run an instance that should not be: an older one, or a second one of the same attempt.
func (c *chaos) appears(t *rapid.T) {
	c.t = t
	if c.dead || c.m.Life() != Active || !c.m.ready() || rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
		return
	}
	in, _, ok := c.m.Instance("a")
	if !ok {
		return
	}
	c.haunt("a", c.m.sandbox().ID, uint32(rapid.IntRange(0, int(in.Attempt)).Draw(t, "attempt")))
	if rapid.Bool().Draw(t, "told") {
		c.step(Observed{Seen: c.seen()})
	} else {
		c.step(Poke{})
	}
}

// loses makes the runtime lose sight of a container, and say so.
func (c *chaos) loses(t *rapid.T) {
	c.t = t
	in, ok := c.model.running("")
	if c.dead || !ok || rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
		return
	}
	c.lose(in.Name)
	for _, in := range c.instances {
		if in.Unclear {
			c.lost[in.ID] = true
		}
	}
	c.step(Observed{Seen: c.seen()})
}

// resizes has something ask for other amounts.
func (c *chaos) resizes(t *rapid.T) {
	c.t = t
	if c.dead || c.gone || rapid.IntRange(0, 2).Draw(t, "seldom") > 0 {
		return
	}
	names := []string{"", "a", "b"}
	if len(c.pod.GetSpec().GetInitContainers()) > 0 {
		names = append(names, "one", "side")
	}
	c.resize(rapid.SampledFrom(names).Draw(t, "who"), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "cpu"))
}

// answerResize grants, refuses, or does not know, and may say so twice, or never.
func (c *chaos) answerResize(a AskResize, fail bool) {
	in := ResizeDecided{Serial: a.Serial, Pod: a.Pod}
	if c.agreeable {
		c.step(c.grant(a))
		return
	}
	switch rapid.IntRange(0, 3).Draw(c.t, "decision") {
	case 0:
		in.Reason, in.Message = "OutOfcpu", "no room"
	case 1:
		in.Infeasible, in.Reason, in.Message = true, "Infeasible", "never"
	default:
		if !fail {
			in = c.grant(a)
		}
	}
	if fail {
		if rapid.Bool().Draw(c.t, "lost") {
			return
		}
		in = ResizeDecided{Serial: a.Serial, Pod: a.Pod, Undecided: true}
	}
	c.step(in)
	if rapid.IntRange(0, 4).Draw(c.t, "twice") == 0 {
		c.check()
		c.step(in)
	}
}

// answerActuate changes all that it is to change, or some of it, of which some is not told, or says nothing at all.
func (c *chaos) answerActuate(a Actuate, fail bool) {
	for _, t := range a.Targets {
		if in := c.instance(t.ID); in != nil && in.Name != ContainerAt(c.m.pod, t.Index).GetName() {
			c.t.Fatalf("%s is given what another container is to have", in.Name)
		}
	}
	var in Actuated
	if !fail {
		in = c.actuate(a, "", 0)
	} else {
		in = c.actuate(a, "busy", rapid.IntRange(0, len(a.Targets)).Draw(c.t, "not done"))
		for _, t := range a.Targets {
			if rapid.Bool().Draw(c.t, "not told") {
				delete(in.Done, t.ID)
			}
		}
		if rapid.IntRange(0, 4).Draw(c.t, "lost") == 0 {
			return
		}
	}
	c.step(in)
	if rapid.IntRange(0, 4).Draw(c.t, "twice") == 0 {
		c.check()
		c.step(in)
	}
}

// checkAmounts fails when a container is said to have other amounts than it has while nothing is said to be under way.
// spec: OBJ-10
func (c *chaos) checkAmounts(s *corev1.ContainerStatus) {
	id := bareID(s.GetContainerID())
	has, known := c.amounts[id]
	if s.GetState().GetRunning() == nil || !known {
		return // nobody asked for it
	}
	if !sameAmounts(has, s.GetResources()) {
		c.t.Fatalf("%s has %v and is said to have %v", s.GetName(), has, s.GetResources())
	}
	if !sameList(s.GetResources().GetRequests(), s.GetAllocatedResources()) {
		c.t.Fatalf("%s has %v, was granted %v, and nothing is done about it", s.GetName(), s.GetResources(),
			s.GetAllocatedResources())
	}
}

// debugs adds an ephemeral container.
func (c *chaos) debugs(t *rapid.T) {
	c.t = t
	n := len(c.pod.GetSpec().GetEphemeralContainers())
	if c.dead || c.gone || n > 1 || rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
		return
	}
	c.change(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, &corev1.EphemeralContainer{
			EphemeralContainerCommon: &corev1.EphemeralContainerCommon{Name: fmt.Sprintf("debug-%d", n), Image: "host"},
			TargetContainerName:      "a",
		})
	})
}

// checkDebug fails when an ephemeral container is started that has run before. spec: INIT-6
func (c *chaos) checkDebug(a StartContainer) {
	name := ContainerAt(c.m.pod, a.Index).GetName()
	if !strings.HasPrefix(name, "debug-") {
		return
	}
	for _, in := range c.instances {
		if in.Name == name && in.State != Created {
			c.t.Fatalf("%s is started again", name)
		}
	}
}

// checkInits fails when an app container is started before the newest instance of the init container has succeeded.
// spec: INIT-1
func (c *chaos) checkInits(a StartContainer) {
	if name := ContainerAt(c.m.pod, a.Index).GetName(); name != "a" && name != "b" {
		return
	}
	var newest *Instance
	for i := range c.instances {
		in := &c.instances[i]
		if in.Name == "one" && in.State != Created && (newest == nil || in.Attempt > newest.Attempt) {
			newest = in
		}
	}
	if newest != nil && (newest.State != Exited || newest.ExitCode != 0) {
		c.t.Fatalf("something is started while one/%d is %s(%d)", newest.Attempt, newest.State, newest.ExitCode)
	}
}

// reminds tells again what was shown before, late or twice.
func (c *chaos) reminds(t *rapid.T) {
	c.t = t
	if c.dead {
		return
	}
	if len(c.shown) > 0 {
		c.step(Observed{Seen: rapid.SampledFrom(c.shown).Draw(t, "again")})
	}
	c.shown = append(c.shown, c.seen())
	if len(c.shown) > 10 {
		c.shown = c.shown[1:]
	}
}

func (c *chaos) wait(t *rapid.T) {
	c.t = t
	if c.dead {
		return
	}
	c.pass(time.Duration(rapid.IntRange(1, 40000).Draw(t, "ms")) * time.Millisecond)
}

// pass lets time pass, with the ticks that were asked for.
func (c *chaos) pass(d time.Duration) {
	end := c.now.Add(d)
	c.looks = 0
	for !c.wake.IsZero() && !c.wake.After(end) && !c.dead {
		if c.wake.After(c.now) {
			c.now = c.wake
		}
		c.wake = time.Time{}
		c.step(Tick{})
		c.check()
	}
	c.now = end
}

func (c *chaos) exits(t *rapid.T) {
	c.t = t
	in, ok := c.model.running("")
	if c.dead || !ok {
		return
	}
	c.exit(in.ID, int32(rapid.IntRange(0, 1).Draw(t, "code")))
	if rapid.Bool().Draw(t, "told") {
		c.step(Observed{Seen: c.seen()})
	} else {
		c.step(Poke{})
	}
}

func (c *chaos) reboots(t *rapid.T) {
	c.t = t
	if c.dead || len(c.boxes) == 0 || rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
		return
	}
	for _, b := range c.boxes {
		c.stopSandbox(b.ID)
	}
	c.step(Observed{Seen: c.seen()})
}

func (c *chaos) deletes(t *rapid.T) {
	c.t = t
	if c.dead || c.gone || rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	grace := int64(rapid.IntRange(1, 60).Draw(t, "grace"))
	if meta := c.pod.GetMetadata(); meta.GetDeletionTimestamp() != nil && grace >= meta.GetDeletionGracePeriodSeconds() {
		return // DEL-2: never lengthened
	}
	c.markDeleted(grace)
}

// finish deletes the pod, lets everything succeed, and checks that it comes to an end.
func (c *chaos) finish(t *rapid.T) {
	c.t = t
	if !c.dead && !c.gone && c.pod.GetMetadata().GetDeletionTimestamp() == nil {
		c.markDeleted(1)
	}
	if !c.dead && c.gone {
		c.step(Absent{})
	}
	for range 2000 {
		c.check()
		if c.dead {
			return
		}
		if len(c.pending) > 0 {
			c.answer(0, false)
			continue
		}
		c.pass(10 * time.Second)
	}
	t.Fatalf("the deletion never ends (DEL-13): life %s, pending %v, %d sandboxes\n%+v", c.m.Life(), c.pending,
		len(c.boxes), summary(c.m.pod.GetStatus()))
}

// A status that is not changed is not written again, and stays the same.
func TestStatusIsStable(t *testing.T) {
	w := newModel("Always", 30, []string{"main"}, nil)
	w.agentStarts()
	must[Admit](t, w, nil)
	w.step(Admission{})
	w.step(SandboxRun{Sandbox: w.runSandbox(must[RunSandbox](t, w, nil))})
	a := must[StartContainer](t, w, nil)
	w.step(ContainerRun{Index: a.Index, Instance: w.startContainer(a)})
	w.step(w.write(must[WriteStatus](t, w, nil)))
	for range 100 {
		w.now = w.now.Add(time.Minute)
		w.step(Tick{})
		w.step(Observed{Seen: w.seen()})
		w.change(func(p *corev1.Pod) { p.Metadata.Annotations = map[string]string{"now": w.now.String()} })
	}
	if len(w.pending) > 0 {
		t.Errorf("asked for %v", w.pending)
	}
}
