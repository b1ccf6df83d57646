// Package statefulset is the controller of StatefulSets: it keeps pods of which each has a name and claims for itself
// (package members decides what is next for them), and the revisions of their template (package history).
//
//	        ┌─ a look: claims, then pods are made, repaired or deleted ◄─┐
//	        ▼                                                            │
//	write the status ──► pods and claims change ──► caches have all that was written
//
// What it guarantees: there is at most one pod of an identity (WORK-2). A pod is made under the name of its identity,
// which the server gives to no second one, so that it is made only when the object of the one before is gone. The
// controller never forces a deletion, so that the object of a pod goes when its processes are known to be gone, or
// when somebody who answers for that says so. A lost node therefore holds up its pods' successors until it comes back,
// is deleted or is fenced.
//
// Before pods are deleted, the StatefulSet is read from the server: what was judged by an older state of it is judged
// again. Deletions carry the uid, changes of claims the resourceVersion. Before it judges, the caches have everything
// that the controller itself wrote.
//
// What it does not do: it leaves the pods, claims and revisions of a StatefulSet that is deleted to the garbage
// collector, and a pod that waits for ever to those who look at it: in order it holds up the ones after it.
package statefulset
