// Package nodens keeps the node namespace: the one network namespace of a node in which the veths of its pods end,
// packets between pods are routed, Services are translated and sockets of the node listen for pods.
//
// It is the same with and without root. The namespace is made by a helper, which is this program started under
// another name (package helper): as root in a new network namespace, otherwise in a new user namespace besides. The
// helper does what needs to be done inside, and hands out sockets that were opened there. It goes on when the server
// ends, and with it packets between pods and through Services; the next Open finds it by its socket in the directory
// of the state.
//
// What the namespaces hold:
//
//   - In the node namespace: one routed veth for each pod, with a route of /32 and /128 to it; the addresses of
//     Gateway on the near end, through which the pod reaches everything; the nftables tables "monoplane" and, for pods
//     that use host ports, "monoplane-hostports", which are this package's. Other packages have tables of their own:
//     monoplane-services, monoplane-policy.
//   - In a pod's: eth0 with the pod's addresses, a default route through the gateway, lo.
//   - As root, on the machine: one veth, whose name begins with "mp" and names the cluster, with routes of the pod and
//     service ranges through it, and the nftables table "monoplane-CLUSTER", which masquerades what pods send out.
//     Nothing else of the machine is changed: where it does not forward, or somebody's rules drop what is forwarded,
//     pods reach out through the process, as they do without root, and Status says why. Verify follows what changes.
//   - Without root, on the machine: nothing. What pods send out ends in a listener of this process (nftables' tproxy),
//     which connects to where the pod wanted to go.
//
// Guarantees: Attach and Detach can be repeated, and repair what an interrupted one has left. Open repairs what a
// crash of server or helper has left, Verify what others have taken away. Both take away the machine's tables of other
// clusters whose node namespaces are no more, and nothing else of others. Remove leaves nothing behind that carries
// our name.
//
// Not done here: who gets which address (package ipam), Services (package services), names (package dns).
package nodens
