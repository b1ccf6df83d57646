package host

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"monoplane.dev/nodeagent/images"
)

// imageError gives an error of the store its code.
func imageError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, images.ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, images.ErrInvalid):
		return badRequest("%v", err)
	case errors.Is(err, images.ErrInUse):
		return wrongState("%v", err)
	}
	return failed("%v", err)
}
