package watchcache

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// feeder makes the changes of a cache.
type feeder struct {
	c        *Cache
	revision int64
}

func newFeeder(cfg Config) *feeder {
	f := &feeder{c: New(cfg), revision: 1}
	f.c.Replace(nil, 1, nil)
	return f
}

func (f *feeder) put(o object.Object) {
	f.revision++
	m := o.GetMetadata()
	m.ResourceVersion = strconv.FormatInt(f.revision, 10)
	key := m.GetNamespace() + "/" + m.GetName()
	size := 0
	if cm, ok := o.(*corev1.ConfigMap); ok {
		for k, v := range cm.Data {
			size += len(k) + len(v) + 6
		}
	}
	f.c.Apply([]Change{{Key: key, Revision: f.revision, Item: &Item{Key: key, Object: o, Revision: f.revision,
		Size: size}}})
}

func (f *feeder) remove(key string) {
	f.revision++
	f.c.Apply([]Change{{Key: key, Revision: f.revision}})
}

// large is a config map of one text; fine is one of many small ones, which takes several times what it is encoded in.
func large(name string, i int) object.Object {
	return &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:     map[string]string{"a": strings.Repeat(fmt.Sprintf("%08d ", i), 100_000)},
	}
}

func fine(name string, i int) object.Object {
	data := map[string]string{}
	for k := range 10_000 {
		data[strconv.Itoa(k)+"."+strconv.Itoa(i)] = strconv.Itoa(i)
	}
	return &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// However large the objects are that are replaced and deleted, the history keeps no more of them alive than it may: by
// its own count and by what the heap really holds, after the changes and at any time between.
func TestHistoryIsBoundedInBytes(t *testing.T) {
	const bound, slack = 8 << 20, 6 << 20 // a third of what is counted may be wrong, and a chunk or two is open
	for name, play := range map[string]func(*feeder, func()){
		"updates of a large object": func(f *feeder, look func()) {
			for i := range 200 {
				f.put(large("a", i))
				look()
			}
			f.remove("default/a")
		},
		"deletions of large objects": func(f *feeder, look func()) {
			for i := range 200 {
				f.put(large(fmt.Sprint(i), i))
				f.remove("default/" + fmt.Sprint(i))
				look()
			}
		},
		"large objects deleted at last": func(f *feeder, _ func()) {
			for i := range 100 {
				f.put(large(fmt.Sprint(i), i))
			}
			for i := range 100 {
				f.remove("default/" + fmt.Sprint(i))
			}
		},
		"updates of small fields": func(f *feeder, look func()) {
			for i := range 100 {
				f.put(fine("a", i))
				look()
			}
			f.remove("default/a")
		},
		"small objects": func(f *feeder, _ func()) {
			for i := range 30_000 {
				f.put(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i % 10)}})
			}
			for i := range 10 {
				f.remove("default/" + fmt.Sprint(i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := liveHeap()
			f := newFeeder(Config{Kind: corev1.ConfigMapKind, HistoryEvents: 1 << 20})
			n := 0
			look := func() {
				if n++; n%25 > 0 {
					return
				}
				const live = 2 << 20 // the object itself
				if held := liveHeap() - before; held > bound+slack+live {
					t.Fatalf("after %d changes %d bytes are held", n, held)
				}
			}
			play(f, look)
			held := liveHeap() - before
			t.Logf("%d changes of %d are kept, counted as %d bytes, in %d", f.c.log.end-f.c.log.start, f.c.log.end,
				f.c.log.bytes, held)
			if counted := f.c.Stats().HistoryBytes; counted > bound {
				t.Errorf("%d bytes are counted", counted)
			}
			if held > bound+slack {
				t.Errorf("%d bytes are held", held)
			}
			if f.c.log.end-f.c.log.start < 2 {
				t.Error("nothing is kept")
			}
			runtime.KeepAlive(f)
		})
	}
}

// A watcher never gets, and while it is slow to send never holds, more than a piece and one object, wherever its
// events come from: the objects there are, earlier changes, or what happens.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	f := newFeeder(Config{Kind: corev1.ConfigMapKind})
	start := f.revision
	const n = 40
	for i := range n {
		f.put(large(fmt.Sprint(i), i))
	}
	for name, opts := range map[string]WatchOptions{
		"initial":        {Initial: true},
		"earlier":        {From: start},
		"earlier, parts": {From: start, Selection: Selection{Namespace: "default"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := f.c.Watch(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for seen := 0; seen < n; {
				events, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				size := 0
				for _, e := range events {
					size += len(e.Object.(*corev1.ConfigMap).Data["a"])
				}
				if seen += len(events); size > pieceBytes+900_000 {
					t.Errorf("a batch of %d events and %d bytes", len(events), size)
				}
			}
		})
	}
}
