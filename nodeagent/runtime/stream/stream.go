// Package stream is how the agent talks with what runs in containers: a command of its own (exec), the container's
// first process (attach), or a port of the pod.
//
// The Container Runtime Interface answers such a call with the address of a server that speaks SPDY. A runtime inside
// this process offers the same without sockets, by implementing Runtime; a Remote does it for those that are reached
// through CRI. Both end what they have begun when its context ends: the command is killed, the connection closed.
package stream

import (
	"context"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime talks with what runs in containers. Errors are those of CRI, by gRPC code: NotFound for a container that
// does not exist, FailedPrecondition for one that does not run. It is safe for concurrent use.
type Runtime interface {
	// ExecStream runs a command in a running container, and returns its exit code once it has ended and its output has
	// been written. When ctx ends, the command and what descends from it is killed.
	ExecStream(ctx context.Context, req *runtimeapi.ExecRequest, with Streams) (code int32, err error)
	// AttachStream passes on what goes in and comes out of a running container, until it has ended or ctx ends.
	AttachStream(ctx context.Context, req *runtimeapi.AttachRequest, with Streams) error
	// Forward connects conn with a port of a sandbox until both directions have ended, or ctx has. It reads from conn
	// until that is at its end, closes its writing side when the port has said all, and does not close it.
	Forward(ctx context.Context, sandbox string, port int32, conn Conn) error
}

// Conn is the near end of a forwarded connection.
type Conn interface {
	io.ReadWriter
	// CloseWrite says that nothing more will be written.
	CloseWrite() error
}

// Streams are the near ends of what a process reads and writes. Those that the request does not ask for are not used
// and may be nil. A Read of In must return when the context of the call ends.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Sizes are those of the terminal, if there is one; it may be nil.
	Sizes <-chan Size
}

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint16 }
