package scheduler_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// benchCluster is a cluster of equal nodes in ten zones, without a server, for benchmarks of the core.
type benchCluster struct {
	testing.TB
	profile  *framework.Profile
	snapshot *framework.Snapshot
	search   *framework.Searcher
	nodes    int
}

func newBenchCluster(tb testing.TB, nodes int, allocatable ...string) *benchCluster {
	tb.Helper()
	profile, err := scheduler.DefaultProfile(client.New(nil))
	if err != nil {
		tb.Fatal(err)
	}
	c := &benchCluster{tb, profile, framework.NewSnapshot(), framework.NewSearcher(1), nodes}
	for i := range nodes {
		n := newNode(fmt.Sprint("n", i), allocatable...)
		n.Metadata.Labels["zone"] = fmt.Sprint("z", i%10)
		c.snapshot.Set(n.Metadata.Name, framework.NewNodeInfo(n.Metadata.Name, n))
	}
	return c
}

func (c *benchCluster) decide(pod *framework.PodInfo) framework.Decision {
	d := c.profile.Schedule(&framework.CycleState{}, pod, c.snapshot, c.search)
	if d.Err != nil {
		c.Fatal(d.Err)
	}
	return d
}

func (c *benchCluster) add(node string, pod *framework.PodInfo) {
	c.snapshot.Set(node, c.snapshot.Node(node).WithPod(pod))
}

func (c *benchCluster) remove(p placed) {
	c.snapshot.Set(p.node, c.snapshot.Node(p.node).WithoutPod(p.uid))
}

// allocations returns how many allocations a decision takes, the least of several measurements: the race detector
// empties pools at random, and what text is made with comes from one.
func (c *benchCluster) allocations(pod *framework.PodInfo) int {
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(50, func() { c.decide(pod) }))
	}
	return int(least)
}

// placed is a pod on a node.
type placed struct{ uid, node string }

// replica is a pod of one template, which pods of one template share as they do on the server.
func (*benchCluster) replica(uid string, priority int32, spec *corev1.PodSpec) *framework.PodInfo {
	p := framework.NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: uid, Uid: uid, Labels: map[string]string{"app": "web"}},
		Spec:     spec,
	})
	p.Priority = priority
	return p
}

// report adds to a benchmark its rate, and how often all nodes could have been looked at in the time of one round: the
// machine's speed is in both, so that runs on different machines compare.
func (c *benchCluster) report(b *testing.B, unit string) {
	b.Helper()
	scan, sum := time.Duration(math.MaxInt64), int64(0)
	for range 20 {
		began := time.Now()
		for _, n := range c.snapshot.Nodes() {
			sum += n.Requested.MilliCPU
		}
		scan = min(scan, time.Since(began))
	}
	if sum < 0 {
		b.Fatal("nodes use less than nothing")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), unit+"/s")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(scan), "scans/op")
}

// fill puts so many pods of one core and of priority 0 on each node, and returns their spec.
func (c *benchCluster) fill(each int) *corev1.PodSpec {
	spec := newPod("", "cpu=1", "memory=1Gi").Spec
	for i := range each * c.nodes {
		c.add(fmt.Sprint("n", i%c.nodes), c.replica(fmt.Sprint("there", i), 0, spec))
	}
	return spec
}

// stream puts three pods of a kind on each node, or one on every second where no node may have two, and returns what
// places one more and takes away the oldest one.
func (c *benchCluster) stream(k decisionKind) func() {
	spec := k.spec()
	count := 3 * c.nodes
	if len(spec.GetAffinity().GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()) > 0 {
		count = c.nodes / 2
	}
	var pods []placed
	for i := range count {
		p := placed{fmt.Sprint(i), fmt.Sprint("n", i%c.nodes)}
		c.add(p.node, c.replica(p.uid, 0, spec))
		pods = append(pods, p)
	}
	i := count
	return func() {
		info := c.replica(fmt.Sprint(i), 0, spec)
		d := c.decide(info)
		if d.Node == "" {
			c.Fatal(d.Diagnosis.Message())
		}
		c.add(d.Node, info)
		c.remove(pods[0])
		pods = append(pods[1:], placed{info.UID, d.Node})
		i++
	}
}
