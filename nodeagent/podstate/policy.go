package podstate

import "time"

// Policy holds the periods that the machines of a node share. Use DefaultPolicy and change what differs.
type Policy struct {
	// RestartDelay is the back-off after the second failure of a container, doubled up to RestartDelayMax;
	// a run longer than RestartReset starts it over (spec CTR-3).
	RestartDelay, RestartDelayMax, RestartReset time.Duration
	// PullDelay is the back-off after a failed image pull, doubled up to PullDelayMax.
	PullDelay, PullDelayMax time.Duration
	// RuntimeDelay is the back-off after a failed call to the runtime, doubled up to RuntimeDelayMax.
	RuntimeDelay, RuntimeDelayMax time.Duration
	// APIDelay is the back-off after a failed call to the API, doubled up to APIDelayMax.
	APIDelay, APIDelayMax time.Duration
	// MinGrace is the least time between TERM and KILL (spec TERM-1).
	MinGrace time.Duration
	// StopMargin is how long after the grace period what is not confirmed dead counts as stuck. The runtime kills, and
	// answers, within about 10 s of it.
	StopMargin time.Duration
	// VanishedGrace is the grace of a pod whose object is gone (spec DEL-9).
	VanishedGrace time.Duration
	// Coalesce is how long a status change that can wait does wait for more.
	Coalesce time.Duration
}

// DefaultPolicy returns the periods that the specification states.
func DefaultPolicy() Policy {
	return Policy{
		RestartDelay: 10 * time.Second, RestartDelayMax: 300 * time.Second, RestartReset: 10 * time.Minute,
		PullDelay: 10 * time.Second, PullDelayMax: 300 * time.Second,
		RuntimeDelay: time.Second, RuntimeDelayMax: 30 * time.Second,
		APIDelay: 100 * time.Millisecond, APIDelayMax: 10 * time.Second,
		MinGrace: 2 * time.Second, VanishedGrace: 2 * time.Second, StopMargin: 20 * time.Second,
		Coalesce: 100 * time.Millisecond,
	}
}

// Host is what the machines of a node know about it. It is shared and never changes.
type Host struct {
	// Policy holds the periods.
	Policy Policy
	// IPs returns the node's addresses, the primary one first.
	IPs func() []string
	// Runtime is the runtime's name, the scheme of container ids in a status.
	Runtime string
}
