// Package network is the pod network of a node, as a runtime uses it: it gives each sandbox addresses (package ipam)
// and connects it to the node namespace (package nodens) as its configuration says, with host ports and bandwidth.
//
// Guarantees: an address belongs to one sandbox at a time, whatever is killed when; Attach and Detach can be repeated;
// after a restart of the process, what the kernel still has is what the register says. What a sandbox has is given
// back only when its link is gone.
//
// A runtime opens it once, says with Retain which sandboxes there are, and attaches those again that have host ports,
// or all of them when the namespace was lost.
package network
