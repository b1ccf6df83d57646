package noderesources

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
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

// node has the resources and, unless used is empty, one pod that requests used.
func node(allocatable, used string) *framework.NodeInfo {
	n := framework.NewNodeInfo("n", &corev1.Node{Status: &corev1.NodeStatus{Allocatable: quantities("pods=10 " +
		allocatable)}})
	if used != "" {
		n = n.WithPod(pod("used", used))
	}
	return n
}

func plugin(t testing.TB, args FitArgs) *Plugin {
	t.Helper()
	p, err := New(args)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func strategy(t StrategyType, resources string, shape ...Point) FitArgs {
	s := &ScoringStrategy{Type: t, Shape: shape}
	for _, text := range strings.Fields(resources) {
		var r WeightedResource
		name, weight, _ := strings.Cut(text, ":")
		r.Name = name
		if _, err := fmt.Sscan(weight, &r.Weight); err != nil {
			panic(err)
		}
		s.Resources = append(s.Resources, r)
	}
	return FitArgs{ScoringStrategy: s}
}

// The figures are worked out by hand from the formulas that Kubernetes documents.
// spec: SCHED-5
func TestScore(t *testing.T) {
	falling, rising := []Point{{0, 10}, {100, 0}}, []Point{{0, 0}, {100, 10}}
	const gpu, bar = "example.com/gpu", "example.com/bar"
	for _, tc := range []struct {
		name            string
		args            FitArgs
		pod, have, used string
		want            int64
	}{
		// 1000 of 4000 is 25 %, 5000 of 10000 is 50 %.
		{"least, the default", FitArgs{}, "cpu=3 memory=5000", "cpu=4 memory=10000", "", 37},
		{"least, by name", strategy(LeastAllocated, ""), "cpu=3 memory=5000", "cpu=4 memory=10000", "", 37},
		{"least, equally", strategy(LeastAllocated, "memory:9 cpu:9"), "cpu=3 memory=5000", "cpu=4 memory=10000", "", 37},
		{"least, weighted", strategy(LeastAllocated, "cpu:1 memory:2"), "cpu=3 memory=5000", "cpu=4 memory=10000", "", 41},
		{"least, cpu alone", strategy(LeastAllocated, "cpu:5"), "cpu=3 memory=5000", "cpu=4 memory=10000", "", 25},
		{"least, beside others", FitArgs{}, "cpu=3 memory=5000", "cpu=6 memory=10000", "cpu=1 memory=1000", 36}, // 33 and 40
		{"least, more than there is", FitArgs{}, "cpu=3 memory=5000", "cpu=4 memory=10000", "cpu=2 memory=1000", 20},
		{"least, no request counts as 100m and 200Mi", FitArgs{}, "", "cpu=1 memory=1000Mi", "", 85},
		{"least, a node without memory", FitArgs{}, "cpu=3", "cpu=4", "", 25},
		{"least, a node without anything", FitArgs{}, "", "", "", 0},
		{"least, storage", strategy(LeastAllocated, "ephemeral-storage:1 cpu:1"), "cpu=1", "cpu=2 ephemeral-storage=10",
			"cpu=0 ephemeral-storage=4", 55},

		{"most", strategy(MostAllocated, ""), "cpu=3 memory=5000", "cpu=4 memory=10000", "", 62},
		{"most, weighted", strategy(MostAllocated, "cpu:1 memory:2"), "cpu=3 memory=5000", "cpu=4 memory=10000", "", 58},
		{"most, beside others", strategy(MostAllocated, ""), "cpu=3 memory=5000", "cpu=6 memory=10000", "cpu=1 memory=1000",
			63},
		{"most, more than there is", strategy(MostAllocated, ""), "cpu=3 memory=5000", "cpu=4 memory=10000",
			"cpu=2 memory=1000", 80},
		// 20 and 75
		{"most, extended", strategy(MostAllocated, "cpu:1 "+gpu+":3"), "cpu=1 memory=1 " + gpu + "=1", "cpu=10 " + gpu +
			"=4", "cpu=1 " + gpu + "=2", 61},
		{"most, extended, not asked for", strategy(MostAllocated, "cpu:1 "+gpu+":3"), "cpu=1", "cpu=10 " + gpu +
			"=4", "cpu=1 " + gpu + "=2", 20},
		{"most, extended, the node has none", strategy(MostAllocated, "cpu:1 "+gpu+":3"), "cpu=1 " + gpu +
			"=1", "cpu=10", "cpu=1", 20},
		{"most, pods are not a resource", strategy(MostAllocated, "cpu:1 pods:3"), "cpu=1", "cpu=10", "cpu=1", 20},

		// 25 and 50, rounded
		{"ratio, falling", strategy(RequestedToCapacityRatio, "", falling...), "cpu=3 memory=5000", "cpu=4 memory=10000", "",
			38},
		{"ratio, rising", strategy(RequestedToCapacityRatio, "", rising...), "cpu=3 memory=5000", "cpu=4 memory=10000", "",
			63},
		{"ratio, more than there is", strategy(RequestedToCapacityRatio, "cpu:1", rising...), "cpu=3", "cpu=4", "cpu=2",
			100},
		{"ratio, left of the points", strategy(RequestedToCapacityRatio, "cpu:1", Point{20, 2}, Point{80, 8}), "cpu=1",
			"cpu=10", "", 20},
		{"ratio, on the first", strategy(RequestedToCapacityRatio, "cpu:1", Point{20, 3}, Point{80, 8}), "cpu=2", "cpu=10",
			"", 30},
		{"ratio, between", strategy(RequestedToCapacityRatio, "cpu:1", Point{20, 2}, Point{60, 10}, Point{80, 0}), "cpu=5",
			"cpu=10", "", 80},
		{"ratio, falling again", strategy(RequestedToCapacityRatio, "cpu:1", Point{20, 2}, Point{60, 10}, Point{80, 0}),
			"cpu=7", "cpu=10", "", 50},
		{"ratio, right of the points", strategy(RequestedToCapacityRatio, "cpu:1", Point{20, 2}, Point{60, 10},
			Point{80, 7}), "cpu=9", "cpu=10", "", 70},
		{"ratio, one point", strategy(RequestedToCapacityRatio, "cpu:1", Point{50, 4}), "cpu=9", "cpu=10", "", 40},
		{"ratio, 0 does not count", strategy(RequestedToCapacityRatio, "", Point{50, 0}, Point{100, 10}),
			"cpu=3 memory=5000", "cpu=4 memory=10000", "", 50},
		// 3 of 8 is 37 %, 9 of 12 is 75 %.
		{"ratio, extended", strategy(RequestedToCapacityRatio, gpu+":3 "+bar+":5", rising...), gpu + "=2 " + bar +
			"=2", gpu + "=8 " + bar + "=12", gpu + "=1 " + bar + "=7", 61},
	} {
		if got := plugin(t, tc.args).Score(nil, pod("p", tc.pod), node(tc.have, tc.used)); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// share is 100 * part / all in whole per cents, without limits.
func share(part, all int64) int64 {
	return new(big.Int).Div(new(big.Int).Mul(big.NewInt(part), big.NewInt(100)), big.NewInt(all)).Int64()
}

// Random amounts up to the largest: the short way of the default strategy is the long one, scores stay within bounds,
// and the single resource is the plain formula.
// spec: SCHED-5
func TestScoreProperties(t *testing.T) {
	short := plugin(t, FitArgs{})
	long := &rating{resources: defaultResources(), one: leastAllocated}
	cpuMost, cpuLeast := plugin(t, strategy(MostAllocated, "cpu:7")), plugin(t, strategy(LeastAllocated, "cpu:7"))
	differed := map[int64]bool{}
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		amount := func() int64 {
			switch rng.IntN(8) {
			case 0:
				return 0
			case 1:
				return rng.Int64()
			default:
				return rng.Int64N(1 << 20)
			}
		}
		r := func() string { return fmt.Sprintf("cpu=%dm memory=%d x.io/y=%d", amount(), amount(), amount()) }
		p, n := pod("p", r()), node(r(), r())
		got := short.Score(nil, p, n)
		differed[got] = true
		if want := long.score(p, n); got != want && amountsAreExact(n, p) {
			t.Fatalf("seed %d: %d by the short way, %d by the long one", seed, got, want)
		}
		shape := []Point{{rng.Int64N(50), rng.Int64N(11)}, {50 + rng.Int64N(51), rng.Int64N(11)}}
		ratio := plugin(t, strategy(RequestedToCapacityRatio, "memory:3 x.io/y:100 cpu:1", shape...))
		for _, s := range []int64{got, long.score(p, n), ratio.Score(nil, p, n), cpuMost.Score(nil, p, n),
			cpuLeast.Score(nil, p, n)} {
			if s < 0 || s > framework.MaxScore {
				t.Fatalf("seed %d: a score of %d", seed, s)
			}
		}
		all, used := n.Allocatable.MilliCPU, n.Counted.MilliCPU
		if all == 0 {
			continue
		}
		most, least := int64(100), int64(0)
		if p.Counted.MilliCPU <= all-used {
			most, least = share(used+p.Counted.MilliCPU, all), share(all-used-p.Counted.MilliCPU, all)
		}
		if m, l := cpuMost.Score(nil, p, n), cpuLeast.Score(nil, p, n); m != most || l != least {
			t.Fatalf("seed %d: most %d, want %d; least %d, want %d", seed, m, most, l, least)
		}
	}
	if len(differed) < 90 {
		t.Errorf("only %d different scores", len(differed))
	}
}

// amountsAreExact says whether floats hold the amounts well enough for whole per cents.
func amountsAreExact(n *framework.NodeInfo, p *framework.PodInfo) bool {
	for _, r := range []framework.Resources{n.Allocatable, n.Counted, p.Counted} {
		if max(r.MilliCPU, r.Memory) > 1<<30 {
			return false
		}
	}
	return true
}

// spec: SCHED-4
func TestIgnoredResources(t *testing.T) {
	args := FitArgs{IgnoredResources: []string{"a.io/x", "cpu"}, IgnoredResourceGroups: []string{"b.io", "kubernetes.io",
		"hugepages-2Mi"}}
	for requests, want := range map[string]string{
		"a.io/x=1":                     "",
		"a.io/y=1":                     "Insufficient a.io/y",
		"b.io/x=1 b.io/y=9":            "",
		"sub.b.io/x=1":                 "Insufficient sub.b.io/x",
		"a.io/x=1 b.io/x=1 c.io/x=1":   "Insufficient c.io/x",
		"cpu=1":                        "Insufficient cpu", // only extended resources can be ignored
		"kubernetes.io/x=1":            "Insufficient kubernetes.io/x",
		"hugepages-2Mi=1 a.io/x=1":     "Insufficient hugepages-2Mi",
		"memory=1 a.io/x=1 c.io/z=100": "Insufficient memory, Insufficient c.io/z",
	} {
		if got := plugin(t, args).Filter(nil, pod("p", requests), node("", "")).Message(); got != want {
			t.Errorf("%s: %q, want %q", requests, got, want)
		}
	}
	if plugin(t, FitArgs{}).Filter(nil, pod("p", "a.io/x=1"), node("", "")) == nil {
		t.Error("a resource is ignored by default")
	}
}

// A node that is too small even when empty is hopeless; what is not asked for is never short.
// spec: SCHED-4
func TestFilter(t *testing.T) {
	for _, tc := range []struct{ pod, have, used, want string }{
		{"cpu=1", "cpu=1", "", "Success: "},
		{"cpu=1", "cpu=1", "cpu=1m", "Unschedulable: Insufficient cpu"},
		{"cpu=2", "cpu=1", "", "Unresolvable: Insufficient cpu"},
		{"", "cpu=1", "cpu=5", "Success: "},
		{"cpu=1 memory=5 a.io/x=3", "cpu=1 memory=6 a.io/x=2", "memory=2",
			"Unresolvable: Insufficient memory, Insufficient a.io/x"},
		{"a.io/x=1 a.io/w=1", "a.io/x=1 a.io/w=1", "a.io/x=1 a.io/w=1",
			"Unschedulable: Insufficient a.io/w, Insufficient a.io/x"},
		{"", "pods=0", "", "Unresolvable: Too many pods"},
		{"cpu=1", "pods=1 cpu=1", "cpu=1", "Unschedulable: Too many pods, Insufficient cpu"},
	} {
		s := plugin(t, FitArgs{}).Filter(nil, pod("p", tc.pod), node(tc.have, tc.used))
		if got := s.Code().String() + ": " + s.Message(); got != tc.want {
			t.Errorf("%q on %q beside %q: %s, want %s", tc.pod, tc.have, tc.used, got, tc.want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	p, n := pod("p", "cpu=1 memory=1 x.io/y=1"), node("cpu=4 memory=9 x.io/y=4", "cpu=1 x.io/y=1")
	for _, args := range []FitArgs{
		{},
		strategy(MostAllocated, "x.io/y:2 cpu:1"),
		strategy(RequestedToCapacityRatio, "x.io/y:2 cpu:1", Point{0, 0}, Point{100, 10}),
		{IgnoredResources: []string{"x.io/z"}, IgnoredResourceGroups: []string{"y.io"}},
	} {
		pl := plugin(t, args)
		if allocs := testing.AllocsPerRun(100, func() {
			if pl.Filter(nil, p, n) != nil || pl.Score(nil, p, n) == 0 {
				t.Error("refused")
			}
		}); allocs != 0 {
			t.Errorf("%+v: %v allocations", args, allocs)
		}
	}
}

func TestBadArgs(t *testing.T) {
	const at = "args.scoringStrategy."
	for want, args := range map[string]FitArgs{
		at + "resources[0].weight: 0 is not within 1..100": strategy(
			LeastAllocated, "cpu:0"),
		at + "resources[1].weight: 101 is not within 1..100": strategy(
			LeastAllocated, "cpu:1 memory:101"),
		at + "resources[0].name: must not be empty": strategy(
			LeastAllocated, ":1"),
		at + `resources[1].name: "cpu" is listed twice`: strategy(
			MostAllocated, "cpu:1 cpu:2"),
		at + `type: "Best" is none of LeastAllocated, MostAllocated, RequestedToCapacityRatio`: strategy(
			"Best", ""),
		at + `type: "" is none of LeastAllocated, MostAllocated, RequestedToCapacityRatio`: strategy(
			"", ""),
		at + "requestedToCapacityRatio.shape: is for type RequestedToCapacityRatio only": strategy(
			LeastAllocated, "", Point{0, 0}),
		at + "requestedToCapacityRatio.shape: at least one point is needed": strategy(
			RequestedToCapacityRatio, ""),
		at + "requestedToCapacityRatio.shape[1].utilization: 10 is not more than the 10 before it": strategy(
			RequestedToCapacityRatio, "", Point{10, 0}, Point{10, 5}),
		at + "requestedToCapacityRatio.shape[2].utilization: 5 is not more than the 20 before it": strategy(
			RequestedToCapacityRatio, "", Point{10, 0}, Point{20, 5}, Point{5, 5}),
		at + "requestedToCapacityRatio.shape[0].utilization: -1 is not within 0..100": strategy(
			RequestedToCapacityRatio, "", Point{-1, 0}),
		at + "requestedToCapacityRatio.shape[0].utilization: 101 is not within 0..100": strategy(
			RequestedToCapacityRatio, "", Point{101, 0}),
		at + "requestedToCapacityRatio.shape[0].score: 11 is not within 0..10": strategy(
			RequestedToCapacityRatio, "", Point{0, 11}),
		at + "requestedToCapacityRatio.shape[0].score: -1 is not within 0..10": strategy(
			RequestedToCapacityRatio, "", Point{0, -1}),
		"args.ignoredResources[1]: must not be empty": {
			IgnoredResources: []string{"a.io/x", ""}},
		`args.ignoredResourceGroups[0]: "a.io/x" is not what stands before the slash of a resource's name`: {
			IgnoredResourceGroups: []string{"a.io/x"}},
		at + "resources[0].weight: -1 is not within 1..100\n" + at +
			"resources[1].weight: 0 is not within 1..100": strategy(MostAllocated, "cpu:-1 memory:0"),
	} {
		if _, err := New(args); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// The plugin keeps nothing of its arguments that the caller could change.
func TestArgsAreCopied(t *testing.T) {
	args := strategy(MostAllocated, "cpu:1")
	p := plugin(t, args)
	args.ScoringStrategy.Resources[0] = WeightedResource{"memory", 1}
	if got := p.Score(nil, pod("p", "cpu=1"), node("cpu=4 memory=1Ti", "")); got != 25 {
		t.Errorf("score %d after the arguments changed", got)
	}
	shape := []Point{{0, 0}, {100, 10}}
	p = plugin(t, strategy(RequestedToCapacityRatio, "cpu:1", shape...))
	slices.Reverse(shape)
	if got := p.Score(nil, pod("p", "cpu=1"), node("cpu=4", "")); got != 25 {
		t.Errorf("score %d after the shape changed", got)
	}
}
