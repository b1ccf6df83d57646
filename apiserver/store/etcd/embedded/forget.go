package embedded

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apiserver/store/etcd"
)

// ForgetLog makes etcd drop the newest entries of its log from memory, where they stay until a hundred more have come:
// a hundred megabytes when the last hundred writes were of a megabyte each. They are on the disk. It is done by as
// many entries that change nothing.
func (e *Embedded) ForgetLog(ctx context.Context) error {
	if err := e.diskError(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for range logEntries + 1 {
		g.Go(func() error {
			_, err := call(ctx, e, func(ctx context.Context) (*etcdserverpb.CompactionResponse, error) {
				return e.srv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: 1})
			})
			if errors.Is(err, etcd.ErrCompacted) {
				return nil // as it always is
			}
			return err
		})
	}
	return g.Wait()
}
