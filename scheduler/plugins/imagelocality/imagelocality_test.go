package imagelocality

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

// podOf wants images; "init:" and "volume:" before one say where.
func podOf(images string) *framework.PodInfo {
	spec := &corev1.PodSpec{}
	for _, image := range strings.Fields(images) {
		if i, ok := strings.CutPrefix(image, "init:"); ok {
			spec.InitContainers = append(spec.InitContainers, &corev1.Container{Image: i})
		} else if i, ok := strings.CutPrefix(image, "volume:"); ok {
			spec.Volumes = append(spec.Volumes,
				&corev1.Volume{VolumeSource: &corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: i}}})
		} else {
			spec.Containers = append(spec.Containers, &corev1.Container{Image: image})
		}
	}
	return framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p"}, Spec: spec})
}

// node has images of so many MiB: "a:latest=40 b:1,b:2=300".
func node(name, images string) *framework.NodeInfo {
	n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}, Status: &corev1.NodeStatus{}}
	for _, text := range strings.Fields(images) {
		names, size, _ := strings.Cut(text, "=")
		var s int64
		if _, err := fmt.Sscan(size, &s); err != nil {
			panic(err)
		}
		n.Status.Images = append(n.Status.Images, &corev1.ContainerImage{Names: strings.Split(names, ","),
			SizeBytes: s * mib})
	}
	return framework.NewNodeInfo(name, n)
}

func scores(t testing.TB, pod *framework.PodInfo, nodes ...*framework.NodeInfo) []int64 {
	t.Helper()
	p, snapshot := New(), framework.NewSnapshot()
	for _, n := range nodes {
		snapshot.Set(n.Name, n)
	}
	var state framework.CycleState
	if r, s := p.PreFilter(&state, pod, snapshot); r != nil || s.Code() != framework.Skip {
		t.Fatalf("PreFilter: %v, %s", r, s.Code())
	}
	if p.PreScore(&state, pod, nodes).Code() == framework.Skip {
		return nil
	}
	var got []int64
	for _, n := range nodes {
		got = append(got, p.Score(&state, pod, n))
	}
	return got
}

// The figures are worked out by hand: 100 * (sum - 23) / (1000 * containers - 23), sizes in MiB times the share of
// nodes.
// spec: SCHED-5
func TestScore(t *testing.T) {
	one, two := "r.io/40:latest,r.io/40:v1=40 r.io/300:latest=300 r.io/2000:latest=2000",
		"r.io/250:latest=250 r.io/10:v1=10"
	for _, tc := range []struct{ name, pod, one, two, want string }{
		{"unknown", "r.io/none", one, two, "[]"},
		{"no images anywhere", "r.io/40", "", "", "[]"},
		{"20 and 125 of two", "r.io/40 r.io/250", one, two, "[0 5]"},
		{"170 and nothing of two", "r.io/40 r.io/300", one, two, "[7 0]"},
		{"5 and 1000 of two", "r.io/10:v1 r.io/2000", one, two, "[49 0]"},
		{"more than all", "r.io/2000 r.io/300 r.io/2000", one, two, "[71 0]"}, // 1000 + 150 + 1000 of 3000
		{"all", "r.io/2000", "r.io/2000:latest=3000", "", "[100 0]"},
		{"both nodes have it: it counts in full", "r.io/300", one, one, "[28 28]"},
		{"the image's other name", "r.io/40:v1 r.io/300", one, two, "[7 0]"},
		{"another tag", "r.io/300:v2 r.io/250", one, two, "[0 5]"},
		{"init containers count, and share the most", "init:r.io/300 r.io/40", one, two, "[7 0]"},
		{"the same image twice", "r.io/300 r.io/300", one, two, "[14 0]"},
		// 170 of 1000
		{"a volume adds, without a container's share of the most", "r.io/40 volume:r.io/300", one, two, "[15 0]"},
		{"sizes differ", "a", "a:latest=300", "a:latest=500", "[28 48]"},
	} {
		if got := fmt.Sprint(scores(t, podOf(tc.pod), node("n1", tc.one), node("n2", tc.two))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestNormalized(t *testing.T) {
	for image, want := range map[string]string{
		"root": "root:latest", "root:tag": "root:tag", "gcr.io:5000/root": "gcr.io:5000/root:latest",
		"gcr.io:5000/a/root:1": "gcr.io:5000/a/root:1",
		"root@sha256:abc":      "root@sha256:abc", "gcr.io/root@sha256:abc": "gcr.io/root@sha256:abc", "": ":latest",
	} {
		if got := normalized(image); got != want {
			t.Errorf("%q: %q, want %q", image, got, want)
		}
	}
}

// Scores are within bounds, and the order of the nodes changes none.
func TestScoreProperties(t *testing.T) {
	told := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		images := func(format string) string {
			text := ""
			for range rng.IntN(5) {
				text += fmt.Sprintf(format+" ", rng.IntN(6))
			}
			return text
		}
		var nodes []*framework.NodeInfo
		for i := range 1 + rng.IntN(6) {
			nodes = append(nodes, node(fmt.Sprint("n", i), strings.ReplaceAll(images("i%d:latest="), "= ",
				fmt.Sprintf("=%d ", rng.IntN(3000)))))
		}
		pod := podOf("i0 " + images("i%d") + images("init:i%d") + images("volume:i%d"))
		got := scores(t, pod, nodes...)
		order := rng.Perm(len(nodes))
		var mixed []*framework.NodeInfo
		for _, i := range order {
			mixed = append(mixed, nodes[i])
		}
		again := scores(t, pod, mixed...)
		for at, i := range order {
			if got == nil {
				break
			}
			if got[i] < 0 || got[i] > 100 {
				t.Fatalf("seed %d: %d", seed, got[i])
			}
			if again[at] != got[i] {
				t.Fatalf("seed %d: in another order %s has %d, not %d", seed, nodes[i].Name, again[at], got[i])
			}
			if got[i] != got[0] {
				told++
			}
		}
	}
	if told < 300 {
		t.Errorf("only %d nodes differ from the first", told)
	}
}

func TestNoAllocation(t *testing.T) {
	p, pod, snapshot := New(), podOf("a b"), framework.NewSnapshot()
	var state framework.CycleState
	if allocs := testing.AllocsPerRun(100, func() { p.PreFilter(&state, pod, snapshot) }); allocs != 0 {
		t.Errorf("%v allocations when no node has images", allocs)
	}
	n := node("n", "a:latest=300")
	snapshot.Set("n", n)
	p.PreFilter(&state, pod, snapshot)
	if allocs := testing.AllocsPerRun(100, func() {
		if p.Score(&state, pod, n) == 0 {
			t.Error("no score")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
