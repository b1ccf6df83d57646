// Package queue holds the pods that wait for a node (spec: SCHED-2).
//
//	        refused by PreEnqueue
//	Add ---------------------------> gated --(pod changed)--+
//	 |                                                      |
//	 +-------------------> active <-------------------------+
//	                       |    ^  ^
//	                   Pop |    |  +--- back-off over --- backoff
//	                       v    |                           ^  ^
//	                    in flight -- Retry (failure) -------+  |
//	                       |    |                              |
//	      Done: bound, gone|    | Unschedulable, no help yet   |
//	                       v    v                              |
//	                         waiting --- a change that helps, -+
//	                                     or Activate, or 5 minutes (to active when no back-off
//	                                     is left, or by Hurry)
//
// What it guarantees: a pod is in one place; a change that could help a waiting pod is never lost, also when it
// happens while the pod is being tried; a pod that keeps failing is tried at most once each back-off (1 s doubling to
// 10 s), but for one that room was made for (Hurry), and does not hold up others; no pod waits longer than five
// minutes for its next try.
//
// The queue has no goroutine. Its user asks it for the next wake-up.
package queue
