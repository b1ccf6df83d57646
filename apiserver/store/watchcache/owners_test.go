package watchcache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// After any history the counts are those of the objects that are there; nothing is left of what is gone.
func TestDependents(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := New(Config{Kind: corev1.PodKind})
	there := map[string]*corev1.Pod{}
	random := func(key string) *Item {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: key}}
		for range r.IntN(4) {
			p.Metadata.OwnerReferences = append(p.Metadata.OwnerReferences,
				&metav1.OwnerReference{Uid: fmt.Sprint("u", r.IntN(4))})
		}
		if r.IntN(4) == 0 {
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		there[key] = p
		return &Item{Key: key, Object: p}
	}
	check := func(step int64) {
		t.Helper()
		all := 0
		for uid := range 4 {
			want, id := 0, fmt.Sprint("u", uid)
			for _, p := range there {
				for _, ref := range p.Metadata.OwnerReferences {
					if ref.Uid == id && p.Metadata.DeletionTimestamp == nil {
						want++
						break // however often it says so
					}
				}
			}
			if got := c.Dependents(id); got != want {
				t.Fatalf("step %d: %s has %d dependents, want %d", step, id, got, want)
			}
			if want > 0 {
				all++
			}
		}
		if len(c.owners) != all {
			t.Fatalf("step %d: %d owners are kept, want %d", step, len(c.owners), all)
		}
	}
	for step := range int64(2000) {
		key := fmt.Sprint("p", r.IntN(10))
		ch := Change{Key: key, Revision: step + 1}
		switch r.IntN(20) {
		case 0:
			clear(there)
			c.Replace([]*Item{random(key)}, step+1, nil)
			check(step)
			continue
		case 1, 2, 3, 4, 5:
			delete(there, key)
		default:
			ch.Item = random(key)
		}
		c.Apply([]Change{ch})
		check(step)
	}
}
