package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// benchPod is a pod of about 2 KB as stored.
func benchPod(name string) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: "default", Name: name, Uid: "0b9c1c7e-5d5d-4c2b-9b1e-000000000000", Generation: 1,
			Labels:      map[string]string{"app": "web", "tier": "front", "pod-template-hash": "5d8c7b9f6"},
			Annotations: map[string]string{"example.com/note": strings.Repeat("x", 900)},
		},
		Spec: &corev1.PodSpec{
			NodeName: "node-" + name[len(name)-1:], SchedulerName: "default-scheduler", ServiceAccountName: "default",
			Containers: []*corev1.Container{{
				Name: "web", Image: "registry.example.com/web:1.2.3", Command: []string{"/bin/web", "--listen", ":8080"},
				Env: []*corev1.EnvVar{{Name: "A", Value: strings.Repeat("a", 200)}, {Name: "B", Value: strings.Repeat("b", 200)}},
			}},
		},
		Status: &corev1.PodStatus{Phase: "Pending", QosClass: "BestEffort", Conditions: []*corev1.PodCondition{
			{Type: "PodScheduled", Status: "True"}, {Type: "Ready", Status: "False", Reason: "ContainersNotReady",
				Message: strings.Repeat("m", 200)},
		}},
	}
	return p
}

// unlooked is a configuration that looks for no mutations, which cost time.
func unlooked(cfg Config) Config {
	cfg.OnMutation = nil
	return cfg
}

// parallel runs f(0..n-1) in workers goroutines.
func parallel(workers, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// cpuTime is what this process has used, which a busy machine does not change much.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCreate prints raw transactions of the same bytes on the same etcd beside the store's creates. They take
// turns, because machines are noisy.
func BenchmarkCreate(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := open(b, unlooked(fsyncConfig(b.TempDir())))
			value, err := encode("x", benchPod("pod-000000"), s.table)
			if err != nil {
				b.Fatal(err)
			}
			const round = 500
			var raw, store, rawCPU, storeCPU time.Duration
			n := 0
			for b.Loop() {
				pods := make([]*corev1.Pod, round)
				for i := range pods {
					pods[i] = benchPod(fmt.Sprintf("pod-%06d-%d", i, n))
				}
				start, cpu := time.Now(), cpuTime()
				parallel(writers, round, func(i int) {
					key := fmt.Sprintf("/monoplane/raw/pods/default/pod-%06d-%d", i, n)
					_, err := s.client.Txn(b.Context(), &etcdserverpb.TxnRequest{
						Compare: []*etcdserverpb.Compare{compareRevision([]byte(key), etcdserverpb.Compare_EQUAL, 0)},
						Success: []*etcdserverpb.RequestOp{putOp([]byte(key), value, 0)},
					})
					if err != nil {
						b.Error(err)
					}
				})
				raw, rawCPU = raw+time.Since(start), rawCPU+cpuTime()-cpu
				start, cpu = time.Now(), cpuTime()
				parallel(writers, round, func(i int) {
					if _, err := s.Commit(b.Context(), Txn{Ops: []Op{{Key: keyOf(pods[i]), Object: pods[i]}}}); err != nil {
						b.Error(err)
					}
				})
				store, storeCPU = store+time.Since(start), storeCPU+cpuTime()-cpu
				n++
			}
			b.ReportMetric(float64(n*round)/raw.Seconds(), "raw/s")
			b.ReportMetric(float64(n*round)/store.Seconds(), "creates/s")
			b.ReportMetric(100*raw.Seconds()/store.Seconds(), "%ofraw")
			b.ReportMetric(float64(rawCPU.Microseconds())/float64(n*round), "cpu-µs/raw")
			b.ReportMetric(float64(storeCPU.Microseconds())/float64(n*round), "cpu-µs/create")
		})
	}
}

func BenchmarkFanOut(b *testing.B) {
	const watchers = 200
	s := open(b, unlooked(testConfig(b.TempDir())))
	var seen atomic.Int64
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for range watchers {
		w, err := s.Watch(ctx, corev1.PodKind, WatchOptions{})
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
	const round = 2000
	n := 0
	for b.Loop() {
		parallel(16, round, func(i int) {
			p := benchPod(fmt.Sprintf("pod-%06d-%d", i, n))
			if _, err := s.Commit(ctx, Txn{Ops: []Op{{Key: keyOf(p), Object: p}}}); err != nil {
				b.Error(err)
			}
		})
		n++
		for seen.Load() < int64(n*round*watchers) {
			time.Sleep(100 * time.Microsecond)
		}
	}
	b.ReportMetric(float64(seen.Load())/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(n*round)/b.Elapsed().Seconds(), "writes/s")
	cancel()
	wg.Wait()
}

func fill(b testing.TB, s *Store, n int) {
	parallel(64, n, func(i int) {
		p := benchPod(fmt.Sprintf("pod-%06d", i))
		if _, err := s.Commit(context.Background(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}}); err != nil {
			b.Error(err)
		}
	})
}

func BenchmarkList(b *testing.B) {
	s := open(b, unlooked(testConfig(b.TempDir())))
	fill(b, s, 6400)
	for b.Loop() {
		items, err := s.List(b.Context(), corev1.PodKind, ListOptions{})
		if err != nil || len(items.Objects) != 6400 {
			b.Fatal(len(items.Objects), err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s := open(b, unlooked(testConfig(b.TempDir())))
	fill(b, s, 6400)
	key := podKey("default", "pod-003000")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), key, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(b.Context(), unlooked(testConfig(dir)))
	if err != nil {
		b.Fatal(err)
	}
	fill(b, s, 10_000)
	// Every pod is changed some times in its life.
	parallel(64, 30_000, func(i int) {
		key := podKey("default", fmt.Sprintf("pod-%06d", i%10_000))
		_, err := s.Mutate(context.Background(), key, func(live object.Object) (*Txn, error) {
			p := object.Clone(live.(*corev1.Pod))
			p.Metadata.Generation++
			return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
		})
		if err != nil {
			b.Error(err)
		}
	})
	s.Close()
	var cpu time.Duration
	n := 0
	for b.Loop() {
		start := cpuTime()
		s, err := Open(b.Context(), unlooked(testConfig(dir)))
		if err != nil {
			b.Fatal(err)
		}
		cpu += cpuTime() - start
		n++
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu.Milliseconds())/float64(n), "cpu-ms/open")
}
