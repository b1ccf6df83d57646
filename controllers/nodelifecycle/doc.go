// Package nodelifecycle is the controller that notices when the agent of a node has fallen silent, says so on the node
// and its pods, and keeps the taints of all nodes as their state calls for (spec: NODE-3, NODE-5, LIFE-7).
//
//	                 nothing heard for the grace                 waits for its turn
//	┌─────────────┐  (and a live read agrees)   ┌─────────────┐  in its zone          ┌──────────────────┐
//	│ heard of    │ ──────────────────────────▶ │ lost:       │ ────────────────────▶ │ evicted: taint   │
//	│             │                             │ conditions  │                       │ unreachable      │
//	│             │ ◀────────────────────────── │ are Unknown │ ◀──────────────────── │ with NoExecute   │
//	└─────────────┘  the agent says it is ready └─────────────┘  all zones are lost   └──────────────────┘
//	       ▲                                                                                   │
//	       └───────────────────────────────────────────────────────────────────────────────────┘
//	                                     the agent says it is ready
//
// A node whose agent says that it is not ready goes the same way, with the taint not-ready. What becomes of the pods
// of a node with a NoExecute taint is the business of package tainteviction.
//
// An agent is heard of when it renews its Lease or reports the status of its node. When that was is measured by this
// process's own monotonic clock, from when it saw the change: clocks may jump, and be wrong elsewhere. The time counts
// only while this controller looks: after a start, a long pause, or while the API does not answer, every node has its
// whole grace again, since what is not heard then may have been said.
//
// What it guarantees:
//   - No node is called lost on the word of a cache: its Lease and Node are read live before.
//   - It never deletes a pod, and never changes the phase of one.
//   - Nodes get NoExecute taints at the rates of package zones, and none while all zones are lost; who was tainted
//     before loses the taint then.
//   - Every write is about the revision that was looked at.
//
// What it costs: the Leases are listed, from memory, once per period; nothing is done per heartbeat.
package nodelifecycle
