package balancedallocation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

func quantities(text string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for _, kv := range strings.Fields(text) {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = &metav1.Quantity{String_: v}
	}
	return m
}

func pod(uid, requests string) *framework.PodInfo {
	return framework.NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: uid, Uid: uid},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Resources: &corev1.ResourceRequirements{Requests: quantities(requests)},
		}}},
	})
}

// node has the resources and one pod that requests used.
func node(allocatable, used string) *framework.NodeInfo {
	return framework.NewNodeInfo("n",
		&corev1.Node{Status: &corev1.NodeStatus{Allocatable: quantities(allocatable)}}).WithPod(pod("used", used))
}

func plugin(t testing.TB, resources ...string) *Plugin {
	t.Helper()
	p, err := New(Args{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The figures are worked out by hand from the formulas that Kubernetes documents: 50 + (50 + with - without) / 2.
// spec: SCHED-5
func TestScore(t *testing.T) {
	for _, tc := range []struct {
		name, resources, pod, have, used string
		want                             int64
	}{
		{"balance stays", "", "cpu=3 memory=5", "cpu=6 memory=10", "", 75},
		{"a little worse", "", "cpu=3 memory=5", "cpu=4 memory=10", "", 68}, // .75 and .5 deviate .125: 87 after 100
		{"worst", "", "cpu=4", "cpu=4 memory=10", "", 50},
		{"best", "", "memory=10", "cpu=4 memory=10", "cpu=4", 100},
		{"better", "", "memory=5", "cpu=4 memory=10", "cpu=2", 87}, // 100 after 75
		{"more than there is counts as all", "", "memory=5", "cpu=10 memory=10", "cpu=12 memory=5", 87},
		{"the pod itself asks for too much", "", "cpu=99 memory=10", "cpu=10 memory=10", "", 75},
		{"others without requests count nothing", "", "cpu=1 memory=1", "cpu=2 memory=2", "", 75},
		{"no memory", "", "cpu=3", "cpu=4", "cpu=1", 75},
		{"nothing", "", "cpu=3", "", "", 75},
		// .2, .4, .9 deviate .294
		{"three", "cpu memory ephemeral-storage", "cpu=2 memory=4 ephemeral-storage=9",
			"cpu=10 memory=10 ephemeral-storage=10", "", 60},
		{"three, one of which the node lacks", "cpu memory ephemeral-storage", "cpu=3 memory=5 ephemeral-storage=1",
			"cpu=4 memory=10", "", 68},
		{"extended", "cpu x.io/y", "cpu=1 x.io/y=1", "cpu=4 x.io/y=4", "x.io/y=2", 75},         // .25 and .75 after 0 and .5
		{"extended, better", "cpu x.io/y", "cpu=2 x.io/y=1", "cpu=4 x.io/y=4", "x.io/y=1", 81}, // 100 after 87
		{"extended, not asked for", "cpu memory x.io/y", "cpu=3 memory=5", "cpu=4 memory=10 x.io/y=4", "x.io/y=4", 68},
		{"one", "cpu", "cpu=1", "cpu=4", "", 75},
	} {
		if got := plugin(t, strings.Fields(tc.resources)...).Score(nil, pod("p", tc.pod),
			node(tc.have, tc.used)); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestPreScore(t *testing.T) {
	for _, tc := range []struct {
		resources, pod string
		want           framework.Code
	}{
		{"", "", framework.Skip}, {"", "cpu=0 memory=0", framework.Skip}, {"", "ephemeral-storage=5 x.io/y=1",
			framework.Skip},
		{"", "cpu=1m", framework.Success}, {"", "memory=1", framework.Success},
		{"cpu x.io/y", "x.io/y=1", framework.Success},
		{"cpu x.io/y", "memory=1", framework.Skip},
	} {
		if got := plugin(t, strings.Fields(tc.resources)...).PreScore(nil, pod("p", tc.pod), nil).Code(); got != tc.want {
			t.Errorf("%q by %q: %s", tc.pod, tc.resources, got)
		}
	}
}

// Random amounts up to the largest: scores are within 50..100, the short way is the long one, and the order of the
// resources does not matter.
func TestScoreProperties(t *testing.T) {
	short, turned := plugin(t), plugin(t, "memory", "cpu")
	long := plugin(t)
	long.usual = false
	three, turnedThree := plugin(t, "cpu", "memory", "x.io/y"), plugin(t, "x.io/y", "memory", "cpu")
	seen := map[int64]bool{}
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := func() string {
			text := ""
			for _, name := range []string{"cpu", "memory", "x.io/y"} {
				switch rng.IntN(8) {
				case 0:
				case 1:
					text += fmt.Sprintf(" %s=%d", name, rng.Int64()/1000)
				default:
					text += fmt.Sprintf(" %s=%d", name, rng.Int64N(1<<20))
				}
			}
			return text
		}
		p, n := pod("p", r()), node(r(), r())
		got := short.Score(nil, p, n)
		seen[got] = true
		if l, u := long.Score(nil, p, n), turned.Score(nil, p, n); got != l || got != u {
			t.Fatalf("seed %d: %d by the short way, %d by the long one, %d turned round", seed, got, l, u)
		}
		a, b := three.Score(nil, p, n), turnedThree.Score(nil, p, n)
		if a-b > 1 || b-a > 1 { // sums of three floats depend on their order in the last digit
			t.Fatalf("seed %d: %d, turned round %d", seed, a, b)
		}
		if min(got, a) < 50 || max(got, a) > 100 {
			t.Fatalf("seed %d: scores %d and %d", seed, got, a)
		}
	}
	if len(seen) < 45 {
		t.Errorf("only %d different scores", len(seen))
	}
}

func TestNoAllocation(t *testing.T) {
	p, n := pod("p", "cpu=1 memory=1 x.io/y=1"), node("cpu=4 memory=9 x.io/y=4", "cpu=1 x.io/y=1")
	for _, pl := range []*Plugin{plugin(t), plugin(t, "cpu", "memory", "ephemeral-storage", "x.io/y")} {
		if allocs := testing.AllocsPerRun(100, func() { pl.Score(nil, p, n) }); allocs != 0 {
			t.Errorf("%v: %v allocations", pl.resources, allocs)
		}
	}
}

func TestBadArgs(t *testing.T) {
	_, err := New(Args{Resources: []string{"cpu", "", "cpu"}})
	const want = "args.resources[1].name: must not be empty\nargs.resources[2].name: \"cpu\" is listed twice"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
