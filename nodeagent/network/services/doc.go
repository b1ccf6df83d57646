// Package services carries traffic to Services: it turns Services and EndpointSlices into rules of one nftables table,
// monoplane-services, in the network namespace that pods are routed through.
//
// Compile is pure: of a Service, its slices and what the node is like it makes the Rules of that Service. An Applier
// keeps the rules of all Services and makes the kernel's table say the same: it computes what differs, and changes it
// in one transaction, whose size does not depend on how many Services there are. What a batch needs that does not fit
// into one transaction is ordered so that no address ever leads to something that is not there.
//
// What it guarantees:
//   - When Apply has returned without an error, new connections to a Service reach the endpoints that it was told of
//     and no others, and UDP flows to endpoints that are gone have been forgotten by connection tracking.
//   - Established TCP connections live on, through changes, restarts and repairs: rules decide about first packets
//     only.
//   - An unclear outcome of a transaction is no failure: the table is read again, and what differs is changed.
//   - Whatever others do to the table is noticed by Verify and undone. Other tables are never touched.
//   - Two Services that claim one address and port do not flap: a cluster IP goes before addresses that users wrote
//     into a Service, and of those the older Service has it.
//
// How packets find their way. Maps in the table lead from (protocol, address, port), and for node ports from
// (protocol, port), to a chain of the Service's port. That chain picks an endpoint at random and rewrites the
// destination. A chain is never changed: its name ends in a hash of what is in it, so a Service that changes gets a
// new chain, the maps are pointed at it, and the old one goes, all at once. A Service without endpoints leads to a
// chain that rejects; one whose traffic policy is Local and that has none here, to one that drops.
//
// Behaviour that the API leaves to the proxy is that of kube-proxy: traffic policies, hints of topology, endpoints
// that terminate but still serve, source ranges of load balancers, session affinity by the client's address.
//
// What it does not do: sockets on the machine's own addresses, which lead node ports and addresses of load balancers
// from outside into the namespace; routes to the Services' addresses, without which local programs of the namespace
// get "network is unreachable" (the route must name a source address that pods can answer to).
package services
