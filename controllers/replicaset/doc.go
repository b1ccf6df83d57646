// Package replicaset is the controller of ReplicaSets and, as a second one of the same machine, of
// ReplicationControllers: each keeps a number of equal pods.
//
//	pods that count ──► too few:  make some, at most 500, in batches of 1, 2, 4...
//	                ──► too many: delete those that do the least (package podrank), at most 500
//	                ──► count them, write the status
//
// What it guarantees: availability first. A pod does not count from the moment on at which its deletion begins, and
// its successor is made then (WORK-1, WORK-5). Before it judges, the cache has everything that the controller itself
// wrote, so that no pod is made or deleted twice. A template that admission refuses costs one request, then one after
// a delay that doubles up to 30 s, whatever happens to other pods meanwhile; condition ReplicaFailure says so.
//
// What it does not do: it never forces a deletion, and leaves the pods of a ReplicaSet that is deleted to the garbage
// collector.
package replicaset
