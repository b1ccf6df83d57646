package apiserver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/test/apitest"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// benchPod is a small pod as clients send it.
func benchPod(name string) *corev1.Pod {
	p := newPod(name)
	p.Metadata.Labels = map[string]string{"app": "bench", "tier": "front"}
	p.Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	return p
}

// BenchmarkCreate compares a create through the in-process connection, interceptors included, with the store's
// bare transaction of an object of the same size. They take turns, because machines are noisy; commit/create is
// the ratio that counts (1 = the service costs nothing). BenchmarkCreate of package store compares that
// transaction with etcd's own.
func BenchmarkCreate(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			c := startWith(b, apitest.Config{Durable: true})
			admin := c.admin()
			full := clone(c.createPod(benchPod("template")))
			const round = 256
			var create, commit time.Duration
			n := 0
			for b.Loop() {
				begun := time.Now()
				spread(clients, round, func(i int) {
					p := benchPod(fmt.Sprintf("pod-%d-%d", n, i))
					if _, err := admin.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Object: p}); err != nil {
						b.Error(err)
					}
				})
				create += time.Since(begun)
				begun = time.Now()
				spread(clients, round, func(i int) {
					p := clone(full)
					p.Metadata.Name = fmt.Sprintf("raw-%d-%d", n, i)
					key := store.Key{Kind: corev1.PodKind, Namespace: "default", Name: p.Metadata.Name}
					if _, err := c.store.Commit(context.Background(), store.Txn{Ops: []store.Op{{Key: key, Object: p}}}); err != nil {
						b.Error(err)
					}
				})
				commit += time.Since(begun)
				n++
			}
			ops := float64(n * round)
			b.ReportMetric(ops/create.Seconds(), "creates/s")
			b.ReportMetric(ops/commit.Seconds(), "commits/s")
			b.ReportMetric(commit.Seconds()/create.Seconds(), "commit/create")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// spread runs f(0..n-1) on some goroutines.
func spread(workers, n int, f func(i int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// BenchmarkGet measures a linearizable read.
func BenchmarkGet(b *testing.B) {
	c := start(b)
	c.createPod(benchPod("web"))
	admin := c.admin()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := admin.Pods.Get(context.Background(),
			&metav1.GetRequest{Namespace: "default", Name: "web"}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBind measures create and bind: the two transactions that a scheduled pod costs.
func BenchmarkBind(b *testing.B) {
	c := startWith(b, apitest.Config{Durable: true})
	c.register("n1")
	for n := 0; b.Loop(); n++ {
		p := c.createPod(benchPod(fmt.Sprintf("pod-%d", n)))
		if err := c.bind(p, "n1"); err != nil {
			b.Fatal(err)
		}
	}
}
