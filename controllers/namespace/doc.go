// Package namespace is the controller that empties a deleted namespace and then lets it go (spec: NS-1):
//
//	Active --DELETE--> Terminating --content gone--> finalizer "kubernetes" removed --> the server removes it
//
// Pods are deleted first, gracefully and never by force; when the last of them is gone, everything else follows. A
// pod on a node out of reach therefore holds its namespace. The namespace's conditions say what remains and why.
//
// What it guarantees: the finalizer is removed only after linearizable lists have shown that nothing is left; since
// the server creates nothing in a terminating namespace, nothing can appear afterwards.
//
// The namespaces that every cluster has cannot be deleted; one that goes all the same, because its deletion had begun
// under an older version, is made again.
//
// What it does not do: it never forces a deletion and never touches finalizers of the objects inside.
package namespace
