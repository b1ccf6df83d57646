package podstate

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/resources"
)

// resize is what is known of a pod that asks for other amounts of resources than it was admitted with. What the pod
// asks for is granted by the node as a whole or not at all, and is then brought about:
//
//	                the spec asks for
//	                other amounts                granted
//	(settled) ──────────────────────► asking ─────────────► granted ──► in force: (settled)
//	    ▲                              │   ▲                 │   ▲
//	    │ the spec asks for what is    ▼   │ room came free, │   │ after a back-off
//	    └───────────────────────────  refused   three minutes ▼   │
//	      granted                                 have passed,  failed
//	                                              or the spec has changed
//
// The two go on side by side: while what was granted is brought about, the pod may ask for more. Containers whose
// policy wants that are stopped, with their grace, and run again with the new amounts; the amounts of the others, and
// those of the pod's cgroup, are changed under way (Actuate). A container that is not running is started with what is
// granted by then.
//
// An answer that never comes leaves the pod as it is, with the condition that says so, and holds up nothing else. One
// that comes twice counts once. An Actuate that was not answered with success may have been carried out in part,
// or may be yet: what it was about counts as uncertain, and is set again, whatever is granted by then. Should the
// runtime carry out later what it had failed to, a look after a while shows that the limits are no longer those that
// were read back when they were set, and they are set once more.
type resize struct {
	// granted is the newest object with the amounts that the node has granted.
	// Invariant: it differs from the machine's pod in these amounts only, and is that very object when they are the same.
	granted *corev1.Pod

	ask    retry
	serial uint32 // of the last question
	// again: room came free while a question was under way, so that its answer may be about less room.
	again   bool
	refusal *refusal

	act  retry
	acts uint32 // counts the orders
	// to is what the order under way is to bring about.
	to *corev1.Pod
	// group: the pod's cgroup does not have, or may not have, what is granted. Then whole is what the pod as a whole has.
	group bool
	whole *corev1.ResourceRequirements
	// started is what the container being started was started with, nil when that is what is granted.
	started *given
	// recheck is when to look whether the runtime has carried out late what it failed to; zero for never.
	recheck time.Time
	// progress is there while what was granted is not in force.
	progress *progress
}

// refusal says why the amounts that the pod asks for are not granted.
type refusal struct {
	infeasible bool
	message    string
	generation int64
}

// progress is of what was granted last.
type progress struct {
	generation int64
	// failure says what went wrong last; empty for nothing.
	failure string
}

// given are the amounts that a running container has, where these are not those that are granted.
type given struct {
	own, whole *corev1.ResourceRequirements
	// unsure: they may also be others.
	unsure bool
}

// resizeRetry is the time after which a deferred resize is tried again although nobody has told of room.
const resizeRetry = 3 * time.Minute

// AskResize asks whether the node grants the pod what its spec asks for now, in place of what it was granted; answered
// by ResizeDecided.
type AskResize struct {
	// Serial tells the questions apart.
	Serial uint32
	// Pod is the object that asks.
	Pod *corev1.Pod
}

// Actuate has running containers, and the pod's cgroup, brought from some amounts to others; answered by Actuated. It
// may be asked for again with the same or other amounts when it has failed.
type Actuate struct {
	// Serial tells the orders apart.
	Serial uint32
	// From is the pod with the amounts in force as far as these are known, To the pod with those that are granted.
	From, To *corev1.Pod
	// Targets are the containers to change.
	Targets []Target
	// Group says that the pod's cgroup is to be changed too.
	Group bool
}

// Target is a running container.
type Target struct {
	// Index is the container's place, as in StartContainer.
	Index int
	// ID is the instance's.
	ID string
}

// ResizeDecided answers AskResize.
type ResizeDecided struct {
	// Serial is that of the question.
	Serial uint32
	// Pod is the object that asked. If it is granted what it asks for, that is kept for an agent that restarts.
	Pod *corev1.Pod
	// Granted says that the pod may have what it asks for. If not, it may have it later, unless it is Infeasible.
	Granted, Infeasible bool
	// Reason is a word for what is missing, Message a sentence.
	Reason, Message string
	// Undecided says that nothing is known; it is asked for again.
	Undecided bool
}

// Actuated answers Actuate.
type Actuated struct {
	// Serial is that of the order.
	Serial uint32
	// Done has, by id, the containers that have what they were to have, with what the runtime says that they have, nil if
	// it does not say. Group says that the pod's cgroup has it.
	Done  map[string]*Settings
	Group bool
	// Err says why the others have not; empty when there are none.
	Err string
}

// Reconsider says that there may be room for what was deferred.
type Reconsider struct{}

func (AskResize) action()    {}
func (Actuate) action()      {}
func (ResizeDecided) input() {}
func (Actuated) input()      {}
func (Reconsider) input()    {}

// Granted returns the newest object with the resources that the node has granted it. It must not be changed.
func (m *StateMachine) Granted() *corev1.Pod {
	if m.rz == nil {
		return m.pod
	}
	return m.rz.granted
}

// Deferred reports whether the pod asks for more than there is room for, and since when it has been told so.
func (m *StateMachine) Deferred() (since time.Time, deferred bool) {
	if m.rz == nil || m.rz.refusal == nil || m.rz.refusal.infeasible || m.life != Active {
		return time.Time{}, false
	}
	return goTime(condition(m.pod.GetStatus(), resources.ResizePending).GetLastTransitionTime()), true
}

// Restore tells a new machine, before its first step, what the pod was granted by an agent that ran before: the
// resources in kept, by the names of the containers, which the generation of kept asked for.
func (m *StateMachine) Restore(kept *corev1.Pod) {
	if m.life == Admitting {
		return
	}
	before := m.Granted()
	m.regrant(withResources(m.pod, func(c *corev1.Container) *corev1.ResourceRequirements {
		for _, list := range [...][]*corev1.Container{kept.GetSpec().GetInitContainers(), kept.GetSpec().GetContainers()} {
			for _, k := range list {
				if k.GetName() == c.GetName() {
					return k.GetResources()
				}
			}
		}
		return c.GetResources()
	}, kept.GetSpec().GetResources()))
	if m.untold(kept.GetMetadata().GetGeneration()) {
		m.ensureResize()
		m.begin()
	}
	if m.rz != nil && !m.rz.group && (m.rz.progress != nil || !sameResources(before, m.rz.granted)) {
		m.rz.group, m.rz.whole = true, before.GetSpec().GetResources()
	}
	m.recallGiven(m.known())
}

// untold reports whether the API may not know of a grant of what a generation asks for: then it does not know either
// what was done about it.
func (m *StateMachine) untold(generation int64) bool {
	status := m.pod.GetStatus()
	pending := condition(status, resources.ResizePending)
	return generation > status.GetObservedGeneration() ||
		pending != nil && pending.GetObservedGeneration() <= generation
}

// resized takes in that the object was replaced: what it was granted stays, whatever its spec asks for now.
func (m *StateMachine) resized(was *corev1.Pod) {
	if m.life == Admitting && !m.admit.busy || m.vanished {
		return // it is admitted with what it asks for by then
	}
	if m.rz == nil && sameResources(was, m.pod) {
		return
	}
	from := was
	if m.rz != nil {
		from = m.rz.granted
	}
	if was.GetMetadata().GetGeneration() != m.pod.GetMetadata().GetGeneration() && m.rz != nil {
		m.rz.ask.until, m.rz.again = nil, true
	}
	m.regrant(m.carry(from))
}

// regrant makes p, which differs from the pod in resources only, what is granted.
func (m *StateMachine) regrant(p *corev1.Pod) {
	same := sameResources(p, m.pod)
	if same {
		p = m.pod
	}
	if m.rz == nil {
		if same {
			return
		}
		m.rz = &resize{}
	}
	m.rz.granted = p
	if same {
		m.rz.refusal, m.rz.again = nil, false
	}
}

// carry returns the newest object with the resources of an earlier one.
func (m *StateMachine) carry(from *corev1.Pod) *corev1.Pod {
	i := -1
	return withResources(m.pod, func(*corev1.Container) *corev1.ResourceRequirements {
		i++
		return ContainerAt(from, i).GetResources()
	}, from.GetSpec().GetResources())
}

// planGrant asks for what the spec asks for and is not granted.
func (m *StateMachine) planGrant() {
	rz := m.rz
	if rz == nil || rz.granted == m.pod {
		return
	}
	if r := rz.refusal; r != nil && r.infeasible && r.generation == m.pod.GetMetadata().GetGeneration() && rz.serial > 0 {
		return // an agent that comes back may know better
	}
	if m.may(&rz.ask) {
		rz.ask.busy, rz.again = true, false
		rz.serial++
		m.do(AskResize{Serial: rz.serial, Pod: m.pod})
	}
}

// resizeDecided takes in what the node has decided.
func (m *StateMachine) resizeDecided(in ResizeDecided) {
	rz := m.rz
	if rz == nil || !rz.ask.busy || in.Serial != rz.serial {
		return
	}
	rz.ask.busy = false
	switch {
	case in.Granted:
		rz.ask.done()
		m.grant(in.Pod)
		return
	case in.Undecided:
		rz.ask.failed(m.now, m.host.Policy.APIDelay, m.host.Policy.APIDelayMax)
		return
	}
	rz.ask.done()
	if rz.granted == m.pod {
		return // it was taken back meanwhile
	}
	if !rz.again {
		rz.ask.wait(m.now.Add(resizeRetry))
	}
	was, generation := rz.refusal, in.Pod.GetMetadata().GetGeneration()
	rz.refusal = &refusal{infeasible: in.Infeasible, message: in.Message, generation: generation}
	if was != nil && was.infeasible == in.Infeasible && was.generation == generation {
		return
	}
	reason := "ResizeDeferred"
	if in.Infeasible {
		reason = "ResizeInfeasible"
	}
	m.do(Note{Warning: true, Reason: reason,
		Message: "Pod resize " + in.Reason + ": " + summaryOf(in.Pod, generation, in.Message)})
}

// grant gives the pod what p asks for.
func (m *StateMachine) grant(p *corev1.Pod) {
	rz := m.rz
	before := rz.granted
	m.regrant(m.carry(p))
	generation := p.GetMetadata().GetGeneration()
	for i := range m.resizable() {
		c := &m.containers[i]
		if c.State != None && c.given == nil {
			c.given = givenOf(before, i)
		}
	}
	if m.starting >= 0 && rz.started == nil {
		rz.started = givenOf(before, m.starting)
	}
	if !rz.group {
		rz.group, rz.whole = true, before.GetSpec().GetResources()
	}
	rz.refusal, rz.progress = nil, &progress{generation: generation}
	rz.act.until, rz.act.failures = nil, 0
	m.do(Note{Reason: "ResizeStarted", Message: "Pod resize started: " + summaryOf(rz.granted, generation, "")})
}

// resizable is the number of containers whose amounts can change: all but ephemeral ones.
func (m *StateMachine) resizable() int { return len(m.containers) - len(m.ephemerals) }

// planActuation brings about what was granted.
func (m *StateMachine) planActuation() {
	rz := m.rz
	if rz == nil {
		return
	}
	var targets []Target
	ending, restarts := false, false // some are being ended; some are yet to run again
	for i := range m.resizable() {
		c := &m.containers[i]
		if c.given != nil && !c.given.unsure && c.given.is(rz.granted, i) {
			c.given = nil
		}
		if c.given != nil && c.State == Running && m.restartsToResize(i) {
			c.outgrown = c.Attempt + 1
		}
		switch {
		case m.outgrew(i):
			ending, restarts = ending || c.State == Running, restarts || c.State == Running || m.restarts(i)
		case c.given != nil && c.State == Running:
			targets = append(targets, Target{Index: i, ID: c.ID})
		}
	}
	switch {
	case ending || rz.act.busy: // what makes room first is not known before they have ended
	case len(targets) > 0 || rz.group:
		m.actuate(targets)
	case rz.progress != nil && !restarts && rz.started == nil:
		m.do(Note{Reason: "ResizeCompleted",
			Message: "Pod resize completed: " + summaryOf(rz.granted, rz.progress.generation, "")})
		rz.progress = nil
	}
	if !rz.recheck.IsZero() && rz.progress == nil {
		m.due(rz.recheck)
		if !m.now.Before(rz.recheck) {
			m.observeAgain, rz.recheck = true, time.Time{}
		}
	}
	if rz.granted == m.pod && rz.recheck.IsZero() && !rz.group && !rz.act.busy && !rz.ask.busy &&
		rz.progress == nil && m.starting < 0 && len(targets) == 0 {
		m.rz = nil
	}
}

// actuate has amounts changed. Whatever comes of it, what it is about is uncertain until it is answered.
func (m *StateMachine) actuate(targets []Target) {
	rz := m.rz
	if !m.may(&rz.act) {
		return
	}
	from := m.inForce()
	for _, t := range targets {
		g := *m.containers[t.Index].given
		g.unsure = true
		m.containers[t.Index].given = &g
	}
	rz.act.busy, rz.to = true, rz.granted
	rz.acts++
	m.begin()
	m.do(Actuate{Serial: rz.acts, From: from, To: rz.to, Targets: targets, Group: rz.group})
}

// actuated takes in what came of an order.
func (m *StateMachine) actuated(in Actuated) {
	rz := m.rz
	if rz == nil || !rz.act.busy || in.Serial != rz.acts {
		return
	}
	rz.act.busy = false
	for i := range m.resizable() {
		c := &m.containers[i]
		if has, done := in.Done[c.ID]; done && c.given != nil {
			c.given, c.settled = givenOf(rz.to, i), has
		}
	}
	if in.Group {
		rz.whole = rz.to.GetSpec().GetResources()
		rz.group = !sameResources(rz.to, rz.granted)
	}
	rz.to = nil
	if in.Err == "" {
		rz.act.done()
		if rz.progress != nil {
			rz.progress.failure = ""
		}
		return
	}
	rz.act.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
	rz.recheck = m.now.Add(resizeRetry)
	p := rz.progress
	if p == nil {
		return
	}
	if p.failure == "" { // once: what is wrong may be worded with a number that changes
		m.do(Note{Warning: true, Reason: "ResizeError",
			Message: "Pod resize error: " + summaryOf(rz.granted, p.generation, in.Err)})
	}
	p.failure = in.Err
}

// reconsider asks again for what was deferred.
func (m *StateMachine) reconsider() {
	if m.rz != nil {
		m.rz.ask.until, m.rz.again = nil, true
	}
}

// freshen takes in that container i has a new instance. What it was started with is known if it is the one that was
// being started, or if its hash says that it is what is granted.
func (m *StateMachine) freshen(i int) {
	c := &m.containers[i]
	c.given, c.settled, c.outgrown = nil, nil, 0
	switch {
	case i >= m.resizable():
	case i == m.starting && m.rz != nil:
		m.has(i, m.rz.started)
	case i != m.starting:
		m.suspect(i)
	}
}

// has takes in which amounts container i has; nil for those that are granted.
func (m *StateMachine) has(i int, g *given) {
	m.containers[i].given = g
	if g != nil && !g.is(m.rz.granted, i) {
		m.begin()
	}
}

// suspect takes the amounts of container i for uncertain if its instance was not started with those that are granted,
// or may have been given others since.
func (m *StateMachine) suspect(i int) {
	c := &m.containers[i]
	if m.rz != nil && m.rz.progress != nil || strings.Contains(c.Hash, hashDash) && c.Hash != HashAt(m.Granted(), i) {
		c.given = givenOf(m.ensureResize().granted, i)
		c.given.unsure = true
		m.begin()
	}
}

// compare takes the amounts of a container for uncertain when the runtime shows others than it did when they were set.
// What it shows while they are being changed may be from before or after.
func (m *StateMachine) compare(c *container, shows *Settings) {
	i := m.index(c.Name)
	if shows == nil || c.settled == nil || *shows == *c.settled || c.State != Running || i < 0 ||
		c != &m.containers[i] || m.rz != nil && m.rz.act.busy {
		return
	}
	c.settled = nil
	c.given = givenOf(m.ensureResize().granted, i)
	c.given.unsure = true
	m.begin()
}

// outgrew reports whether the newest instance of container i is ended to run again with other amounts.
func (m *StateMachine) outgrew(i int) bool {
	c := &m.containers[i]
	return c.State != None && c.outgrown == c.Attempt+1
}

// restartsToResize reports whether container i has to be restarted to get what is granted: its policy for one of the
// resources that change says so. Plain init containers are never restarted.
func (m *StateMachine) restartsToResize(i int) bool {
	c, spec := &m.containers[i], ContainerAt(m.rz.granted, i)
	if m.kind(i) == initial || len(spec.GetResizePolicy()) == 0 {
		return false
	}
	now := givenOf(m.rz.granted, i)
	for _, p := range spec.GetResizePolicy() {
		name := p.GetResourceName()
		if p.GetRestartPolicy() == "RestartContainer" &&
			(c.given.own.GetRequests()[name].GetString_() != now.own.GetRequests()[name].GetString_() ||
				c.given.limit(name) != now.limit(name)) {
			return true
		}
	}
	return false
}

// limit returns the limit that holds for a container: its own, or the pod's.
func (g *given) limit(name string) string {
	if q := g.own.GetLimits()[name]; q != nil {
		return q.GetString_()
	}
	return g.whole.GetLimits()[name].GetString_()
}

// givenOf returns what container i of a pod has.
func givenOf(p *corev1.Pod, i int) *given {
	return &given{own: ContainerAt(p, i).GetResources(), whole: p.GetSpec().GetResources()}
}

// is reports whether that is what container i of a pod is to have.
func (g *given) is(p *corev1.Pod, i int) bool {
	return sameAmounts(g.own, ContainerAt(p, i).GetResources()) && sameAmounts(g.whole, p.GetSpec().GetResources())
}

// inForce returns the pod with the amounts that its containers, and it as a whole, have as far as that is known.
func (m *StateMachine) inForce() *corev1.Pod {
	whole := m.rz.granted.GetSpec().GetResources()
	if m.rz.group {
		whole = m.rz.whole
	}
	i := -1
	return withResources(m.rz.granted, func(c *corev1.Container) *corev1.ResourceRequirements {
		if i++; m.containers[i].given != nil {
			return m.containers[i].given.own
		}
		return c.GetResources()
	}, whole)
}

// stateResources puts into the status of container i what it was granted and what it has. spec: LIFE-9
func (m *StateMachine) stateResources(s *corev1.ContainerStatus, i int) {
	c := &m.containers[i]
	if c.State == None || i >= m.resizable() {
		return
	}
	has := ContainerAt(m.Granted(), i).GetResources()
	s.AllocatedResources = has.GetRequests()
	if c.State == Running && c.given != nil {
		has = c.given.own
	}
	if has == nil {
		has = &corev1.ResourceRequirements{} // it is said that this is known
	}
	s.Resources = has
}

// stateWhole puts into the status what the pod as a whole was granted and has, if it asks for something.
func (m *StateMachine) stateWhole(s *corev1.PodStatus) {
	granted := m.Granted()
	has := granted.GetSpec().GetResources()
	if m.rz != nil && m.rz.group {
		has = m.rz.whole
	}
	if has == nil && granted.GetSpec().GetResources() == nil {
		return
	}
	s.Resources, s.AllocatedResources = has, resources.Requests(granted.GetSpec()).Map()
}

// resizeConditions says in s what is refused, and what is under way. A pod that has ended is not resized.
func (m *StateMachine) resizeConditions(s *corev1.PodStatus, over bool) {
	pending, working := "", ""
	if rz := m.rz; rz != nil && !over {
		if r := rz.refusal; r != nil {
			pending = resources.ResizePending
			reason := resources.Deferred
			if r.infeasible {
				reason = resources.Infeasible
			}
			m.setConditionAt(s, pending, "True", reason, r.message, r.generation)
		}
		if p := rz.progress; p != nil {
			working = resources.ResizeInProgress
			reason := ""
			if p.failure != "" {
				reason = resources.ResizeError
			}
			m.setConditionAt(s, working, "True", reason, p.failure, p.generation)
		}
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c *corev1.PodCondition) bool {
		kind := c.GetType()
		return kind == resources.ResizePending && pending == "" || kind == resources.ResizeInProgress && working == ""
	})
}

// recallResources goes on, after a restart of the agent, with what the API knows of grants and of what is in force.
// Known are the statuses of the containers by name.
func (m *StateMachine) recallResources(known map[string]*corev1.ContainerStatus) {
	m.rz = nil // what was suspected before anything was recalled
	if m.pod.GetStatus().GetStartTime() == nil {
		return
	}
	status := m.pod.GetStatus()
	whole := m.pod.GetSpec().GetResources()
	if has := status.GetResources(); has != nil {
		whole = has
	}
	m.regrant(withResources(m.pod, func(c *corev1.Container) *corev1.ResourceRequirements {
		s := known[c.GetName()]
		if s.GetResources() == nil {
			return c.GetResources()
		}
		return &corev1.ResourceRequirements{
			Requests: s.GetAllocatedResources(), Limits: s.GetResources().GetLimits(), Claims: c.GetResources().GetClaims(),
		}
	}, whole))
	if c := condition(status, resources.ResizeInProgress); c != nil {
		m.ensureResize().progress = &progress{generation: c.GetObservedGeneration()}
		if c.GetReason() == resources.ResizeError {
			m.rz.progress.failure = c.GetMessage()
		}
		m.rz.group, m.rz.whole = true, whole
	}
	if c := condition(status, resources.ResizePending); c != nil && m.rz != nil && m.rz.granted != m.pod {
		m.rz.refusal = &refusal{infeasible: c.GetReason() == resources.Infeasible, message: c.GetMessage(),
			generation: c.GetObservedGeneration()}
	}
}

// recallGiven notes, once it is known what the pod was granted, what its containers have, and which of them were ended
// to run again.
func (m *StateMachine) recallGiven(known map[string]*corev1.ContainerStatus) {
	for i := range m.resizable() {
		c := &m.containers[i]
		s := known[m.spec(i).GetName()]
		c.given = nil
		switch {
		case c.State == None:
			continue
		case s.GetResources() == nil || s.GetContainerID() != m.fullID(c.ID):
			m.suspect(i) // the API does not know of it yet
			continue
		case m.rz == nil || s.GetState().GetTerminated() != nil:
			continue
		}
		m.has(i, &given{own: s.GetResources(), whole: m.rz.granted.GetSpec().GetResources(),
			unsure: m.rz.progress != nil})
		if c.State == Exited && m.rz.progress != nil && m.restartsToResize(i) {
			c.outgrown = c.Attempt + 1
		}
	}
}

// begin says that what is granted is not in force, unless that is said already.
func (m *StateMachine) begin() {
	if m.rz.progress == nil {
		m.rz.progress = &progress{generation: m.pod.GetMetadata().GetGeneration()}
	}
}

func (m *StateMachine) ensureResize() *resize {
	if m.rz == nil {
		m.rz = &resize{granted: m.pod}
	}
	return m.rz
}

// withResources returns p with other resources of its containers, for which of is called in order, and of its own.
func withResources(
	p *corev1.Pod, of func(*corev1.Container) *corev1.ResourceRequirements, whole *corev1.ResourceRequirements,
) *corev1.Pod {
	change := func(list []*corev1.Container) []*corev1.Container {
		out := make([]*corev1.Container, len(list))
		for i, c := range list {
			out[i] = c.Shallow()
			out[i].Resources = of(c)
		}
		return out
	}
	spec := p.GetSpec().Shallow()
	if spec == nil {
		return p
	}
	spec.InitContainers = change(spec.InitContainers)
	spec.Containers = change(spec.Containers)
	spec.Resources = whole
	return &corev1.Pod{Metadata: p.GetMetadata(), Spec: spec, Status: p.GetStatus()}
}

// sameResources reports whether two states of a pod ask for the same.
func sameResources(a, b *corev1.Pod) bool {
	x, y := a.GetSpec(), b.GetSpec()
	same := func(a, b *corev1.Container) bool { return sameAmounts(a.GetResources(), b.GetResources()) }
	return slices.EqualFunc(x.GetContainers(), y.GetContainers(), same) &&
		slices.EqualFunc(x.GetInitContainers(), y.GetInitContainers(), same) &&
		sameAmounts(x.GetResources(), y.GetResources())
}

func sameAmounts(a, b *corev1.ResourceRequirements) bool {
	return a == b || sameList(a.GetRequests(), b.GetRequests()) && sameList(a.GetLimits(), b.GetLimits())
}

// sameList compares amounts, which the server keeps in their canonical form.
func sameList(a, b map[string]*metav1.Quantity) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if o := b[name]; o == nil || o.GetString_() != q.GetString_() {
			return false
		}
	}
	return true
}

// summaryOf words for an event what a pod asks for, as kubelets do.
func summaryOf(p *corev1.Pod, generation int64, failure string) string {
	type container struct {
		Name      string          `json:"name"`
		Resources json.RawMessage `json:"resources"`
	}
	list := func(all []*corev1.Container) []container {
		var out []container
		for _, c := range all {
			r := c.GetResources()
			if r == nil {
				r = &corev1.ResourceRequirements{}
			}
			out = append(out, container{c.GetName(), r.AppendJSON(nil)})
		}
		return out
	}
	text, err := json.Marshal(struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{list(p.GetSpec().GetInitContainers()), list(p.GetSpec().GetContainers()), generation, failure})
	if err != nil {
		return failure // never: all of it is text
	}
	return string(text)
}
