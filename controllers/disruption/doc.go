// Package disruption is the controller of disruptions of pods. It has two loops.
//
// The first counts: for each PodDisruptionBudget, how many pods it selects are healthy, how many must be, and so how
// many may be evicted (package count). The server takes from that number, one for each eviction, in the transaction
// that evicts the pod; the controller never writes the status of a budget that has been taken from since it read it.
//
//	     pod comes, goes, turns ready, is labelled otherwise;
//	     budget comes, changes, is taken from
//	                       │
//	                       ▼
//	pods that it selects ──► their controllers' replicas ──► status (compare-and-swap)
//	                       │                                   │
//	                       │ cannot be told                    │ an evicted pod is not seen going
//	                       ▼                                   ▼
//	  DisruptionAllowed False (SyncFailed),        counted again two minutes after its eviction,
//	  nothing may be evicted; tried again          with event NotDeleted
//
// The second looks after condition DisruptionTarget: where it stands on a pod for two minutes and nobody has deleted
// the pod, whoever wanted to has given up, and it becomes False (spec: DISR-4). Where the pod's own agent has set it,
// or the pod has ended, it stays.
//
// What it guarantees (spec: DISR-1, DISR-4): a status counts no pod as healthy whose eviction it was told of, however
// far its view of the pods is behind; and when nothing changes any more, it is true of the pods as they are. The
// controller deletes and evicts nothing.
package disruption
