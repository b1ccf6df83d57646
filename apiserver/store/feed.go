package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/watchcache"
)

const (
	// retryFeed is the pause before a broken watch is started again.
	retryFeed = 200 * time.Millisecond
	// firstWait and lastWait bound how long reach waits before it asks etcd how far the watch is.
	firstWait = 2 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// feed keeps the caches up to date until ctx ends.
func (s *Store) feed(ctx context.Context) {
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.behind.Store(&err)
		if ferr := s.client.Err(); ferr != nil {
			s.fail(ferr)
			return
		}
		s.lg.LogAttrs(ctx, slog.LevelWarn, "watching etcd failed, starting again", slog.Any("error", err))
		if errors.Is(err, etcd.ErrCompacted) {
			// What happened meanwhile cannot be known any more: all watchers must list again.
			why := apierrors.New(apierrors.Expired, "the history up to the present has been compacted")
			err = s.load(ctx, why)
			s.lg.LogAttrs(ctx, slog.LevelWarn, "loaded all objects anew", slog.Any("error", err))
		}
		select {
		case <-time.After(retryFeed):
		case <-ctx.Done():
			return
		}
	}
}

// fail ends all watches because the store is broken for good.
func (s *Store) fail(err error) {
	s.lg.LogAttrs(context.Background(), slog.LevelError, "the store has failed", slog.Any("error", err))
	failed := apierrors.New(apierrors.ServiceUnavailable, "the store has failed: %v", err)
	s.progress.Stop(failed)
	for _, k := range s.kinds {
		k.cache.Close(failed)
	}
}

// follow applies what one etcd watch delivers.
func (s *Store) follow(ctx context.Context) error {
	w, err := s.client.Watch(ctx, root, s.progress.Revision()+1)
	if err != nil {
		return err
	}
	defer w.Close()
	s.behind.Store(nil)
	s.watch.Store(&w)
	defer s.watch.Store(nil)
	for {
		b, err := w.Recv(ctx)
		if err != nil {
			return err
		}
		if err := s.applyBatch(b); err != nil {
			return err
		}
	}
}

// applyBatch puts the changes of b into the caches. The order between kinds does not matter, because nobody is
// told of a revision before all are done.
func (s *Store) applyBatch(b etcd.Batch) error {
	changes := map[*kind][]watchcache.Change{}
	applied := s.progress.Revision()
	for _, ev := range b.Events {
		if ev.Kv.ModRevision <= applied {
			continue
		}
		s.bytes.add(int64(len(ev.Kv.Value)))
		k, key := s.lookup(string(ev.Kv.Key))
		if k == nil {
			continue
		}
		ch := watchcache.Change{Key: key, Revision: ev.Kv.ModRevision}
		if ev.Type == mvccpb.Event_PUT {
			item, err := s.item(k, key, ev.Kv)
			if err != nil {
				return err
			}
			ch.Item = item
		}
		changes[k] = append(changes[k], ch)
	}
	s.arriving.Store(max(applied, b.Revision))
	for k, chs := range changes {
		k.received.Add(int64(len(chs)))
		k.cache.Apply(chs)
	}
	if b.Revision > applied {
		s.progress.Set(b.Revision)
	}
	return nil
}

// reach waits until the caches have got to revision.
func (s *Store) reach(ctx context.Context, revision int64) error {
	if s.progress.Revision() >= revision {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	err := s.await(limited, revision)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return apierrors.New(apierrors.Timeout, "the server has not caught up with etcd in time").WithRetryAfter(1)
	}
	return err
}

// await is reach without an end of its own.
func (s *Store) await(ctx context.Context, revision int64) error {
	if !s.client.Shared() {
		return s.progress.Wait(ctx, revision)
	}
	// In a shared etcd the revision may belong to a key outside our tree, about which the watch is silent
	// unless asked.
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		wctx, cancel := context.WithTimeout(ctx, wait)
		err := s.progress.Wait(wctx, revision)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		if w := s.watch.Load(); w != nil {
			(*w).Progress(ctx)
		}
	}
}

// item returns the object of a put: the very one that was written when we wrote it, otherwise a decoded one.
func (s *Store) item(k *kind, key string, kv *mvccpb.KeyValue) (*watchcache.Item, error) {
	o := s.take(writerOf(kv.Value), kv.ModRevision)
	if o == nil {
		return k.decode(key, kv.Value, kv.ModRevision)
	}
	return &watchcache.Item{Key: key, Object: o, Revision: kv.ModRevision, Size: plainSize(kv.Value)}, nil
}
