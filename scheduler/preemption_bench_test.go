package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
)

// BenchmarkPreemption is the core alone on nodes that are full of pods of low priority: a pod of high priority
// preempts, the victim goes, and the pod takes its place on the nominated node; an older one leaves its place to a pod
// of low priority.
func BenchmarkPreemption(b *testing.B) {
	for _, nodes := range []int{1000, 5000, 15000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			c := newBenchCluster(b, nodes, "cpu=4", "memory=32Gi", "pods=110")
			low := c.fill(4)
			ten := int32(10)
			high := &corev1.PodSpec{SchedulerName: low.SchedulerName, Containers: low.Containers, Priority: &ten}
			var there []placed
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				p := c.replica(fmt.Sprint("high", i), 10, high)
				d := c.decide(p)
				if d.Nomination == nil || len(d.Nomination.Victims) != 1 {
					b.Fatalf("%+v", d.Nomination)
				}
				node := d.Nomination.Node
				c.remove(placed{d.Nomination.Victims[0].UID, node})
				c.snapshot.SetNominated(p.UID, node)
				if d = c.decide(p); d.Node != node {
					b.Fatalf("landed on %q, not on %s", d.Node, node)
				}
				c.snapshot.SetNominated(p.UID, "")
				c.add(node, p)
				if there = append(there, placed{p.UID, node}); len(there) > nodes {
					c.remove(there[0])
					c.add(there[0].node, c.replica(fmt.Sprint("again", i), 0, low))
					there = there[1:]
				}
			}
			c.report(b, "pods")
		})
	}
}

// BenchmarkUnschedulable is the core alone on nodes without room: each pod of the queue is refused by all nodes, and
// between two of them something changes on one node.
func BenchmarkUnschedulable(b *testing.B) {
	for _, nodes := range []int{1000, 5000, 15000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			c := newBenchCluster(b, nodes, "cpu=4", "memory=32Gi", "pods=110")
			spec := c.fill(4)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				p := placed{fmt.Sprint("there", i%nodes), fmt.Sprint("n", i%nodes)}
				c.remove(p)
				c.add(p.node, c.replica(p.uid, 0, spec))
				if d := c.decide(c.replica(fmt.Sprint("new", i), 0, spec)); d.Node != "" || d.Diagnosis == nil {
					b.Fatalf("%+v", d)
				}
			}
			c.report(b, "decisions")
		})
	}
}
