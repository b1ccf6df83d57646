package podstate

import "time"

// InstanceState is how far a container has come in the runtime. It only grows.
type InstanceState uint8

// The states of an instance.
const (
	// None means that there is no such container.
	None InstanceState = iota
	// Created means that nothing was seen to run. A start of it may be on its way.
	Created
	// Running also stands for a state that the runtime does not know.
	Running
	// Exited means that its process 1 is gone.
	Exited
)

// String returns the state's name.
func (s InstanceState) String() string {
	return [...]string{"none", "created", "running", "exited"}[s]
}

// Sandbox is a pod's sandbox as the runtime shows it.
type Sandbox struct {
	// ID is the runtime's.
	ID string
	// Attempt counts the pod's sandboxes from 0.
	Attempt uint32
	// Ready says that containers can be started in it.
	Ready bool
	// IPs are its addresses; none when it shares the node's network.
	IPs []string
}

// Instance is one run of a container, as the runtime shows it.
type Instance struct {
	// ID is the runtime's.
	ID string
	// Name is the container's name in the spec.
	Name string
	// SandboxID is the sandbox that it is in.
	SandboxID string
	// Attempt is how often the container was started before.
	Attempt uint32
	// State is how far it has come.
	State InstanceState
	// Unclear says of one that counts as Running that the runtime does not know what has become of it: its process may
	// run, have ended, or never have begun.
	Unclear bool
	// StartedAt and FinishedAt are zero when it did not.
	StartedAt, FinishedAt time.Time
	// ExitCode, Reason and Message describe its end.
	ExitCode int32
	// Signal ended the process; 0 when none did or the runtime does not say.
	Signal int32
	// Reason is such as "Completed", "Error" or "OOMKilled".
	Reason string
	// Message is what the process left as its termination message.
	Message string
	// Image is the image's name, ImageID what the runtime resolved it to.
	Image, ImageID string
	// Hash tells definitions of the container apart; empty when the instance does not say.
	Hash string
	// Ordered says that the node ended it because the node itself was stopped, in order: that is no failure, so the next
	// instance starts at once, and the back-off stays as it was.
	Ordered bool
	// Delay is the back-off after this instance, as StartContainer said.
	Delay time.Duration
	// Settings are the limits that the runtime says that the instance has now; nil when it does not say. They are
	// compared, and not kept.
	Settings *Settings
	// Facts are what else the runtime says; nil for nothing.
	Facts *Facts
}

// Settings are limits in the kernel's words, 0 for none.
type Settings struct {
	// CPUShares is a weight, CPUQuota the microseconds in a period, Memory a number of bytes.
	CPUShares, CPUQuota, Memory int64
}

// Observation is what the runtime shows of a pod.
type Observation struct {
	// Sandboxes and Instances are in any order.
	Sandboxes []Sandbox
	// Instances of all sandboxes.
	Instances []Instance
}
