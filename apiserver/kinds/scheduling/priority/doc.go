// Package priority finds the class of a new pod and gives the pod its priority (spec: PRIO-1, PRIO-2).
//
// What it guarantees: a class that has been created, changed or deleted through this server counts for every pod that
// is created through it after the answer. Finding a class does not wait for etcd, since creating a pod is the most
// frequent thing that a server does: the cache is asked, and what writes classes waits until the cache has them.
// Another server of the same etcd knows a new class by its name at once, and anything else as soon as its cache does.
//
// It does not judge classes (package scheduling), and never changes a pod that exists.
package priority
