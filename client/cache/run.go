package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// errRelist says that the watch cannot be resumed.
var errRelist = errors.New("the revision is gone")

// Run feeds the cache until ctx ends, and returns ctx's error. It must be called once.
//
//	read everything --> apply changes --> watch lost --> back off
//	      ^                   ^                             |  |
//	      |                   +---------- resume -----------+  |
//	      +-------------- the revision is gone ----------------+
func (c *Cache[T]) Run(ctx context.Context) error {
	relist, wait := true, c.cfg.MinBackoff
	for {
		began := time.Now()
		err := c.watch(ctx, relist)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		relist = errors.Is(err, errRelist) || !c.HasSynced()
		if !errors.Is(err, io.EOF) { // a server ends every watch once in a while
			c.cfg.Logger.Info("watch lost", "kind", c.kind(), "error", err)
		}
		if c.cfg.OnLost != nil {
			c.cfg.OnLost(err)
		}
		if time.Since(began) > c.cfg.MaxBackoff {
			wait = c.cfg.MinBackoff // it worked for a while
		}
		pause := time.NewTimer(wait/2 + time.Duration(c.rng.Int64N(int64(wait))))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
		wait = min(2*wait, c.cfg.MaxBackoff)
	}
}

func (c *Cache[T]) kind() string {
	var o T
	return fmt.Sprintf("%T", o)
}

// watch runs one watch to its end; the error says why it ended.
func (c *Cache[T]) watch(ctx context.Context, relist bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &metav1.WatchRequest{
		Namespace: c.cfg.Namespace, LabelSelector: c.cfg.LabelSelector, FieldSelector: c.cfg.FieldSelector,
		AllowWatchBookmarks: true,
	}
	if relist {
		yes := true
		req.SendInitialEvents = &yes
		req.ResourceVersionMatch = "NotOlderThan"
	} else {
		req.ResourceVersion = c.Revision()
	}
	next, err := c.cfg.Source(ctx, req)
	if err != nil {
		return judge(err)
	}
	var initial map[Key]T // the state being read; nil once it is complete
	if relist {
		initial = map[Key]T{}
	}
	for {
		batch, err := next()
		if err != nil {
			return judge(err)
		}
		c.dispatch.Lock()
		for _, e := range batch {
			if initial, err = c.apply(e, initial); err != nil {
				break
			}
		}
		c.dispatch.Unlock()
		if err != nil {
			return err
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

// apply handles one event. It returns the initial state as far as it has been read.
func (c *Cache[T]) apply(e Event[T], initial map[Key]T) (map[Key]T, error) {
	if e.Type == object.Error {
		err := apierrors.FromStatus(e.Status)
		return initial, judge(err)
	}
	meta := e.Object.GetMetadata()
	rev, err := strconv.ParseUint(meta.GetResourceVersion(), 10, 64)
	if err != nil {
		return initial, fmt.Errorf("an event carries the bad resourceVersion %q", meta.GetResourceVersion())
	}
	k := Key{meta.GetNamespace(), meta.GetName()}
	switch e.Type {
	case object.Bookmark:
		if initial != nil && meta.GetAnnotations()[object.InitialEventsEnd] == "true" {
			c.replace(initial)
			initial = nil
		}
		if initial != nil {
			return initial, nil
		}
	case object.Added, object.Modified:
		if initial != nil {
			initial[k] = e.Object
			return initial, nil
		}
		c.upsert(k, e.Object)
	case object.Deleted:
		if initial != nil {
			delete(initial, k)
			return initial, nil
		}
		if _, had := c.remove(k); had {
			c.deleted(e.Object)
		}
	default:
		return initial, fmt.Errorf("unknown event type %q", e.Type)
	}
	c.setRevision(rev)
	if !c.HasSynced() {
		close(c.synced)
		for _, h := range c.handlers {
			if h.OnSync != nil {
				h.OnSync()
			}
		}
	}
	return initial, nil
}

// replace makes the content what was read, and reports the difference.
func (c *Cache[T]) replace(state map[Key]T) {
	for _, o := range c.List("", nil) {
		k := KeyOf(o)
		if _, ok := state[k]; !ok {
			c.remove(k)
			c.deleted(o)
		}
	}
	for k, o := range state {
		c.upsert(k, o)
	}
}

func (c *Cache[T]) upsert(k Key, o T) {
	old, had := c.put(k, o)
	if had && old.GetMetadata().GetUid() != o.GetMetadata().GetUid() {
		// Another object took the name while we did not look: two changes, not one.
		c.deleted(old)
		had = false
	}
	if !had {
		for _, h := range c.handlers {
			if h.OnAdd != nil {
				h.OnAdd(o)
			}
		}
		return
	}
	if old.GetMetadata().GetResourceVersion() == o.GetMetadata().GetResourceVersion() {
		return // seen before: read again after a relist
	}
	for _, h := range c.handlers {
		if h.OnUpdate != nil {
			h.OnUpdate(old, o)
		}
	}
}

func (c *Cache[T]) deleted(o T) {
	for _, h := range c.handlers {
		if h.OnDelete != nil {
			h.OnDelete(o)
		}
	}
}
