package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// Sink takes what a Feed reads, one call at a time on the feed's goroutine. It must not block.
type Sink[T object.Object] interface {
	// Begin says that everything is read, for the first time or again: what stands after Upsert and Remove up to End is
	// all there is. It may begin anew before it ends.
	Begin()
	// Upsert says that an object is there, new or changed or as it was.
	Upsert(o T)
	// Remove says that an object is gone; o is its last state.
	Remove(o T)
	// End says that everything was read.
	End()
	// Reach says that everything up to a revision was told. It is not called between Begin and End.
	Reach(revision uint64)
}

// Feed follows the objects of a kind by one watch, and keeps nothing but its place. Who needs less than the objects
// takes it instead of a Cache.
type Feed[T object.Object] struct {
	cfg  Config[T]
	sink Sink[T]
	rng  *rand.Rand
	// complete says that the sink has a complete state, which revision is that of.
	complete bool
	revision uint64
}

// NewFeed returns a feed for sink. The indexes of cfg are for caches alone.
func NewFeed[T object.Object](cfg Config[T], sink Sink[T]) *Feed[T] {
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = 100 * time.Millisecond
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = 10 * time.Second
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Feed[T]{cfg: cfg, sink: sink, rng: rand.New(rand.NewPCG(cfg.Seed, 0))} //nolint:gosec // jitter
}

// errRelist says that the watch cannot be resumed.
var errRelist = errors.New("the revision is gone")

// Run feeds the sink until ctx ends, and returns ctx's error. It must be called once.
//
//	read everything --> apply changes --> watch lost --> back off
//	      ^                   ^                             |  |
//	      |                   +---------- resume -----------+  |
//	      +-------------- the revision is gone ----------------+
func (f *Feed[T]) Run(ctx context.Context) error {
	relist, wait := true, f.cfg.MinBackoff
	for {
		began := time.Now()
		err := f.watch(ctx, relist)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		relist = errors.Is(err, errRelist) || !f.complete
		if !errors.Is(err, io.EOF) { // a server ends every watch once in a while
			f.cfg.Logger.Info("watch lost", "kind", f.kind(), "error", err)
		}
		if f.cfg.OnLost != nil {
			f.cfg.OnLost(err)
		}
		if time.Since(began) > f.cfg.MaxBackoff {
			wait = f.cfg.MinBackoff // it worked for a while
		}
		pause := time.NewTimer(wait/2 + time.Duration(f.rng.Int64N(int64(wait))))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
		wait = min(2*wait, f.cfg.MaxBackoff)
	}
}

func (f *Feed[T]) kind() string {
	var o T
	return fmt.Sprintf("%T", o)
}

// watch runs one watch to its end; the error says why it ended.
func (f *Feed[T]) watch(ctx context.Context, relist bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &metav1.WatchRequest{
		Namespace: f.cfg.Namespace, LabelSelector: f.cfg.LabelSelector, FieldSelector: f.cfg.FieldSelector,
		AllowWatchBookmarks: true,
	}
	if relist {
		yes := true
		req.SendInitialEvents = &yes
		req.ResourceVersionMatch = "NotOlderThan"
	} else {
		req.ResourceVersion = strconv.FormatUint(f.revision, 10)
	}
	next, err := f.cfg.Source(ctx, req)
	if err != nil {
		return judge(err)
	}
	reading := relist
	if reading {
		f.complete = false
		f.sink.Begin()
	}
	for {
		batch, err := next()
		if err != nil {
			return judge(err)
		}
		for _, e := range batch {
			if reading, err = f.apply(e, reading); err != nil {
				return err
			}
		}
	}
}

// judge tells errors after which everything must be read again from those after which the watch can be resumed.
func judge(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	e := apierrors.From(err)
	if e.Reason() == apierrors.Expired {
		return fmt.Errorf("%w: %w", errRelist, err)
	}
	for _, cause := range e.Status().GetDetails().GetCauses() {
		// The server is behind us: it was restored from an older snapshot.
		if cause.GetReason() == "ResourceVersionTooLarge" {
			return fmt.Errorf("%w: %w", errRelist, err)
		}
	}
	return err
}

// apply handles one event. It returns whether the complete state is still being read.
func (f *Feed[T]) apply(e Event[T], reading bool) (bool, error) {
	if e.Type == object.Error {
		return reading, judge(apierrors.FromStatus(e.Status))
	}
	meta := e.Object.GetMetadata()
	rev, err := strconv.ParseUint(object.Revision(meta), 10, 64)
	if err != nil {
		return reading, fmt.Errorf("an event carries the bad resourceVersion %q", object.Revision(meta))
	}
	switch e.Type {
	case object.Bookmark:
		if reading && meta.GetAnnotations()[object.InitialEventsEnd] == "true" {
			f.sink.End()
			f.complete, reading = true, false
		}
	case object.Added, object.Modified:
		f.sink.Upsert(e.Object)
	case object.Deleted:
		f.sink.Remove(e.Object)
	default:
		return reading, fmt.Errorf("unknown event type %q", e.Type)
	}
	if !reading {
		f.revision = rev
		f.sink.Reach(rev)
	}
	return reading, nil
}
