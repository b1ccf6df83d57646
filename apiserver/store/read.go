package store

import (
	"context"
	"errors"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/object"
)

// Get returns an object, or NotFound. rv "" asks for the newest state, "0" for any, a revision for a state not
// older than that.
func (s *Store) Get(ctx context.Context, key Key, rv string) (object.Object, error) {
	k, err := s.kindOf(key)
	if err != nil {
		return nil, err
	}
	if _, err := s.fresh(ctx, rv); err != nil {
		return nil, err
	}
	item := k.cache.Get(objectKey(key.Namespace, key.Name))
	if item == nil {
		return nil, apierrors.NewNotFound(key.Kind, key.Name)
	}
	return item.Object, nil
}

// Revision returns a revision not older than any acknowledged write, at which the caches have arrived.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if _, err := s.fresh(ctx, ""); err != nil {
		return 0, err
	}
	return s.progress.Revision(), nil
}

// fresh waits until the caches are as new as rv asks for, and returns rv as a number.
func (s *Store) fresh(ctx context.Context, rv string) (int64, error) {
	revision, err := parseRevision(rv)
	switch {
	case err != nil:
		return 0, err
	case rv != "" && revision <= s.progress.Revision():
		return revision, nil
	}
	newest, err := s.newest(ctx, revision)
	if err != nil {
		return 0, err
	}
	if rv == "" {
		// Who has read an object of one kind does not then read another kind as it was before.
		return 0, s.reach(ctx, max(newest, s.arriving.Load()))
	}
	if revision > newest {
		limited, cancel := context.WithTimeout(ctx, s.cfg.Patience)
		defer cancel()
		switch err := s.await(limited, revision); {
		case err == nil:
			return revision, nil
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return 0, s.readError(err)
		}
		if newest, err = s.head(ctx); err != nil {
			return 0, s.readError(err)
		}
		return 0, apierrors.New(apierrors.Timeout, "Timeout: Too large resource version: %d, current: %d", revision, newest).
			WithCause(apierrors.Cause{Type: "ResourceVersionTooLarge", Message: "Too large resource version"}).
			WithRetryAfter(1)
	}
	return revision, s.reach(ctx, revision)
}

// newest returns a revision not older than any acknowledged write, and that of the newest transaction when it is to
// say whether revision is still to come.
func (s *Store) newest(ctx context.Context, revision int64) (int64, error) {
	newest, err := s.client.Revision(ctx)
	if err == nil && revision > newest {
		// Watchers may already know of a revision that no writer has been told of.
		newest, err = s.head(ctx)
	}
	if err != nil {
		return 0, s.readError(err)
	}
	return newest, nil
}

// head returns the revision of the newest transaction.
func (s *Store) head(ctx context.Context) (int64, error) {
	resp, err := s.client.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(versionKey), CountOnly: true})
	return resp.GetHeader().GetRevision(), err
}

// parseRevision reads a resourceVersion; "" and "0" give 0.
func parseRevision(rv string) (int64, error) {
	if rv == "" || rv == "0" {
		return 0, nil
	}
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != rv {
		return 0, apierrors.New(apierrors.BadRequest, "invalid resource version %q", rv)
	}
	return n, nil
}

// readError puts etcd's errors into the API's words.
func (s *Store) readError(err error) error {
	switch {
	case s.client.Err() != nil:
		return apierrors.New(apierrors.ServiceUnavailable, "the store has failed: %v", s.client.Err())
	case errors.Is(err, etcd.ErrClosed):
		return apierrors.New(apierrors.ServiceUnavailable, "the store is closed")
	case errors.Is(err, etcd.ErrUnavailable):
		return unavailable(err)
	case errors.Is(err, etcd.ErrTimeout):
		return apierrors.New(apierrors.Timeout, "etcd did not answer in time").WithRetryAfter(1)
	default:
		return err
	}
}

// Watch starts a watch (OBJ-7), which is expected to end when ctx does. The error is Expired when the history does not
// go back to the revision. A revision that is still to come is waited for, however long.
func (s *Store) Watch(ctx context.Context, kind *object.Kind, opts WatchOptions) (*Watcher, error) {
	k, err := s.kind(kind)
	if err != nil {
		return nil, err
	}
	from, err := s.watched(ctx, opts)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return k.cache.Watch(watchcache.WatchOptions{
		Selection: watchcache.Selection{Namespace: opts.Namespace, Label: opts.Label, Field: opts.Field},
		From:      from, Initial: from == 0 || opts.SendInitialEvents,
		Bookmarks: opts.AllowBookmarks, InitialEnd: opts.SendInitialEvents, Deadline: deadline,
	})
}

// watched returns the revision after which changes are wanted, 0 for all objects first, once the caches have arrived
// at it or it is still to come.
func (s *Store) watched(ctx context.Context, opts WatchOptions) (int64, error) {
	from, err := parseRevision(opts.ResourceVersion)
	switch {
	case err != nil:
		return 0, err
	case from == 0 || opts.SendInitialEvents:
		return s.fresh(ctx, opts.ResourceVersion)
	case from <= s.progress.Revision():
		return from, nil
	}
	newest, err := s.newest(ctx, from)
	if err == nil && from <= newest {
		err = s.reach(ctx, from)
	}
	return from, err
}

// Follow tells f of every object of a kind that there is, and from then on of every change, in order and before a read
// or a watch can show it: was is nil for a new object, is for one that is gone. A write that a later read sees has
// been told of. It ends with the store. f must be quick, and must not call the store.
func (s *Store) Follow(kind *object.Kind, f func(was, is object.Object)) error {
	k, err := s.kind(kind)
	if err != nil {
		return err
	}
	k.cache.Follow(f)
	return nil
}
