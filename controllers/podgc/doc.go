// Package podgc is the controller that removes pods which no node agent can or will finish:
//
//	reason          which pods                                                spec
//	orphaned        bound to a node that has been gone for 40 s               GC-1
//	unscheduled     terminating and never bound                               GC-2
//	out-of-service  terminating, on a node that is not ready and has the      GC-3
//	                taint node.kubernetes.io/out-of-service
//	terminated      Succeeded or Failed, beyond the threshold                 GC-4
//
// What it guarantees: nothing is removed because a cache does not know something. Before each removal the pod, and
// where it matters the node, is read live; the writes carry the pod's uid, so a successor of the same name is never
// touched; the server checks in the removing transaction that the node is still absent, or out of service. A pod that
// is not terminal is first marked Failed, with the condition DisruptionTarget when its node is why.
//
// What it does not do: it does not judge whether a node is healthy (package nodelifecycle does). A node that is merely
// silent keeps its pods until it returns or its Node object is deleted.
package podgc
