package rest_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// watcher reads a watch in JSON.
type watcher struct {
	t      *testing.T
	res    *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
}

func (f *front) watch(t *testing.T, path, accept string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", f.http.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	res, err := f.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &watcher{t, res, bufio.NewReader(res.Body), cancel}
}

type frame struct {
	Type   string
	Object struct {
		Kind, APIVersion, Reason string
		Code                     int
		Metadata                 struct {
			Name, ResourceVersion string
			Annotations           map[string]string
		}
		ColumnDefinitions []any
		Rows              []struct {
			Cells  []any
			Object *struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     any
			}
		}
		Spec any
	}
}

// next returns the next event; it fails the test when there is none.
func (w *watcher) next() frame {
	w.t.Helper()
	line, err := w.lines.ReadString('\n')
	if err != nil {
		w.t.Fatalf("next event: %v (read %q)", err, line)
	}
	var f frame
	if err := json.Unmarshal([]byte(line), &f); err != nil {
		w.t.Fatalf("event %q: %v", line, err)
	}
	return f
}

// spec: OBJ-7, CLI-2
func TestWatch(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	for _, path := range []string{
		pods + "?watch=true&resourceVersion=0", pods + "?watch=1", "/api/v1/pods?watch",
		"/api/v1/watch/pods", "/api/v1/watch/namespaces/default/pods?resourceVersion=0",
		pods + "?watch=true&fieldSelector=metadata.name%3Da&resourceVersion=0",
	} {
		w := f.watch(t, path, "")
		if w.res.StatusCode != 200 || w.res.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %v", path, w.res.StatusCode, w.res.Header)
		}
		if e := w.next(); e.Type != "ADDED" || e.Object.Kind != "Pod" || e.Object.APIVersion != "v1" ||
			e.Object.Metadata.Name != "a" {
			t.Errorf("%s: first event %+v", path, e)
		}
		w.cancel()
	}
}

// The header is there before any event is.
//
// spec: OBJ-7
func TestWatchHeadersComeAtOnce(t *testing.T) {
	f := newFront(t)
	rv := f.do("GET", pods, "").object(t)["metadata"].(map[string]any)["resourceVersion"].(string)
	w := f.watch(t, pods+"?watch=true&resourceVersion="+rv, "") // returns once the header has come
	f.createPod("a")
	if e := w.next(); e.Type != "ADDED" || e.Object.Metadata.Name != "a" {
		t.Errorf("event %+v", e)
	}
	f.do("PATCH", pods+"/a", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", "application/merge-patch+json")
	if e := w.next(); e.Type != "MODIFIED" {
		t.Errorf("event %+v", e)
	}
	f.do("DELETE", pods+"/a?gracePeriodSeconds=0", "")
	if e := w.next(); e.Type != "DELETED" || e.Object.Metadata.Name != "a" || e.Object.Spec == nil {
		t.Errorf("event %+v", e)
	}
}

// spec: OBJ-7
func TestWatchInitialEvents(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	const query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	w := f.watch(t, pods+query, "")
	if e := w.next(); e.Type != "ADDED" {
		t.Errorf("event %+v", e)
	}
	if e := w.next(); e.Type != "BOOKMARK" || e.Object.Kind != "Pod" || e.Object.Metadata.ResourceVersion == "" ||
		e.Object.Metadata.Annotations[object.InitialEventsEnd] != "true" {
		t.Errorf("event %+v", e)
	}
	w = f.watch(t, pods+query, asMetadata)
	if e := w.next(); e.Type != "ADDED" || e.Object.Kind != "PartialObjectMetadata" ||
		e.Object.APIVersion != "meta.k8s.io/v1" || e.Object.Spec != nil || e.Object.Metadata.Name != "a" {
		t.Errorf("event %+v", e)
	}
	if e := w.next(); e.Object.Kind != "PartialObjectMetadata" ||
		e.Object.Metadata.Annotations[object.InitialEventsEnd] != "true" {
		t.Errorf("event %+v", e)
	}
	w = f.watch(t, pods+query, asTable)
	if e := w.next(); e.Object.Kind != "Table" || len(e.Object.ColumnDefinitions) != 2 || len(e.Object.Rows) != 1 ||
		e.Object.Rows[0].Cells[0] != "a" || e.Object.Rows[0].Object.Kind != "PartialObjectMetadata" {
		t.Errorf("event %+v", e)
	}
	if e := w.next(); e.Object.Kind != "Table" || e.Object.ColumnDefinitions != nil ||
		e.Object.Metadata.ResourceVersion == "" {
		t.Errorf("event %+v", e)
	}
}

// spec: OBJ-7
func TestWatchProtobuf(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	w := f.watch(t, pods+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"application/vnd.kubernetes.protobuf,application/json")
	if got := w.res.Header.Get("Content-Type"); got != "application/vnd.kubernetes.protobuf;stream=watch" {
		t.Errorf("Content-Type %q", got)
	}
	for _, want := range []object.EventType{object.Added, object.Bookmark} {
		var header [4]byte
		_, err := io.ReadFull(w.lines, header[:])
		frame := make([]byte, binary.BigEndian.Uint32(header[:])%(1<<20))
		if err == nil {
			_, err = io.ReadFull(w.lines, frame)
		}
		var event k8smeta.WatchEvent
		if err = errors.Join(err, event.Unmarshal(frame)); err != nil || event.Type != string(want) {
			t.Fatalf("type %q, error %v", event.Type, err)
		}
		p := &corev1.Pod{}
		if err := codec.DecodeProtobuf(event.Object.Raw, p); err != nil {
			t.Fatal(err)
		}
		if want == object.Added && (p.GetMetadata().GetName() != "a" ||
			p.GetSpec().GetContainers()[0].GetImage() != "host") {
			t.Errorf("pod %v", p)
		}
	}
}

// A watch that cannot begin is an HTTP error; one that breaks off ends with an ERROR event.
//
// spec: OBJ-7
func TestWatchErrors(t *testing.T) {
	f := newFront(t)
	first := f.createPod("a").revision(t)
	f.createPod("b")
	w := f.watch(t, pods+"?watch=true", "")
	w.next()
	w.next()
	f.api.Expire()
	f.want(f.do("GET", pods+"?watch=true&resourceVersion="+first, ""), 410, `"reason":"Expired"`)

	f.createPod("c")
	if e := w.next(); e.Type != "ADDED" && e.Type != "ERROR" {
		t.Errorf("event %+v", e)
	}
	f.api.React(func(_ context.Context, method string, _ any) error {
		if method == corev1rpc.Pods_Watch_FullMethodName {
			return apierrors.NewForbidden(corev1.PodKind, "", "not you")
		}
		return nil
	})
	f.want(f.do("GET", pods+"?watch=true", ""), 403, `"reason":"Forbidden"`)
}

// spec: OBJ-7
func TestWatchEndsWithAnErrorEvent(t *testing.T) {
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		b := &scripted{watch: func(_ context.Context, accept func() error, send func([]object.Event) error) error {
			_ = accept()
			_ = send([]object.Event{{Type: object.Bookmark,
				Object: &corev1.Pod{Metadata: &metav1.ObjectMeta{ResourceVersion: "7"}}}})
			return apierrors.New(apierrors.Expired, "too old resource version: 1 (7)")
		}}
		f := b.front(t)
		w := f.watch(t, pods+"?watch=true", accept)
		all, err := io.ReadAll(w.lines)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"ERROR", "Expired", "too old resource version: 1 (7)"} {
			if !strings.Contains(string(all), text) {
				t.Errorf("%s: the stream lacks %q: %q", accept, text, all)
			}
		}
	}
}

// How long a watch lasts is for the service to say: the front passes on what the client asks for, and ends nothing by
// itself.
//
// spec: OBJ-7
func TestWatchTimeoutIsTheServices(t *testing.T) {
	s := &scripted{}
	s.watch = func(ctx context.Context, accept func() error, _ func([]object.Event) error) error {
		if limit, ok := ctx.Deadline(); ok {
			t.Errorf("the front ends the watch at %v", limit)
		}
		return accept()
	}
	f := s.front(t)
	for path, want := range map[string]int64{pods + "?watch=true&timeoutSeconds=7": 7, pods + "?watch=true": 0} {
		a := f.want(f.do("GET", path, ""), 200)
		if got := s.watched.GetTimeoutSeconds(); got != want || a.body != "" {
			t.Errorf("%s: the service was asked for %d s; the stream was %q", path, got, a.body)
		}
	}
}

// No goroutine is left when clients go, nor when the front closes.
func TestWatchesLeaveNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	func() {
		f := newFront(t)
		f.createPod("a")
		var left []*watcher
		for i := range 20 {
			w := f.watch(t, pods+"?watch=true", "")
			w.next()
			if i%2 == 0 {
				w.cancel()
			} else {
				left = append(left, w)
			}
		}
		f.h.Close()
		for _, w := range left {
			if _, err := io.ReadAll(w.lines); err != nil {
				t.Errorf("a watch did not end cleanly: %v", err)
			}
		}
		f.http.Client().CloseIdleConnections()
		f.http.Close()
		f.api.Stop()
	}()
	goleak.VerifyNone(t, before)
}

// A client that does not read is cut off, so that it holds no resources.
func TestStalledWatcherIsCutOff(t *testing.T) {
	ended := make(chan error, 1)
	big := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "a", ResourceVersion: "7",
		Annotations: map[string]string{"x": strings.Repeat("x", 1<<20)}}}
	b := &scripted{stall: 50 * time.Millisecond, watch: func(_ context.Context, accept func() error,
		send func([]object.Event) error) error {
		_ = accept()
		for {
			if err := send([]object.Event{{Type: object.Added, Object: big}}); err != nil {
				ended <- err
				return err
			}
		}
	}}
	f := b.front(t)
	f.watch(t, pods+"?watch=true", "")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the service was not told that the client is gone")
	}
}
