package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/volumebinding"
	"monoplane.dev/scheduler/test/objects"
)

// volumeKind is a kind of pods with a claim of their own.
type volumeKind struct {
	name string
	// allocs is how many allocations a decision may take, the making of the PodInfo not included.
	allocs int
	// bound says whether the claims are, each to a volume that one node can reach.
	bound bool
}

func volumeKinds() []volumeKind {
	return []volumeKind{{"bound claims", 12, true}, {"WaitForFirstConsumer", 12, false}}
}

// claims gives the cluster three claims for each node and a volume on its disk for each; it returns the specs of the
// pods that use them.
func (c *benchCluster) claims(k volumeKind) []*corev1.PodSpec {
	c.snapshot.SetClass("disks", lateClass("disks", "kubernetes.io/no-provisioner").Object)
	var specs []*corev1.PodSpec
	for i := range 3 * c.nodes {
		name := fmt.Sprint("c", i)
		v, o := localVolume(name, "disks", fmt.Sprint("n", i%c.nodes)).Object,
			claimOf("default", name, "disks", "ReadWriteOnce").Object
		v.Metadata.Uid, o.Metadata.Uid, v.Status = name, name, &corev1.PersistentVolumeStatus{Phase: "Available"}
		if k.bound {
			v.Spec.ClaimRef, v.Status.Phase, o.Spec.VolumeName = storage.Reference(o), "Bound", name
			storage.Annotate(o, storage.BindCompleted, "yes")
		}
		c.snapshot.SetVolume(name, volumebinding.Volume(v))
		c.snapshot.SetClaim(cache.KeyOf(o), framework.NewClaimInfo(o))
		specs = append(specs, objects.Use(newPod("", "cpu=100m", "memory=100Mi"), name).Spec)
	}
	return specs
}

// volumeStream returns what places a pod with the next claim and takes away the one that used it before.
func (c *benchCluster) volumeStream(k volumeKind) func() {
	specs := c.claims(k)
	pods := make([]placed, len(specs))
	i := 0
	return func() {
		n := i % len(specs)
		if old := pods[n]; old.uid != "" {
			c.remove(old)
		}
		info := c.replica(fmt.Sprint(i), 0, specs[n])
		d := c.decide(info)
		if d.Node == "" || k.bound && d.Node != fmt.Sprint("n", n%c.nodes) {
			c.Fatalf("a pod with claim %d is on %q: %s", n, d.Node, d.Diagnosis.Message())
		}
		c.add(d.Node, info)
		pods[n] = placed{info.UID, d.Node}
		i++
	}
}

// BenchmarkVolumeDecisions is the scheduling core alone, with pods that have volumes, each its own.
func BenchmarkVolumeDecisions(b *testing.B) {
	for _, k := range volumeKinds() {
		for _, nodes := range []int{1000, 5000} {
			b.Run(fmt.Sprintf("%s/%d nodes", k.name, nodes), func(b *testing.B) {
				c := newBenchCluster(b, nodes, "cpu=64", "memory=256Gi", "pods=110")
				stream := c.volumeStream(k)
				b.ReportAllocs()
				for b.Loop() {
					stream()
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}

// A decision about a pod with volumes allocates nothing for each node, nor for each volume.
func TestVolumeAllocations(t *testing.T) {
	for _, k := range volumeKinds() {
		for _, nodes := range []int{100, 400} {
			c := newBenchCluster(t, nodes, "cpu=64", "memory=256Gi", "pods=110")
			stream := c.volumeStream(k)
			for range 4 * nodes { // what the snapshot keeps is there, and the scratch space is large enough
				stream()
			}
			p := c.replica("measured", 0, objects.Use(newPod("", "cpu=100m"), "c7").Spec)
			if got := c.allocations(p); got > k.allocs {
				t.Errorf("%s, %d nodes: %v allocations, at most %d were expected", k.name, nodes, got, k.allocs)
			} else {
				t.Logf("%s, %d nodes: %v allocations", k.name, nodes, got)
			}
		}
	}
}
