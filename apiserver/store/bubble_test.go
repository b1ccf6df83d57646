package store

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// spec: OBJ-13
func TestBubble(t *testing.T) {
	dir := t.TempDir() // its clean-up would wait in the bubble
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(dir)
		s := open(t, cfg)
		e := &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "e"}}
		create(t, s, e)
		p := pod("default", "p")
		create(t, s, p)
		w, err := s.Watch(t.Context(), corev1.EventKind, WatchOptions{SendInitialEvents: true, AllowBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		start := time.Now()
		events := collect(t, w, 2)
		if events[0].Type != object.Added || events[1].Type != object.Bookmark {
			t.Error(describe(events))
		}
		bookmarks := 0
		for {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if events[0].Type == object.Deleted {
				break
			}
			bookmarks += len(events)
		}
		if d := time.Since(start); d < time.Hour || d > time.Hour+2*time.Minute {
			t.Errorf("the event lived %v", d)
		}
		if bookmarks < 58 || bookmarks > 62 {
			t.Errorf("%d bookmarks in an hour", bookmarks)
		}
		_, err = s.Get(t.Context(), keyOf(e), "")
		wantReason(t, err, apierrors.NotFound)
		if _, err := s.Get(t.Context(), keyOf(p), ""); err != nil {
			t.Error(err)
		}
	})
	t.Logf("an hour took %v", time.Since(begin))
}
