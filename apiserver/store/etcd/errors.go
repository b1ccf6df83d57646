package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// serverError translates an error of the embedded server.
func serverError(err error) error {
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		return ErrCompacted
	case errors.Is(err, mvcc.ErrFutureRev):
		return ErrFutureRevision
	case errors.Is(err, servererrors.ErrRequestTooLarge):
		return ErrTooLarge
	case errors.Is(err, servererrors.ErrNoSpace):
		return ErrNoSpace
	case errors.Is(err, lease.ErrLeaseNotFound):
		return ErrLeaseNotFound
	case errors.Is(err, servererrors.ErrStopped):
		return ErrClosed
	case errors.Is(err, servererrors.ErrCanceled):
		return context.Canceled
	case errors.Is(err, servererrors.ErrTimeout):
		return ErrTimeout
	case errors.Is(err, servererrors.ErrTooManyRequests):
		return ErrBusy
	default:
		return err
	}
}

// remoteError translates an error that came over the wire.
func remoteError(err error) error {
	if err == nil {
		return nil
	}
	switch e := rpctypes.Error(err); {
	case errors.Is(e, rpctypes.ErrCompacted):
		return ErrCompacted
	case errors.Is(e, rpctypes.ErrFutureRev):
		return ErrFutureRevision
	case errors.Is(e, rpctypes.ErrRequestTooLarge):
		return ErrTooLarge
	case errors.Is(e, rpctypes.ErrNoSpace):
		return ErrNoSpace
	case errors.Is(e, rpctypes.ErrLeaseNotFound):
		return ErrLeaseNotFound
	case errors.Is(e, rpctypes.ErrTimeout), errors.Is(e, rpctypes.ErrTimeoutDueToConnectionLost),
		errors.Is(e, rpctypes.ErrTimeoutDueToLeaderFail):
		return ErrTimeout
	case errors.Is(e, rpctypes.ErrTooManyRequests):
		return ErrBusy
	default:
		return err
	}
}
