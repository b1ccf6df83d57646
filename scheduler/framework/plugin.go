package framework

import (
	"context"
	"time"
)

// Plugin is what all plugins have. A plugin implements any of the extension points below.
type Plugin interface {
	// Name is the plugin's name as configuration and messages use it, such as "NodeResourcesFit".
	Name() string
}

// PreEnqueue decides whether a pod may enter the queue. It is asked again when the pod changes.
type PreEnqueue interface {
	Plugin
	PreEnqueue(pod *PodInfo) *Status
}

// QueueSort orders the active queue; a profile has exactly one.
type QueueSort interface {
	Plugin
	// Less says whether a comes before b.
	Less(a, b *QueuedPod) bool
}

// QueuedPod is a pod as the queue orders it.
type QueuedPod struct {
	*PodInfo
	// Since is when the pod entered the active queue or last left the unschedulable pods.
	Since time.Time
	// First is when it was first tried.
	First time.Time
	// Attempts is how often it has been tried.
	Attempts int
}

// PreFilter runs once per decision. It can refuse the pod for all nodes, restrict the nodes, or skip the plugin's
// Filter.
type PreFilter interface {
	Plugin
	PreFilter(state *CycleState, pod *PodInfo, snapshot *Snapshot) (*PreFilterResult, *Status)
}

// PreFilterResult restricts the nodes that are looked at. A nil one does not.
type PreFilterResult struct {
	// NodeNames are the only nodes that can fit. The others are not looked at, and counted as refused by the plugin.
	NodeNames map[string]struct{}
	// First are nodes that are looked at before all others, unless nil or too many to look at all of them. The plugin
	// knows that its Filter refuses the others, and leaves it to that to say why: they are looked at when none of the
	// first fits. It is not changed.
	First []*NodeInfo
}

// Filter decides whether a pod can run on a node. The node need not be as it is in the snapshot, nor in an index: see
// CycleState.WhatIf.
type Filter interface {
	Plugin
	Filter(state *CycleState, pod *PodInfo, node *NodeInfo) *Status
}

// PostFilter runs when no node fits. It may nominate a node that will fit later (preemption); its message is appended
// to what the user reads. Without a Nomination the one that the pod may have stays.
type PostFilter interface {
	Plugin
	PostFilter(state *CycleState, pod *PodInfo, snapshot *Snapshot, d *Diagnosis) (*Nomination, *Status)
}

// Nomination is the node on which room is made for a pod. The scheduler carries it out: it keeps the room for the pod,
// and deletes the victims gracefully.
type Nomination struct {
	// Node will fit once the Victims are gone. Without one, the nomination that the pod has is taken away.
	Node string
	// Victims are pods of the node, the most important first.
	Victims []*PodInfo
}

// PreScore runs once per decision, with the nodes that fit. It can skip the plugin's Score.
type PreScore interface {
	Plugin
	PreScore(state *CycleState, pod *PodInfo, nodes []*NodeInfo) *Status
}

// MaxScore is the best score a plugin can give after NormalizeScore; 0 is the worst.
const MaxScore = 100

// Score rates a node that fits.
type Score interface {
	Plugin
	Score(state *CycleState, pod *PodInfo, node *NodeInfo) int64
}

// NormalizeScore brings a Score plugin's scores into 0..MaxScore.
type NormalizeScore interface {
	Score
	NormalizeScore(state *CycleState, pod *PodInfo, nodes []*NodeInfo, scores []int64)
}

// Reserve keeps what a plugin holds for a pod on a node. Unreserve undoes it and must be idempotent.
type Reserve interface {
	Plugin
	Reserve(state *CycleState, pod *PodInfo, node string) *Status
	Unreserve(state *CycleState, pod *PodInfo, node string)
}

// Permit can approve, refuse or delay the binding. With Wait the pod waits, at most for timeout, until the plugin says
// more: see Waiting.
type Permit interface {
	Plugin
	Permit(state *CycleState, pod *PodInfo, node string) (status *Status, timeout time.Duration)
}

// PreBind does what must be done before the binding, such as provisioning a volume.
type PreBind interface {
	Plugin
	PreBind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
}

// PreFlight is for PreBind plugins that have nothing to do for most pods: with Skip PreBind is left out. It runs on
// the decision loop, and must not do I/O.
type PreFlight interface {
	PreBind
	PreFlight(state *CycleState, pod *PodInfo, node string) *Status
}

// Bind binds the pod. Skip hands over to the next one.
type Bind interface {
	Plugin
	Bind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
}

// PostBind is told about a bound pod.
type PostBind interface {
	Plugin
	PostBind(ctx context.Context, state *CycleState, pod *PodInfo, node string)
}

// CycleState holds what plugins work out in one decision for their later calls in the same decision.
type CycleState struct {
	values   []stateValue
	snapshot *Snapshot
	// over says that the decision loop has gone on.
	over   bool
	whatIf *WhatIf
	trial  *Trial
	// first are the nodes to look at before all others; nil when nobody said.
	first   []*NodeInfo
	waiting *Waiting
	// idle are the PreBind plugins, as bits, that have nothing to do.
	idle uint64
}

// NewCycleState returns the state of a decision on a snapshot. Schedule and Explain do as much for their own.
func NewCycleState(s *Snapshot) *CycleState { return &CycleState{snapshot: s} }

// Snapshot returns what the decision is made on. It is for the calls on the decision loop, up to Permit and PreFlight:
// the next decision changes it, so that it panics from PreBind on.
func (c *CycleState) Snapshot() *Snapshot {
	if c.over {
		panic("the snapshot is asked for from PreBind on, when the next decision changes it: " +
			"note what is needed of it in PreFlight or before")
	}
	return c.snapshot
}

type stateValue struct{ key, value any }

// Write stores a value under a key, which is of a type private to the plugin.
func (c *CycleState) Write(key, value any) {
	for i := range c.values {
		if c.values[i].key == key {
			c.values[i].value = value
			return
		}
	}
	c.values = append(c.values, stateValue{key, value})
}

// Read returns what was stored under key, nil when nothing was.
func (c *CycleState) Read(key any) any {
	for i := range c.values {
		if c.values[i].key == key {
			return c.values[i].value
		}
	}
	return nil
}
