// Package calls is the mechanism by which the API server asks a component something over streams that the component
// opened, so that the server dials nobody and a component needs no open port. Packages nodestreams and
// schedulerstreams are its services.
//
//	caller                         Broker                      component
//	                                | <------- Listen(names) ------- |
//	Do(ctx, name, call, take) ----> | -------- call with its id ---> |
//	                                | <------- Answer: id ---------- |
//	        <------- take(data) --- | <------- Frame{data} --------- |
//	        <------- nil or error - | <------- EOF or error -------- |
//
// A conversation (Open) goes both ways: the server sends frames of input as well, of which no more are on their way
// than the component has room for, so that it always sees at once that the caller has gone.
//
// Guarantees: a name has one listener, the newest; a call is answered at most once, and only by who may serve its
// name; call ids cannot be guessed; a slow reader slows its own stream only (nothing is buffered beyond one frame);
// when either side goes away the other is told at once.
//
// The Broker does not authorize the user who asks, and keeps nothing across a restart: components listen again,
// callers ask again. The side of the component is package client/calls.
package calls
