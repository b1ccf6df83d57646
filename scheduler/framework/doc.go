// Package framework is what the scheduler and its plugins have in common: the extension points (spec: SCHED-1), the
// immutable snapshot that decisions are made on, and the profile that runs plugins in order.
//
// One decision:
//
//	PreFilter -> Filter per node -> (none fits: PostFilter) -> PreScore -> Score per node -> NormalizeScore -> pick
//
// and then, for the node picked: Reserve -> Permit -> PreBind -> Bind -> PostBind. PreEnqueue and QueueSort belong to
// the queue.
//
// Rules for plugins: from PreFilter to NormalizeScore a plugin is a function of its arguments. It has no client, no
// clock, no goroutine and keeps nothing between calls but its configuration. Only PreBind, Bind and PostBind, which
// run off the decision loop, may do I/O; they get a context. Reserve, Unreserve, Permit and PreFlight may keep things,
// and must be quick.
//
// What plugins would have to count over and over the snapshot keeps up to date for them: nodes by the value of a label
// (Topology, LabelTest), pods that a query selects (Counter, with Sums by domain), and the affinity terms of pods that
// are there (Terms). All of these are NodeIndexes, which the snapshot tells what becomes of its nodes. A plugin has it
// keep more of them (Snapshot.Index), so that a decision costs the plugin what has changed, not what is there.
//
// PodInfo and NodeInfo are immutable: a change makes a new one. A plugin may keep one, which stays true to what the
// pod or the node was at that moment. The snapshot itself is valid for one decision, and so are the slices and indexes
// that it gives out.
package framework
