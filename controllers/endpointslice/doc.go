// Package endpointslice keeps the EndpointSlices of services with a selector: which pods can be reached, where, and
// whether they are ready, serving or terminating (spec: WORK-4, WORK-5).
//
//	pod turns ready, goes, is labelled otherwise ──► services of its namespace that select it, before or now
//	service comes, changes                       ──► itself
//	somebody else writes one of its slices       ──► the service that the slice is of
//	node comes, is elsewhere                     ──► services of its pods
//	nodes have other processors                  ──► services with hints by topology
//	                         │
//	                         ▼
//	   package slices decides ──► create, update (compare-and-swap), delete
//	                         │
//	                         ▼
//	   the cache has the writes: only then is the service looked at again
//
// What it guarantees: when nothing changes any more, the slices are what package slices says of the service, its pods
// and their nodes. A change of a pod that makes no endpoint another costs nothing but a comparison. Slices of a
// service without a selector are left alone, and those of one that is gone are removed by the garbage collector.
package endpointslice
