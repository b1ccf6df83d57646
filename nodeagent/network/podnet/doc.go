// Package podnet gives a runtime its network (package network), once the node has been told the ranges of its pods'
// addresses, and keeps it: it is an oci.Network.
//
// Before that, and whenever the node namespace is broken, Ready says why, and no sandbox is connected. Ready also
// mends: a namespace whose helpers were killed is made anew, and what was connected is connected again, with the
// addresses that it had; rules, addresses and routes that somebody has taken away are put right. What a killed process
// has left of sandboxes that are gone is given back by Configure.
//
// Others who have work in the node namespace, such as the proxy of Services, get it from Serve, each time that it has
// been made.
package podnet
