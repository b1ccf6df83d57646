package deletion

import (
	"time"

	"monoplane.dev/rules/precondition"
)

// Role is what an identity is to the rules of deletion.
type Role int

// The roles. The zero Role may do nothing.
const (
	// Nobody may not delete pods at all.
	Nobody Role = iota
	// User is a person or a program outside the control plane, the administrator included.
	User
	// Agent is the agent of a node.
	Agent
	// PodGC is the pod garbage collector, or whoever else has the right to collect pods.
	PodGC
	// Controller is any other component of the control plane: the scheduler and every other controller.
	Controller
)

// Actor is who asks for a deletion.
type Actor struct {
	Role Role
	// Name is the user name, for messages.
	Name string
	// Node is the node whose agent asks; only with role Agent.
	Node string
	// NodeKey is the key of the agent's machine, empty when unknown (NODE-7).
	NodeKey string
}

// Pod is what the rules look at in a pod, as the transaction will compare it.
type Pod struct {
	Name            string
	UID             string
	ResourceVersion string
	// Node is spec.nodeName; empty while the pod is unbound.
	Node string
	// NodeKey is the key of the machine that the pod was bound to, empty when unknown (NODE-7).
	NodeKey string
	// Terminal is true in phases Succeeded and Failed, once more than a user's word says so.
	Terminal bool
	// NodeLost is true when PodGC, not the agent, made the pod terminal because its node was gone (GC-1, GC-3).
	NodeLost bool
	// Mirror is true for the mirror of a static pod.
	Mirror bool
	// Finalizers is true when any finalizer is left.
	Finalizers bool
	// SpecGrace is spec.terminationGracePeriodSeconds, nil when unset.
	SpecGrace *int64
	// Mark is the deletion that has begun, nil for none.
	Mark *Mark
}

// Mark is a deletion that has begun.
type Mark struct {
	// Deadline is metadata.deletionTimestamp, in whole seconds.
	Deadline time.Time
	// Grace is metadata.deletionGracePeriodSeconds.
	//
	// Invariant: it never grows, and once it is 0 it stays 0.
	Grace int64
}

// Request is what is asked for.
type Request struct {
	// Grace is the period in seconds; nil for the pod's own, 0 to force, negative counts as 1.
	Grace *int64
	// Expected is what the request expects of the pod.
	Expected precondition.Expected
}

// Outcome is what becomes of the pod.
type Outcome int

// The outcomes.
const (
	// Unchanged: the deletion goes on as it is; the request succeeds without a write.
	Unchanged Outcome = iota
	// Marked: the pod stays, with Decision.Mark.
	Marked
	// Removed: the pod goes, in this transaction.
	Removed
)

// Decision is what to write.
type Decision struct {
	Outcome Outcome
	// Mark is the mark that the pod carries from now on, and in the answer also when it is removed.
	Mark Mark
	// Begins is true for the request that begins the deletion; it raises metadata.generation (OBJ-5).
	Begins bool
	// Forced is true when grace 0 was asked for by a user or PodGC: the audit log records it (DEL-8).
	Forced bool
	// Unconfirmed is true when nothing has confirmed that the pod's processes are gone: a user who forces is
	// warned (CLI-1).
	Unconfirmed bool
	// NodeGone makes the decision valid only if in the same transaction the pod's Node does not exist (GC-1), or, for a
	// pod whose deletion began before, is out of service (GC-3).
	NodeGone bool
}

// Refusal is why a request is refused. Nothing is written then.
type Refusal struct {
	// Conflict is true when a precondition does not hold (409), false when the actor may not do this (403).
	Conflict bool
	// Message says what was wrong and what would be right.
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }
