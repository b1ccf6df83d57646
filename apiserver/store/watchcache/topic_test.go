package watchcache

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/fields"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// What all watchers of a part have read is not kept: a thousand agents would otherwise keep every state that their
// pods ever had.
func TestReadPartsAreDropped(t *testing.T) {
	c := New(Config{Kind: corev1.PodKind, Field: podField, Indexes: []string{"spec.nodeName"}})
	c.Replace(nil, 1, nil)
	revision := int64(1)
	write := func() {
		revision++
		o := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "ns", ResourceVersion: strconv.FormatInt(revision, 10)},
			Spec:     &corev1.PodSpec{NodeName: "n1"},
		}
		c.Apply([]Change{{Key: "ns/p", Revision: revision, Item: &Item{Key: "ns/p", Object: o, Revision: revision}}})
	}
	watch := func() *Watcher {
		w, err := c.Watch(WatchOptions{Selection: Selection{Field: fields.OneTermEqualSelector("spec.nodeName", "n1")},
			From: revision})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	read := func(w *Watcher, want int) {
		t.Helper()
		for got := 0; got < want; {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got += len(events)
		}
	}
	kept := func(want int) {
		t.Helper()
		n := 0
		for _, chunk := range c.topics[topicKey{"spec.nodeName", "n1"}].chunks {
			n += len(chunk.events)
		}
		if n != want {
			t.Errorf("%d changes are kept, want %d", n, want)
		}
	}
	a, b := watch(), watch()
	write()
	write()
	read(a, 2)
	kept(2)
	read(b, 2)
	kept(0)
	write()
	read(b, 1)
	kept(1)
	a.Stop() // it will never read the last
	kept(0)
	late := watch()
	write()
	read(late, 1)
	kept(1)
	read(b, 1)
	kept(0)
}
