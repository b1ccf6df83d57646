// Package gate lets TLS connections in and bounds what clients can take before they have shown who they are. Both APIs
// listen through it.
//
//	accepted ──▶ handshake ──▶ unauthenticated ──▶ authenticated
//	   │             │                │
//	   └─────────────┴────────────────┴──▶ closed: by its time limit, for the room of a newer one,
//	                                          or after too many refusals
//
// A connection is authenticated when its client certificate is (at the handshake), or else when package authn accepts
// a request on it. Until then it may last Lifetime, send Bytes, and be refused MaxRefusals times; of such connections
// there are MaxUnauthenticated at most, and PerAddress of one remote address. Whatever a client does that has no
// credentials (headers that expand, floods of frames, bodies that never end, answers that it does not read) happens
// within these bounds.
//
// Guarantees: connections of authenticated clients are never closed to make room; a connection that has sent something
// has at least Patience to authenticate; one that has sent nothing makes room first. At MaxConnections new connections
// wait in the kernel's backlog. Accepting goes on after every error but that of a closed listener, so that a lack of
// file descriptors ends nothing.
//
// Use: Listen around a TCP listener; http.Server takes its connections by Serve with ConnContext, gRPC with
// ServerOptions, by two servers of which one is for unknown clients (ForUnknown).
package gate
