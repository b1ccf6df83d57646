package podstate

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/initcontainer"
)

// container is what is known of one container of the pod: its newest instance, and how starts and stops fare.
type container struct {
	// Instance is the newest one; its State is None before the first start.
	Instance
	// last is the newest dead instance before it, nil for none; lastRemoved says that its container is not kept.
	last        *Instance
	lastRemoved bool
	// floor is the attempt number of the next start when there is no instance, carried the back-off that goes with it.
	floor   uint32
	carried time.Duration

	// doubts counts the looks in a row that showed the container running although it has ended.
	doubts int
	// noted is 1 + the attempt whose back-off was told to the user; 0 for none.
	noted uint32
	// told is 1 + the attempt whose end was written to the API; 0 for none.
	told uint32

	// care is for what the instance has besides a process, nil for nothing.
	care *care

	// given are the amounts of resources that the instance has, nil when they are those that are granted.
	given *given
	// settled is what the runtime said after they were changed last, nil for nothing.
	settled *Settings
	// outgrown is 1 + the attempt that is ended to run again with other amounts; 0 for none.
	outgrown uint32

	// start spaces out failing starts; waiting says why the last one failed.
	start            retry
	waiting, message string

	// stop spaces out failing stops; stops counts those in flight.
	stop  retry
	stops int
	// termAt is when the first stop in flight was asked for, killAt when the shortest of them ends.
	// Invariant: both zero when stops is 0; killAt only moves earlier while stops are in flight.
	termAt, killAt time.Time
}

// remains is a dead container that is no longer needed.
type remains struct {
	id      string
	index   int
	attempt uint32
	// unstarted: it may start until it is removed.
	unstarted bool
}

// kind tells init containers, sidecars, ephemeral containers and the others, which are the app's, apart.
type kind uint8

const (
	app kind = iota
	initial
	sidecar
	ephemeral
)

func (m *StateMachine) kind(i int) kind {
	if i >= len(m.containers)-len(m.ephemerals) {
		return ephemeral
	}
	if i >= len(m.pod.GetSpec().GetInitContainers()) {
		return app
	}
	if initcontainer.IsSidecar(m.spec(i)) {
		return sidecar
	}
	return initial
}

// Hash tells definitions of a container apart that need a new instance: it changes with the image only
// (spec OBJ-10: nothing else of a container can change but its resources).
func Hash(c *corev1.Container) string { return hashOf([]byte(c.GetName() + "\x00" + c.GetImage())) }

// HashAt returns the Hash of the container at a place and, behind a dash, what tells the resources apart that an
// instance is started with.
func HashAt(p *corev1.Pod, i int) string {
	c := ContainerAt(p, i)
	text := append(c.GetResources().AppendJSON(nil), 0)
	return Hash(c) + hashDash + hashOf(p.GetSpec().GetResources().AppendJSON(text))
}

const hashDash = "-"

func hashOf(text []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(text)
	return strconv.FormatUint(h.Sum64(), 16)
}

// changed reports whether the definition is no longer that of the instance, or the instance is to be replaced by one
// with other resources.
func (m *StateMachine) changed(i int) bool {
	c := &m.containers[i]
	hash, _, _ := strings.Cut(c.Hash, hashDash)
	return m.outgrew(i) || c.State != None && hash != "" && m.kind(i) != initial && hash != Hash(m.spec(i))
}

// restarts reports whether container i, which has exited, is to run again, back-off aside: by policy, or with a new
// definition. That does not bring back a container which the API knows to have ended and which stays ended by policy:
// the server would refuse to hear of it ever after. spec: CTR-2, INIT-1, INIT-4
func (m *StateMachine) restarts(i int) bool {
	c, spec := &m.containers[i], m.spec(i)
	if m.kind(i) == ephemeral {
		return false // INIT-6
	}
	if (m.changed(i) || m.ailed(i)) && !m.told(i) {
		return true
	}
	switch rule(spec.GetRestartPolicyRules(), c.ExitCode) {
	case "Restart", restartAll:
		return true
	}
	switch m.policy(i) {
	case "Never":
		return false
	case "OnFailure":
		return c.ExitCode != 0
	default:
		// An init container that has succeeded is done; Always means OnFailure for it.
		return m.kind(i) != initial || c.ExitCode != 0
	}
}

// policy returns the restart policy that holds for container i: its own, or the pod's. spec: CTR-2
func (m *StateMachine) policy(i int) string {
	if spec := m.spec(i); spec.RestartPolicy != nil {
		return spec.GetRestartPolicy()
	}
	return m.pod.GetSpec().GetRestartPolicy()
}

// told reports whether the API knows, or may know, that the instance has ended.
func (m *StateMachine) told(i int) bool {
	c := &m.containers[i]
	return c.told == c.Attempt+1 || m.saysEnded(m.pod.GetStatus(), i)
}

// saysEnded reports whether a status says that the instance of container i has ended.
func (m *StateMachine) saysEnded(s *corev1.PodStatus, i int) bool {
	id, name := m.fullID(m.containers[i].ID), m.spec(i).GetName()
	for _, list := range [...][]*corev1.ContainerStatus{s.GetInitContainerStatuses(), s.GetContainerStatuses()} {
		for _, known := range list {
			if known.GetName() == name {
				return known.GetState().GetTerminated() != nil && known.GetContainerID() == id
			}
		}
	}
	return false
}

// rule returns the action of the first rule that the exit code matches.
func rule(rules []*corev1.ContainerRestartRule, code int32) string {
	for _, r := range rules {
		listed := false
		for _, v := range r.GetExitCodes().GetValues() {
			listed = listed || v == code
		}
		switch op := r.GetExitCodes().GetOperator(); {
		case op == "In" && listed, op == "NotIn" && !listed:
			return r.GetAction()
		}
	}
	return ""
}

// backoff returns the delay that an exited instance leaves: none when the node ended it. spec: CTR-3
func (m *StateMachine) backoff(i int) time.Duration {
	if m.containers[i].Ordered {
		return 0
	}
	return m.earned(i)
}

// earned returns the delay that the runs of an instance and its predecessors have led to: none after the first run,
// after a run of more than RestartReset, or when the definition has changed. spec: CTR-3
func (m *StateMachine) earned(i int) time.Duration {
	c := &m.containers[i]
	if c.State != Exited || m.changed(i) || c.FinishedAt.Sub(c.StartedAt) > m.host.Policy.RestartReset &&
		!c.StartedAt.IsZero() {
		return 0
	}
	return c.Delay
}

// backoffEnd returns when container i may run again.
func (m *StateMachine) backoffEnd(i int) time.Time {
	return m.containers[i].FinishedAt.Add(m.backoff(i))
}

// nextDelay returns the delay that goes with the next instance of container i.
func (m *StateMachine) nextDelay(i int) time.Duration {
	p := &m.host.Policy
	switch c := &m.containers[i]; {
	case c.State != Exited:
		return c.carried
	case c.Ordered:
		return m.earned(i) // it does not count
	}
	if d := m.backoff(i); d > 0 {
		return min(2*d, p.RestartDelayMax)
	}
	return p.RestartDelay
}

// nextAttempt returns the attempt number of the next instance.
func (c *container) nextAttempt() uint32 {
	if c.State == None {
		return c.floor
	}
	return c.Attempt + 1
}

// finished reports whether no container is to run or run again. spec: LIFE-1
func (m *StateMachine) finished() bool {
	if len(m.containers) == 0 || m.resetting {
		return false
	}
	for i := range m.containers {
		c := &m.containers[i]
		switch m.kind(i) {
		case initial:
			if !m.initialized && c.State == Exited && c.ExitCode != 0 && m.here(c) && !m.restarts(i) {
				return true // INIT-1: the pod fails
			}
		case app:
			if c.State != Exited || m.restarts(i) {
				return false
			}
		case sidecar: // INIT-4: does not keep the pod from completing
		}
	}
	return true
}

// here reports whether the instance is in the pod's current sandbox.
func (m *StateMachine) here(c *container) bool {
	s := m.sandbox()
	return s == nil || c.SandboxID == "" || c.SandboxID == s.ID
}
