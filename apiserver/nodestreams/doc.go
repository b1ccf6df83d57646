// Package nodestreams is the server's side of the NodeStreams service: it carries what the API server asks
// of a node's agent (container logs now) over streams that the agent opened, so that no node needs an open
// port.
//
//	apiserver                     Broker                      agent of node n
//	                                | <------- Listen(n) --------- |
//	Logs(ctx, n, call, send) -----> | -------- Call{id} ---------> |
//	                                | <------- Answer: id -------- |
//	        <------- send(data) --- | <------- Frame{data} ------- |
//	        <------- nil or error - | <------- EOF or error ------ |
//
// Guarantees: only the identity system:node:NAME listens and answers for NAME; a call is answered at most
// once and only by the node that it was sent to; call ids cannot be guessed; a slow reader slows its own
// stream only (nothing is buffered beyond one frame); when either side goes away the other is told.
//
// The Broker does not authorize the user who asks, knows nothing of pods, and keeps nothing across a restart:
// agents listen again, callers ask again.
package nodestreams
