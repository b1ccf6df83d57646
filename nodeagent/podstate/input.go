package podstate

import (
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// Input is a fact that a StateMachine is told.
type Input interface{ input() }

// Outcome says what became of a call to the API.
type Outcome uint8

// The outcomes.
const (
	// OK means done.
	OK Outcome = iota
	// Failed means that nothing is known to have happened; it is tried again.
	Failed
	// Conflict means that the object has changed meanwhile; it is read again.
	Conflict
	// Missing means that the object, or this uid of it, does not exist. Only a linearizable read or the
	// answer to a write may say so.
	Missing
)

// Start has nothing new to say; it makes a new StateMachine begin.
type Start struct{}

// Tick says that the time of the last Wake has come.
type Tick struct{}

// Changed brings the API object as it is now. An older one than the StateMachine has is ignored.
type Changed struct{ Pod *corev1.Pod }

// Absent says that a list or watch no longer shows the pod. It is believed only after a Lookup.
type Absent struct{}

// NodeStopping says that the node is to be empty: the pod's processes stop with their own grace, its object
// stays and the pod goes on when the agent starts again.
type NodeStopping struct{}

// Evict says that the node stops the pod for good; it fails with the reason and message.
type Evict struct {
	// Reason and Message go to the pod's status.
	Reason, Message string
	// Grace limits the pod's own grace period; none when negative.
	Grace time.Duration
	// Disruption is the message of the condition DisruptionTarget, which says that the pod could not help it. Empty when
	// the pod goes for its own excess. spec: DISR-4, DISR-6
	Disruption string
}

// Poke says that the runtime may show something new.
type Poke struct{}

// Observed brings what the runtime shows.
type Observed struct {
	// Seen is what was seen.
	Seen Observation
	// Asked marks the answer to an Observe action: everything of the pod is in Seen, what is missing is gone.
	Asked bool
	// Err says why an Observe failed; Seen is empty then.
	Err string
}

// Admission answers Admit. An empty reason admits the pod.
type Admission struct {
	// Reason and Message say why the pod is refused.
	Reason, Message string
	// Undecided says that the node could not be read; it is asked for again.
	Undecided bool
}

// SandboxRun answers RunSandbox.
type SandboxRun struct {
	// Sandbox is the new sandbox, when Err is empty.
	Sandbox Sandbox
	// Err says why there is none.
	Err string
	// Unmounted says that it is because the pod's volumes cannot be mounted.
	Unmounted bool
	// Invalid says that it will fail however often it is tried.
	Invalid bool
}

// ContainerRun answers StartContainer.
type ContainerRun struct {
	// Index is the container's, as in StartContainer.
	Index int
	// Instance is what the runtime shows after the call; with an error it may be empty. One that is still Created was
	// not seen to start, but may start yet, until Expiry.
	Instance Instance
	// Expiry is from when on the runtime no longer takes up the start; zero means from now on.
	Expiry time.Time
	// Reason is empty for success, or why the container waits, such as "ErrImagePull".
	Reason string
	// Message explains the reason.
	Message string
	// Image is the one that could not be had, where that is the image of a volume; empty for the container's own.
	Image string
	// Invalid says that the container cannot be created however often it is tried.
	Invalid bool
}

// ContainerStopped answers StopContainer.
type ContainerStopped struct {
	// ID is the container's.
	ID string
	// Instance is what the runtime showed afterwards; empty when it is not known.
	Instance Instance
	// Err says why it may still run.
	Err string
}

// Probed answers Probe.
type Probed struct {
	// Probe is what is answered.
	Probe
	// Result is what the attempt came to.
	Result ProbeResult
	// Message says why it did not succeed; with a success it is a warning.
	Message string
}

// HookRun answers RunHook.
type HookRun struct {
	// Index, ID and Kind are those of RunHook.
	Index int
	// ID is the instance's.
	ID string
	// Kind is the hook's.
	Kind HookKind
	// Failed says that it has not ended well.
	Failed bool
}

// SandboxStopped answers StopSandbox.
type SandboxStopped struct{ ID, Err string }

// ContainerRemoved answers RemoveContainer.
type ContainerRemoved struct{ ID, Err string }

// Removed answers Remove.
type Removed struct{ Err string }

// StatusWritten answers WriteStatus.
type StatusWritten struct {
	// Outcome is what became of it.
	Outcome Outcome
	// Pod is the object as it is now, with OK.
	Pod *corev1.Pod
}

// LookedUp answers Lookup.
type LookedUp struct {
	// Outcome is OK, Missing or Failed.
	Outcome Outcome
	// Pod is the object, with OK.
	Pod *corev1.Pod
}

// PodDeleted answers DeletePod.
type PodDeleted struct{ Outcome Outcome }

func (Start) input()            {}
func (Tick) input()             {}
func (Changed) input()          {}
func (Absent) input()           {}
func (NodeStopping) input()     {}
func (Evict) input()            {}
func (Poke) input()             {}
func (Observed) input()         {}
func (Admission) input()        {}
func (SandboxRun) input()       {}
func (ContainerRun) input()     {}
func (ContainerStopped) input() {}
func (Probed) input()           {}
func (HookRun) input()          {}
func (SandboxStopped) input()   {}
func (ContainerRemoved) input() {}
func (Removed) input()          {}
func (StatusWritten) input()    {}
func (LookedUp) input()         {}
func (PodDeleted) input()       {}
