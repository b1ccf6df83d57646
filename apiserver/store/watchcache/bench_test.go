package watchcache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// BenchmarkFanOut applies changes one by one while 200 watchers count what they get.
func BenchmarkFanOut(b *testing.B) {
	for name, sel := range map[string]func(i int) Selection{
		"whole kind": func(int) Selection { return Selection{} },
		"namespace":  func(int) Selection { return Selection{Namespace: "default"} },
		"by node": func(i int) Selection {
			return Selection{Field: fields.OneTermEqualSelector("spec.nodeName", fmt.Sprint("n", i))}
		},
	} {
		b.Run(name, func(b *testing.B) {
			const watchers, round = 200, 1000
			p := NewProgress()
			c := New(Config{Kind: corev1.PodKind, Field: podField, Indexes: []string{"spec.nodeName"}, Progress: p})
			c.Replace(nil, 1, nil)
			p.Set(1)
			var seen atomic.Int64
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for i := range watchers {
				w, err := c.Watch(WatchOptions{Selection: sel(i), From: 1})
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer w.Stop()
					for {
						events, err := w.Next(ctx)
						if err != nil {
							return
						}
						seen.Add(int64(len(events)))
					}
				})
			}
			rev, each := int64(1), int64(watchers)
			if name == "by node" {
				each = 1
			}
			total := int64(0)
			for b.Loop() {
				for i := range round {
					rev++
					key := fmt.Sprint("default/", i%500)
					c.Apply([]Change{{Key: key, Revision: rev, Item: &Item{Key: key, Revision: rev, Size: 1, Object: &corev1.Pod{
						Metadata: &metav1.ObjectMeta{Namespace: "default", Name: key[8:]},
						Spec:     &corev1.PodSpec{NodeName: fmt.Sprint("n", i%watchers)},
					}}}})
					p.Set(rev)
				}
				for total += round * each; seen.Load() < total; {
					time.Sleep(50 * time.Microsecond)
				}
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(rev)/b.Elapsed().Seconds(), "changes/s")
			cancel()
			wg.Wait()
		})
	}
}
