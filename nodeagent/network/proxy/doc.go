// Package proxy ties the network of a node to the API: it watches Services, EndpointSlices, namespaces and its own
// Node, carries traffic to Services (package services) and answers names (package dns).
//
// Changes are taken in batches: whatever has come while the last one was made. A Service's name is answered only after
// its rules are in the kernel, and stops being answered before they go; so nobody sees the name of a Service that
// cannot be reached. While rules cannot be made, which is tried again and again, the names stay what they were.
//
// It is also the load balancer of Services that ask for one and for none in particular: they get the machine's own
// addresses, which stand in their status once they answer there.
//
// The proxy acts with an identity of its own, system:controller:nodenetwork.
package proxy
