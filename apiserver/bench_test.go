package apiserver_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"monoplane.dev/apiserver/store"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// benchPod is a small pod as clients send it.
func benchPod(i int64) *corev1.Pod {
	p := newPod(fmt.Sprintf("pod-%d", i))
	p.Metadata.Labels = map[string]string{"app": "bench", "tier": "front"}
	p.Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	return p
}

// BenchmarkCreate measures a create through the in-process connection, interceptors included. It is to be
// judged against BenchmarkCommit, which is the store's transaction alone on an object of the same size.
func BenchmarkCreate(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			c := start(b)
			admin := c.admin()
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(max(1, clients/2))
			run := func() {
				if _, err := admin.pods.Create(context.Background(), &corev1.CreatePodRequest{Object: benchPod(n.Add(1))}); err != nil {
					b.Error(err)
				}
			}
			each(b, clients, run)
		})
	}
}

// BenchmarkCommit is the limit for BenchmarkCreate.
func BenchmarkCommit(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			c := start(b)
			full := clone(c.createPod(benchPod(0)))
			var n atomic.Int64
			b.ReportAllocs()
			each(b, clients, func() {
				p := clone(full)
				p.Metadata.Name = fmt.Sprintf("raw-%d", n.Add(1))
				_, err := c.store.Commit(context.Background(), store.Txn{Ops: []store.Op{{
					Key: store.Key{Kind: corev1.PodKind, Namespace: "default", Name: p.Metadata.Name}, Object: p,
				}}})
				if err != nil {
					b.Error(err)
				}
			})
		})
	}
}

func each(b *testing.B, clients int, run func()) {
	if clients == 1 {
		for b.Loop() {
			run()
		}
		return
	}
	b.SetParallelism(max(1, clients/2))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			run()
		}
	})
}

// BenchmarkGet measures a linearizable read.
func BenchmarkGet(b *testing.B) {
	c := start(b)
	c.createPod(benchPod(0))
	admin := c.admin()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := admin.pods.Get(context.Background(), &metav1.GetRequest{Namespace: "default", Name: "pod-0"}); err != nil {
			b.Fatal(err)
		}
	}
}
