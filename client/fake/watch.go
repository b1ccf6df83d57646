package fake

import (
	"context"
	"sort"
	"strconv"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// Watch sends the initial state if asked, then changes until the context ends or the server cuts the watch.
func (b *backend) Watch(ctx context.Context, req *metav1.WatchRequest, accept func() error, send func([]object.Event) error) error {
	m, err := newMatcher(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return err
	}
	s := b.server
	s.mu.Lock()
	cut, at := s.cut, s.revision
	var first []object.Event
	if req.GetSendInitialEvents() || req.GetResourceVersion() == "" || req.GetResourceVersion() == "0" {
		for _, o := range b.selected(m) {
			first = append(first, object.Event{Type: object.Added, Object: o})
		}
		if req.GetSendInitialEvents() {
			mark := b.kind.New()
			mark.SetMetadata(&metav1.ObjectMeta{
				ResourceVersion: rv(at), Annotations: map[string]string{object.InitialEventsEnd: "true"},
			})
			first = append(first, object.Event{Type: object.Bookmark, Object: mark})
		}
	} else {
		at, err = strconv.ParseInt(req.GetResourceVersion(), 10, 64)
		if err == nil && at < s.oldest {
			err = apierrors.New(apierrors.Expired, "too old resource version: %d (%d)", at, s.oldest)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := accept(); err != nil {
		return err
	}
	if len(first) > 0 {
		if err := send(first); err != nil {
			return err
		}
	}
	for {
		s.mu.Lock()
		if oldest := s.oldest; at < oldest {
			s.mu.Unlock()
			return apierrors.New(apierrors.Expired, "too old resource version: %d (%d)", at, oldest)
		}
		changed := b.changed
		from := sort.Search(len(b.log), func(i int) bool { return b.log[i].revision > at })
		var batch []object.Event
		for _, c := range b.log[from:] {
			at = c.revision
			if e, ok := m.event(c); ok {
				batch = append(batch, e)
			}
		}
		s.mu.Unlock()
		if len(batch) > 0 {
			if err := send(batch); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cut:
			return apierrors.New(apierrors.ServiceUnavailable, "the watch was cut")
		case <-changed:
		}
	}
}

// event turns a change into what a watcher with this selector sees.
func (m matcher) event(c change) (object.Event, bool) {
	e := c.event
	is := e.Type != object.Deleted && m.matches(e.Object)
	was := c.old != nil && m.matches(c.old)
	switch {
	case is && was:
		return object.Event{Type: object.Modified, Object: e.Object}, true
	case is:
		return object.Event{Type: object.Added, Object: e.Object}, true
	case was:
		return object.Event{Type: object.Deleted, Object: e.Object}, true
	default:
		return e, false
	}
}
