package queue

import (
	"fmt"
	"testing"

	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/prioritysort"
	"monoplane.dev/scheduler/plugins/schedulinggates"
)

// BenchmarkWaiting is what a pod costs the queue, from Add to Done, while 10 000 others wait that it does not concern:
// gated ones, or ones that were refused, each of which is asked whether the change that comes with every pod helps.
func BenchmarkWaiting(b *testing.B) {
	const others = 10_000
	for _, kind := range []string{"none", "gated", "unschedulable"} {
		b.Run(kind, func(b *testing.B) {
			asked := 0
			q := New(Config{
				Less: prioritysort.Plugin{}.Less, PreEnqueue: schedulinggates.New().PreEnqueue,
				Interest: func([]string, *framework.PodInfo) framework.Event { return framework.PodGone | framework.NodeAdded },
				Helps: func([]string, *framework.PodInfo, *framework.Change) bool {
					asked++
					return false
				},
			})
			for i := range others {
				name := fmt.Sprint("other", i)
				switch kind {
				case "gated":
					q.Add(pod(name, name, 0, "later"))
				case "unschedulable":
					q.Add(pod(name, name, 0))
					try, _ := q.Pop()
					try.Unschedulable([]string{"fit"})
				}
			}
			p := pod("new", "new", 0)
			gone := framework.Change{Event: framework.PodGone, OldPod: p.Pod}
			b.ReportAllocs()
			for b.Loop() {
				q.Add(p)
				try, _ := q.Pop()
				try.Landed()
				q.Change(gone)
				try.Done()
			}
			b.ReportMetric(float64(asked)/float64(b.N), "asked/op")
		})
	}
}
