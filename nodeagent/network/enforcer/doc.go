// Package enforcer ties NetworkPolicies to the API: it watches policies, namespaces and pods, and has package policies
// isolate the pods that are connected to the node.
//
// A pod is isolated before it is connected: whoever connects it first awaits that the enforcer knows all policies of
// the pod's namespace that there are by then (Await), and then has it admitted, which puts the rules in place (Admit).
// When either fails, the pod must not be connected. So no packet of a pod passes before the policies that were there
// when the pod was made count, not even after a restart or in a new node namespace (Use). Changes that come later
// count within milliseconds, and while the kernel refuses them they are tried again.
//
// Which addresses the pods here have is known from who connects them. Pods elsewhere are peers by the addresses of
// their status, while they run.
//
// It acts with the identity of the network, system:controller:nodenetwork.
package enforcer
