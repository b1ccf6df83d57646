// Package policies isolates the pods of a node as NetworkPolicies say, by one table of nftables in the node namespace.
//
// A World is told of namespaces, pods and policies, and keeps in memory what the table has to hold: chains, sets of
// addresses, and maps from the address of an isolated pod to its chain. An Applier makes the kernel's table so.
//
//	w := policies.NewWorld()
//	w.SetPolicy(key, policy)
//	w.SetPod(id, namespace, &policies.Pod{Labels: labels, Addrs: addrs, Here: true})
//	err := applier.Apply(ctx, w)
//
// What it guarantees:
//
//   - Traffic is let through as Kubernetes' documentation of NetworkPolicy says: a pod that a policy selects, in the
//     direction that it is about, sends or gets only what some policy allows. What is refused is told so at once: by a
//     reset, or by ICMP's "administratively prohibited".
//   - Packets are judged after the translation of Services: by the pods at both ends.
//   - Connections that are established go on, whatever policies come. A pod's traffic with its own node always does.
//   - A change is one transaction where it fits into one. A pod that comes or goes changes elements of sets and maps;
//     a chain never changes, but gives way to another. What pods of other policies do costs nothing.
//   - While no pod of the node is isolated there is no table, and packets pass no hook.
//
// What it does not do: it does not watch anything (package enforcer does), and pods on the machine's network are not
// isolated, nor are they anybody's peers.
package policies
