// Package inproc connects gRPC clients to gRPC services of the same process, without sockets and without
// serialisation: generated clients and services are used unchanged, and the same interceptors run.
//
// What it guarantees:
//   - Interceptors, metadata, headers, trailers, deadlines, cancellation and statuses behave as they do over
//     a network. Errors arrive as gRPC statuses with their details; what a server keeps to itself (the cause
//     of an internal error) does not cross.
//   - Values of the caller's context do not reach the handler. The owner of a connection decides what the
//     handler sees: WithContext sets an identity, PassValues lets everything through (for the REST front).
//   - A panic in a handler becomes the status Internal.
//   - Streams have bounded buffers: a slow receiver holds up the sender. When the client's context ends, so does
//     the handler's; nothing is left running once the handler has returned.
//   - It works inside a testing/synctest bubble: there are no package-level goroutines, channels or timers.
//
// Messages are passed by pointer. The outermost message is copied one level deep, what it points to is
// shared: neither side may change what it has sent or received, nor reuse a byte slice it has sent. Code that
// cannot promise that uses a connection made WithClone.
//
// A unary handler runs on the caller's goroutine, so a call ends when the handler ends; handlers are expected to
// honour their context. Detached is for services that do not.
//
// What it does not do: message size limits, compression, retries, per-call credentials, stats handlers.
package inproc
