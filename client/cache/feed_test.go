package cache_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
)

// told notes what a feed tells.
type told struct{ words []string }

func (s *told) say(words ...string)  { s.words = append(s.words, strings.Join(words, " ")) }
func (s *told) Begin()               { s.say("begin") }
func (s *told) Upsert(o *corev1.Pod) { s.say("upsert", o.Metadata.Name) }
func (s *told) Remove(o *corev1.Pod) { s.say("remove", o.Metadata.Name) }
func (s *told) End()                 { s.say("end") }
func (s *told) Reach(uint64)         { s.say("reach") }

// A watch that is lost while everything is read has everything read anew; one that is lost later goes on where it was.
func TestFeed(t *testing.T) {
	event := func(kind object.EventType, name, revision string) cache.Event[*corev1.Pod] {
		m := &metav1.ObjectMeta{Name: name, ResourceVersion: revision}
		if kind == object.Bookmark && name == "end" {
			m.Annotations = map[string]string{object.InitialEventsEnd: "true"}
		}
		return cache.Event[*corev1.Pod]{Type: kind, Object: &corev1.Pod{Metadata: m}}
	}
	watches := []struct {
		from   string
		events []cache.Event[*corev1.Pod]
		end    error
	}{
		{"", []cache.Event[*corev1.Pod]{event(object.Added, "a", "3")}, io.EOF},
		{"", []cache.Event[*corev1.Pod]{event(object.Added, "a", "3"), event(object.Bookmark, "end", "7")}, io.EOF},
		{"7", []cache.Event[*corev1.Pod]{event(object.Modified, "a", "8"), event(object.Bookmark, "", "9")},
			apierrors.New(apierrors.Expired, "too old")},
		{"", []cache.Event[*corev1.Pod]{event(object.Added, "b", "6")}, errors.New("cut")},
		{"", []cache.Event[*corev1.Pod]{event(object.Bookmark, "end", "10"), event(object.Deleted, "b", "11")}, io.EOF},
		{"11", nil, nil},
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		seen := &told{}
		f := cache.NewFeed(cache.Config[*corev1.Pod]{Seed: 1, Source: func(ctx context.Context, req *metav1.WatchRequest) (
			func() ([]cache.Event[*corev1.Pod], error), error,
		) {
			w := watches[0]
			watches = watches[1:]
			if req.ResourceVersion != w.from || req.GetSendInitialEvents() != (w.from == "") {
				t.Errorf("watched from %q, want %q", req.ResourceVersion, w.from)
			}
			if len(watches) == 0 {
				cancel()
				return nil, ctx.Err()
			}
			return func() ([]cache.Event[*corev1.Pod], error) {
				events := w.events
				w.events = nil
				if events == nil {
					return nil, w.end
				}
				return events, nil
			}, nil
		}}, cache.Sink[*corev1.Pod](seen))
		if err := f.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		want := []string{
			"begin", "upsert a",
			"begin", "upsert a", "end", "reach",
			"upsert a", "reach", "reach",
			"begin", "upsert b",
			"begin", "end", "reach", "remove b", "reach",
		}
		if !slices.Equal(seen.words, want) {
			t.Errorf("told %q\nwant %q", seen.words, want)
		}
	})
}
