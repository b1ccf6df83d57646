package podstate

import (
	"strconv"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/phase"
)

// Life says how far a pod has come on this node. It only grows.
type Life uint8

// The lives of a pod; the package comment draws them.
const (
	Admitting Life = iota
	Active
	Stopping
	Stopped
	Removing
	Gone
)

// String returns the life's name.
func (l Life) String() string {
	return [...]string{"admitting", "active", "stopping", "stopped", "removing", "gone"}[l]
}

// StateMachine is the state of one pod on this node. It is not safe for concurrent use. Use New.
type StateMachine struct {
	host *Host
	// pod is the newest API object that was seen. Invariant: its uid never changes; it is never written.
	pod *corev1.Pod

	now  time.Time // of the current step
	out  []Action  // of the current step
	next time.Time // the earliest time at which something is due, zero for none
	wake time.Time // what the last Wake asked for

	// Invariant: life never decreases.
	life Life
	// vanished: a live read said that the object is gone, so nothing is written any more.
	vanished bool
	// nodeStops: the node is to be empty; the object stays.
	nodeStops bool
	// done: no container is to run again by policy. It stays so, whatever changes in the spec.
	done bool
	// end, when its reason is set, says why the pod fails whatever its exit codes.
	end ending
	// refused: the pod was not admitted, so nothing of it ever ran here.
	refused bool
	// began is when the pod was admitted, as status.startTime says once it is written; zero before.
	began time.Time

	sandboxes  []box       // by attempt; the last one is the pod's
	containers []container // init containers, containers, ephemeral containers, as in the spec
	// ephemerals are the definitions of the last ones of these.
	ephemerals []*corev1.Container
	// strays are containers that are nobody's newest instance; see there.
	strays []stray
	dead   []remains

	// starting is the container that is being started, -1 for none.
	starting int
	// delay is the back-off that goes with the container being started.
	delay time.Duration
	// startCancelled: CancelStart was said for what is being started.
	startCancelled bool
	// renewed: the content that the pod refers to has changed since a sandbox or container was last asked for.
	renewed bool
	// resetting: all containers are being restarted.
	resetting bool
	// again: the pod had initialized before its init containers ran again in the same sandbox.
	again bool
	// rz is nil unless the pod asks for other resources than it has.
	rz *resize
	// initialized: every init container has done its part in the current sandbox (INIT-7: it stays so).
	initialized bool

	// confirmed: a full observation showed that nothing runs, and nothing was started since.
	confirmed bool
	// observeWhole: no start was in flight since the Observe in flight was asked for.
	observeWhole bool
	// observeAgain: something may have changed; observe when possible. observeLater: so when nothing is being started.
	observeAgain, observeLater bool
	// stop is the stop under way, nil while nothing is being stopped.
	stop *ongoing

	removed, erased bool // Remove and DeletePod have succeeded
	// left is why Remove has failed, once that is no accident any more.
	left   string
	absent bool // the object seems to be gone, or is stale; look it up
	dirty  time.Time

	admit, run, stopBox, observe, bury, remove, write, look, erase retry
}

// ending is a reason to fail.
type ending struct {
	reason, message string
	grace           time.Duration // limit of the grace period, negative for none
	disruption      string        // message of the condition DisruptionTarget, empty for none
}

// New returns the machine of a pod that is bound to this node, given all that the runtime shows of it.
// The first input should be Start.
func New(host *Host, pod *corev1.Pod, seen Observation, now time.Time) *StateMachine {
	spec := pod.GetSpec()
	m := &StateMachine{
		host: host, pod: pod, now: now, starting: -1,
		containers:  make([]container, len(spec.GetInitContainers())+len(spec.GetContainers())),
		initialized: len(spec.GetInitContainers()) == 0,
		end:         ending{grace: -1},
	}
	m.meetEphemeral()
	m.see(seen, true)
	known := m.recall()
	if t := pod.GetStatus().GetStartTime(); t != nil {
		m.life, m.began = Active, m.anchor(goTime(t)) // it was admitted before the agent restarted
	} else if len(seen.Sandboxes)+len(seen.Instances) > 0 {
		m.life, m.began = Active, now // before the agent could say so
	}
	m.recallGiven(known)
	return m
}

// Life returns how far the pod has come.
func (m *StateMachine) Life() Life { return m.life }

// Pod returns the newest API object. It must not be changed.
func (m *StateMachine) Pod() *corev1.Pod { return m.pod }

// Vanished reports whether the object is known to be gone although the agent did not delete it.
func (m *StateMachine) Vanished() bool { return m.vanished }

// Empty reports whether nothing of the pod runs here and nothing is about to.
func (m *StateMachine) Empty() bool { return m.life >= Stopped }

// Unwritten reports whether the API has yet to learn something of the pod's status.
func (m *StateMachine) Unwritten() bool { return m.write.busy || !m.dirty.IsZero() }

// Instance returns the newest instance of the named container and the one before it. ok is false when the
// container was never started.
func (m *StateMachine) Instance(name string) (newest Instance, before *Instance, ok bool) {
	for i := range m.containers {
		if m.spec(i).GetName() == name {
			c := &m.containers[i]
			return c.Instance, c.last, c.State != None
		}
	}
	return Instance{}, nil, false
}

// Restarting reports whether the named container has ended and waits to run again.
func (m *StateMachine) Restarting(name string) bool {
	i := m.index(name)
	return i >= 0 && m.containers[i].State == Exited && m.waiting(i) != nil
}

// Waiting returns why the named container has not been started yet, in the word that the status has for it; empty when
// it has been, or never will be.
func (m *StateMachine) Waiting(name string) string {
	i := m.index(name)
	if i < 0 || m.containers[i].State != None || m.ends() {
		return ""
	}
	return m.waiting(i).GetReason()
}

// EachInstance calls f with the newest instance of every container that was started.
func (m *StateMachine) EachInstance(f func(Instance)) {
	for i := range m.containers {
		if c := &m.containers[i]; c.State != None {
			f(c.Instance)
		}
	}
}

// Step takes a fact and returns what to do, in order. Time must not go back between steps.
func (m *StateMachine) Step(now time.Time, in Input) []Action {
	m.now, m.out, m.next = now, nil, time.Time{}
	if m.life == Gone {
		return nil
	}
	m.absorb(in)
	for {
		before := m.life
		m.tend()
		m.judge()
		m.plan()
		if m.life == before {
			break
		}
	}
	if m.life == Active || m.life == Stopping {
		m.planProbes()
	}
	if m.life != Gone {
		m.watchStop()
		m.lookUp()
		m.report()
	}
	if !m.next.Equal(m.wake) {
		m.wake = m.next
		m.do(Wake{At: m.next})
	}
	out := m.out
	m.out = nil
	return out
}

func (m *StateMachine) do(a Action) { m.out = append(m.out, a) }

// due notes that something is to be done at t.
func (m *StateMachine) due(t time.Time) {
	if m.next.IsZero() || t.Before(m.next) {
		m.next = t
	}
}

// may reports whether an action may be asked for now, and sees to it that a later time is not missed.
func (m *StateMachine) may(r *retry) bool {
	if !r.busy && r.waits(m.now) {
		m.due(*r.until)
	}
	return r.ready(m.now)
}

// advance moves life on; it never moves back.
func (m *StateMachine) advance(l Life) {
	if l > m.life {
		m.life = l
	}
}

// judge looks for reasons to stop the pod.
func (m *StateMachine) judge() {
	m.done = m.done || m.finished()
	if m.life >= Stopping {
		return
	}
	if at, ok := m.deadline(); ok {
		if !m.now.Before(at) {
			m.end = ending{
				reason: "DeadlineExceeded", grace: -1,
				message: "Pod was active on the node longer than the specified deadline",
			}
			m.do(Note{Reason: "DeadlineExceeded", Message: m.end.message})
		} else {
			m.due(at)
		}
	}
	if m.vanished || m.nodeStops || m.final() {
		m.advance(Stopping)
	}
}

// final reports whether the pod is to reach a terminal phase: it never runs again.
func (m *StateMachine) final() bool {
	return m.deleting() || m.end.reason != "" || phase.Terminal(m.pod) || m.done
}

// deadline returns when activeDeadlineSeconds ends. spec: LIFE-6
func (m *StateMachine) deadline() (time.Time, bool) {
	s := m.pod.GetSpec()
	if s == nil || s.ActiveDeadlineSeconds == nil || m.began.IsZero() || m.life == Admitting {
		return time.Time{}, false
	}
	return m.began.Add(time.Duration(s.GetActiveDeadlineSeconds()) * time.Second), true
}

func (m *StateMachine) deleting() bool { return m.pod.GetMetadata().GetDeletionTimestamp() != nil }

// plan asks for what the current life needs.
func (m *StateMachine) plan() {
	switch m.life {
	case Admitting:
		if m.may(&m.admit) {
			m.admit.busy, m.rz = true, nil // it is admitted with what it asks for now
			m.do(Admit{})
		}
	case Active:
		m.planActive()
	case Stopping:
		if m.halt() {
			m.advance(Stopped)
		}
	case Stopped:
		m.planStopped()
	case Removing:
		m.planRemoving()
	case Gone:
	}
}

// newer reports whether b is a later revision than a. Revisions are those of the store: numbers that grow.
// One that cannot be read counts as newer.
func newer(a, b *corev1.Pod) bool {
	x, errX := strconv.ParseUint(a.GetMetadata().GetResourceVersion(), 10, 64)
	y, errY := strconv.ParseUint(b.GetMetadata().GetResourceVersion(), 10, 64)
	return errX != nil || errY != nil || y > x
}

// spec returns the definition of container i.
func (m *StateMachine) spec(i int) *corev1.Container {
	if e := i - (len(m.containers) - len(m.ephemerals)); e >= 0 {
		return m.ephemerals[e]
	}
	return ContainerAt(m.pod, i)
}

// index returns the place of the named container, -1 when the spec has none.
func (m *StateMachine) index(name string) int {
	for i := range m.containers {
		if m.spec(i).GetName() == name {
			return i
		}
	}
	return -1
}

// NewVanished returns the machine of something that runs here for a pod that the API, read live, does not have
// on this node. It stops what was seen, with the short grace of a vanished pod, removes it, and ends.
// spec: NODE-2, DEL-9
func NewVanished(host *Host, meta *metav1.ObjectMeta, seen Observation, now time.Time) *StateMachine {
	m := New(host, &corev1.Pod{Metadata: meta, Spec: &corev1.PodSpec{}, Status: &corev1.PodStatus{}}, seen, now)
	m.vanished = true
	return m
}
