package watchcache

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Who lists, watches and gets while everything is replaced, as it is when etcd's watch was lost, sees all of the one
// content or all of the other.
func TestReplacedWhileRead(t *testing.T) {
	const objects, generations = 20, 300
	lost := errors.New("lost")
	c := New(Config{Kind: corev1.ConfigMapKind})
	replace := func(generation int64) {
		var items []*Item
		for i := range objects {
			o := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("c%02d", i),
				Generation: generation}}
			items = append(items, &Item{Key: "d/" + o.Metadata.Name, Object: o, Revision: generation})
		}
		c.Replace(items, generation, lost)
	}
	replace(1)
	var all sync.WaitGroup
	done := make(chan struct{})
	beside := func(read func()) {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					read()
				}
			}
		})
	}
	beside(func() {
		page, ok, err := c.List(ListOptions{})
		if err != nil || !ok {
			t.Errorf("list: %v %v", ok, err)
		}
		var seen []int64
		for _, o := range page.Objects {
			seen = append(seen, o.GetMetadata().GetGeneration())
		}
		if len(seen) != objects || len(slices.Compact(seen)) != 1 {
			t.Errorf("a list has generations %v", seen)
		}
	})
	beside(func() {
		if item := c.Get("d/c07"); item == nil || item.Object.GetMetadata().GetGeneration() != item.Revision {
			t.Errorf("get: %v", item)
		}
	})
	beside(func() {
		w, err := c.Watch(WatchOptions{Initial: true})
		if err != nil {
			if !errors.Is(err, lost) { // as it is at the end
				t.Errorf("watch: %v", err)
			}
			return
		}
		defer w.Stop()
		for err == nil {
			_, err = w.Next(t.Context())
		}
		if !errors.Is(err, lost) {
			t.Errorf("a watch ended with %v", err)
		}
	})
	beside(func() {
		if n := c.Len(); n != objects {
			t.Errorf("there are %d", n)
		}
		_ = c.Stats()
		_ = c.Oldest(3)
	})
	for g := range int64(generations) {
		replace(g + 2)
	}
	close(done)
	c.Close(lost)
	all.Wait()
}
