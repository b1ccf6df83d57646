package embedded

import (
	"context"
	"errors"

	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"monoplane.dev/apiserver/store/etcd"
)

// serverError translates an error of the embedded server.
func serverError(err error) error {
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		return etcd.ErrCompacted
	case errors.Is(err, mvcc.ErrFutureRev):
		return etcd.ErrFutureRevision
	case errors.Is(err, servererrors.ErrRequestTooLarge):
		return etcd.ErrTooLarge
	case errors.Is(err, servererrors.ErrNoSpace):
		return etcd.ErrNoSpace
	case errors.Is(err, lease.ErrLeaseNotFound):
		return etcd.ErrLeaseNotFound
	case errors.Is(err, servererrors.ErrStopped):
		return etcd.ErrClosed
	case errors.Is(err, servererrors.ErrCanceled):
		return context.Canceled
	case errors.Is(err, servererrors.ErrTimeout):
		return etcd.ErrTimeout
	case errors.Is(err, servererrors.ErrTooManyRequests):
		return etcd.ErrBusy
	default:
		return err
	}
}
