package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// More templates than answers are kept for, one pod of each at a time, and profiles that differ: nothing is taken for
// another's.
func TestManyTemplates(t *testing.T) {
	c := newBenchCluster(t, 50, "cpu=4", "memory=32Gi", "pods=110")
	rng := rand.New(rand.NewPCG(1, 1))
	var specs []*corev1.PodSpec
	for i := range 40 {
		specs = append(specs, newPod("", fmt.Sprintf("cpu=%dm", 200*(1+i))).Spec)
	}
	for i := range 2000 {
		at := rng.IntN(len(specs))
		if rng.IntN(2) == 0 {
			at = rng.IntN(4) // some are frequent
		}
		d := c.decide(c.replica(fmt.Sprint(i), 0, specs[at]))
		if fits := 200*(1+at) <= 4000; fits != (d.Node != "") {
			t.Fatalf("a pod of %d millicores on nodes of 4000: %+v", 200*(1+at), d)
		}
	}
	if slices.ContainsFunc(c.snapshot.Nodes(), func(n *framework.NodeInfo) bool { return len(n.Pods()) > 0 }) {
		t.Error("deciding changed something")
	}
}
