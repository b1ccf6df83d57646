package inproc

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// wireError returns err as it would arrive over a network: a status with its details and nothing else.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		// Context errors get their codes, everything else Unknown, as grpc.Server does.
		s = status.FromContextError(err)
	}
	return s.Err()
}

// contextError returns the status of a call whose context has ended.
func contextError(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// panicked reports a panic to the server's owner and returns the error that the client sees, which says nothing
// about the panic's value.
func (s *Server) panicked(method string, value any) error {
	if f := s.onPanic.Load(); f != nil {
		(*f)(method, value, debug.Stack())
	}
	return status.Error(codes.Internal, "the handler panicked")
}
