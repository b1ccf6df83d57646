package podstate

import (
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// Action is something that a StateMachine wants done. Every action but Wake, Note, CancelStart, CancelHook and Forget
// is answered by exactly one input, and is not asked for again before that.
type Action interface{ action() }

// Admit asks whether the pod may run on this node; answered by Admission.
type Admit struct{}

// RunSandbox makes a sandbox; answered by SandboxRun.
type RunSandbox struct {
	// Attempt counts the pod's sandboxes from 0.
	Attempt uint32
}

// StartContainer pulls the image if need be, creates and starts a container; answered by ContainerRun.
type StartContainer struct {
	// Index is the container's place among the init containers, then the containers, of the spec.
	Index int
	// Attempt is how often it was started before.
	Attempt uint32
	// SandboxID is the sandbox it belongs to.
	SandboxID string
	// Delay is the back-off that is in force after this instance ends; it is kept with the instance so that
	// a restarted agent goes on with it.
	Delay time.Duration
	// TargetID is the container whose processes an ephemeral one is to see; empty for none, or one that does not run.
	TargetID string
}

// CancelStart gives up an image pull in progress. What was asked for is still answered.
type CancelStart struct{}

// StopContainer sends TERM, then KILL after Timeout, and is answered by ContainerStopped when the container
// has exited. A second one with a shorter Timeout may overlap the first.
type StopContainer struct {
	// ID is the container's, Name its name in the spec.
	ID, Name string
	// Timeout is the time from now to KILL.
	Timeout time.Duration
}

// Probe makes one attempt of a probe; answered by Probed.
type Probe struct {
	// Index is the container's place, as in StartContainer.
	Index int
	// ID is the instance's.
	ID string
	// Kind is the probe's.
	Kind ProbeKind
	// Attempt tells the attempts with one instance apart.
	Attempt uint32
	// Early: it is made before its time. It may be answered with Unknown without having been made.
	Early bool
}

// RunHook runs a hook; answered by HookRun.
type RunHook struct {
	// Index is the container's place, as in StartContainer.
	Index int
	// ID is the instance's.
	ID string
	// Kind is the hook's.
	Kind HookKind
	// Timeout is how long anybody may wait for it; 0 for as long as the instance runs.
	Timeout time.Duration
}

// CancelHook gives up the hooks of an instance. They are answered all the same.
type CancelHook struct {
	// ID is the instance's.
	ID string
}

// StopSandbox ends a sandbox and all that is left in it; answered by SandboxStopped.
type StopSandbox struct{ ID string }

// Observe asks for everything that the runtime has of the pod; answered by Observed with Asked.
type Observe struct{}

// RemoveContainer removes a dead container and its log; answered by ContainerRemoved.
type RemoveContainer struct {
	// ID is the container's.
	ID string
	// Index and Attempt tell whose log goes; Index is -1 for a container that is not in the spec.
	Index int
	// Attempt is the instance's.
	Attempt uint32
}

// Remove removes the pod's sandboxes, containers, logs and directories; answered by Removed.
type Remove struct{ Sandboxes []string }

// WriteStatus writes the status of Pod, which is a copy that the StateMachine gives away; answered by StatusWritten.
type WriteStatus struct{ Pod *corev1.Pod }

// Lookup reads the object by a linearizable read; answered by LookedUp.
type Lookup struct{}

// DeletePod deletes the object with grace 0 and its uid; answered by PodDeleted.
type DeletePod struct{}

// Wake asks for a Tick at a time; a later Wake replaces it, and a zero time takes it back.
type Wake struct{ At time.Time }

// Note tells the user what happened, as an event of the pod.
type Note struct {
	// Warning tells a problem from normal news.
	Warning bool
	// Reason is a CamelCase word, Message a sentence.
	Reason, Message string
	// Container is the name of the container that it happened to; empty for the pod as a whole.
	Container string
}

// Forget says that the StateMachine has nothing left to do and nothing of the pod is left here.
type Forget struct{}

func (Admit) action()           {}
func (RunSandbox) action()      {}
func (StartContainer) action()  {}
func (CancelStart) action()     {}
func (StopContainer) action()   {}
func (Probe) action()           {}
func (RunHook) action()         {}
func (CancelHook) action()      {}
func (StopSandbox) action()     {}
func (Observe) action()         {}
func (RemoveContainer) action() {}
func (Remove) action()          {}
func (WriteStatus) action()     {}
func (Lookup) action()          {}
func (DeletePod) action()       {}
func (Wake) action()            {}
func (Note) action()            {}
func (Forget) action()          {}
