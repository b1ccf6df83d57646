// Package scheduler assigns pods to nodes.
//
//	watch -> queue -> decision loop -> assume -> Bind (off the loop) -> the binding is seen by the watch
//	           ^           |                        |
//	           |           v                        v failed: forget the assumption
//	           +---- no node fits  <----------------+
//
// What it guarantees:
//   - One decision at a time, on an immutable snapshot in which assumed pods count: two decisions never give
//     away the same room (spec: SCHED-3). The server's compare-and-swap decides about everything else: a binding holds
//     only for the pod and the node as they were judged.
//   - A pod that fits nowhere says why, in its condition and in an event (spec: SCHED-6), and is tried again when
//     something changes that could help, at the latest after five minutes (spec: SCHED-2).
//   - Questions about pods (package monoplane.dev/api/scheduling/v1: PlacementReview) are answered between two
//     decisions, from the same snapshot, and cost a tenth of the time at most while pods wait.
//   - Only pods whose spec.schedulerName is a profile's name are touched.
//
// What it does not do: it keeps no state of its own; after a restart everything is read again. It neither starts pods
// nor moves them.
package scheduler
