package bodycache_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"monoplane.dev/apiserver/rest/bodycache"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func pod(uid string, revision int) object.Object {
	return &corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: uid, ResourceVersion: strconv.Itoa(revision)}}
}

func counting(n *atomic.Int64, size int) bodycache.Encoder {
	return func(b []byte, o object.Object) []byte {
		n.Add(1)
		b = append(b, o.GetMetadata().GetUid()...)
		return append(b, strings.Repeat(".", size)...)
	}
}

// Many readers of many revisions: each is encoded once.
func TestOnce(t *testing.T) {
	c := bodycache.New(1 << 20)
	var made atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				if got := string(c.Get(pod(fmt.Sprint("u", i), i+1), 0, false, counting(&made, 3))); got != fmt.Sprint("u", i,
					"...") {
					t.Errorf("body %q", got)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() != 200 {
		t.Errorf("%d encodings of 200 objects", made.Load())
	}
	if n := c.Encoded(); n != 200 {
		t.Errorf("Encoded() = %d", n)
	}
}

// Kind, revision, uid, form and deletion tell bodies apart.
func TestApart(t *testing.T) {
	c := bodycache.New(1 << 20)
	text := func(s string) bodycache.Encoder {
		return func(b []byte, _ object.Object) []byte { return append(b, s...) }
	}
	node := &corev1.Node{Metadata: &metav1.ObjectMeta{Uid: "a", ResourceVersion: "7"}}
	for i := range 2 {
		for _, tt := range []struct {
			o       object.Object
			form    bodycache.Form
			deleted bool
			want    string
		}{
			{pod("a", 7), 0, false, "pod"}, {pod("a", 7), 1, false, "form"}, {pod("a", 7), 0, true, "deleted"},
			{pod("a", 8), 0, false, "revision"}, {pod("b", 7), 0, false, "uid"}, {node, 0, false, "node"},
			{&corev1.Pod{}, 0, false, "none"}, {pod("a", -1), 0, false, "negative"},
		} {
			if got := string(c.Get(tt.o, tt.form, tt.deleted, text(tt.want))); got != tt.want {
				t.Errorf("round %d: got %q, want %q", i, got, tt.want)
			}
		}
	}
}

// The cache holds at most its limit: of ten times as much, most has to be made again.
func TestBounded(t *testing.T) {
	const limit, size, n = 1 << 20, 10 << 10, 1000
	c := bodycache.New(limit)
	var made atomic.Int64
	for i := range n {
		c.Get(pod("u", i+1), 0, false, counting(&made, size))
	}
	made.Store(0)
	for i := range n {
		c.Get(pod("u", i+1), 0, false, counting(&made, size))
	}
	if kept := n - made.Load(); kept*size > limit {
		t.Errorf("%d bodies of %d bytes were kept within %d bytes", kept, size, limit)
	}
	made.Store(0)
	c.Get(pod("u", n), 0, false, counting(&made, size))
	if made.Load() != 0 {
		t.Error("the body used last was dropped")
	}
}

func TestOff(t *testing.T) {
	c := bodycache.New(0)
	var made atomic.Int64
	for range 2 {
		if got := string(c.Get(pod("u", 1), 0, false, counting(&made, 1))); got != "u." {
			t.Errorf("body %q", got)
		}
	}
	if made.Load() != 2 {
		t.Errorf("%d encodings", made.Load())
	}
}
