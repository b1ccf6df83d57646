package store

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apiserver/store/watchcache"
)

const (
	// evictBatch is how many objects one transaction deletes, all at one revision: what a watcher makes of that is the
	// cache's concern. etcd takes 128 operations.
	evictBatch = 100
	// evictTimeout bounds one such transaction.
	evictTimeout = 10 * time.Second
)

// evict deletes the oldest objects of kinds that have too many.
func (s *Store) evict(ctx context.Context) {
	for _, k := range s.kinds {
		if k.res.Max <= 0 {
			continue
		}
		for batch := range slices.Chunk(k.cache.Oldest(k.res.Max), evictBatch) {
			if err := s.evictBatch(ctx, k, batch); err != nil {
				if ctx.Err() == nil {
					s.lg.LogAttrs(ctx, slog.LevelWarn, "cannot delete the oldest objects of a kind",
						slog.String("kind", k.res.Kind.Resource()), slog.Int("max", k.res.Max), slog.Any("error", err))
				}
				return // the next round tries again
			}
		}
	}
}

// evictBatch deletes those of items that have not been written since.
func (s *Store) evictBatch(ctx context.Context, k *kind, items []*watchcache.Item) error {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	req := &etcdserverpb.TxnRequest{}
	for _, item := range items {
		key := []byte(k.prefix + item.Key)
		req.Success = append(req.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{
			RequestTxn: &etcdserverpb.TxnRequest{
				Compare: []*etcdserverpb.Compare{compareRevision(key, etcdserverpb.Compare_EQUAL, item.Revision)},
				Success: []*etcdserverpb.RequestOp{deleteOp(key)},
			},
		}})
	}
	resp, err := s.client.Txn(ctx, req)
	if err != nil {
		return s.writeError(err)
	}
	// The next round begins with what is left.
	return s.reach(ctx, resp.Header.Revision)
}
