package host

import (
	"errors"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// CRI knows errors by their gRPC code, and this package by these functions only.

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q does not exist", what, id)
}

func badRequest(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func wrongState(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

func taken(format string, args ...any) error {
	return status.Errorf(codes.AlreadyExists, format, args...)
}

func unimplemented(format string, args ...any) error {
	return status.Errorf(codes.Unimplemented, format, args...)
}

func unavailable(format string, args ...any) error {
	return status.Errorf(codes.Unavailable, format, args...)
}

func failed(format string, args ...any) error {
	return status.Errorf(codes.Unknown, format, args...)
}

func timedOut(format string, args ...any) error {
	return status.Errorf(codes.DeadlineExceeded, format, args...)
}

// makingFailed is the error of files that could not be made. What can never succeed is the caller's to mend.
func makingFailed(what string, err error) error {
	if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, shimwire.ErrTooLarge) {
		return badRequest("cannot make the %s: %v", what, err)
	}
	return failed("cannot make the %s: %v", what, err)
}
