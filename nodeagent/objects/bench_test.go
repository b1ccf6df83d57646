package objects_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/nodeagent/objects"
)

// BenchmarkChange measures the time from a client's call that changes a ConfigMap to the news for the 100 pods that
// use it.
func BenchmarkChange(b *testing.B) {
	w := newWorld(b, apitest.StartWith(b, apitest.Config{Durable: true}))
	told := make(chan []string, 1)
	w.cfg.OnChange = func(uids []string) { told <- uids }
	w.cfg.Spawn = func(f func(ctx context.Context)) { go f(b.Context()) }
	t := objects.New(w.cfg)
	w.put("c", "0", false)
	for i := range 100 {
		t.Track(pod(fmt.Sprint("p", i), "c"))
	}
	if _, err := read(b.Context(), t, "c"); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		w.put("c", fmt.Sprint(n), false)
		if uids := <-told; len(uids) != 100 {
			b.Fatalf("told for %d pods", len(uids))
		}
	}
}

// BenchmarkMemory measures what an object costs that is followed, and one that pods only refer to: server and agent
// together, without the object.
func BenchmarkMemory(b *testing.B) {
	for name, reads := range map[string]bool{"followed": true, "referred to": false} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, apitest.StartWith(b, apitest.Config{Durable: true}))
			var running atomic.Int64
			w.cfg.Spawn = func(f func(ctx context.Context)) {
				running.Add(1)
				go func() { defer running.Add(-1); f(b.Context()) }()
			}
			t := objects.New(w.cfg)
			const n = 500
			for i := range n {
				w.put(fmt.Sprint("c", i), "1", false)
			}
			for b.Loop() {
				before := memory()
				for i := range n {
					name := fmt.Sprint("c", i)
					t.Track(pod(name, name))
					if !reads {
						continue
					}
					if _, err := read(b.Context(), t, name); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(memory()-before)/n, "B/object")
				for i := range n {
					t.Forget(fmt.Sprint("c", i))
				}
				for running.Load() > 0 {
					runtime.Gosched()
				}
			}
		})
	}
}

// memory returns what the process uses on its heap and its stacks.
func memory() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
