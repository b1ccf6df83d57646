package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// spread returns a constraint on pods labelled app=web.
func spread(key, unsatisfiable string, skew int32) *corev1.TopologySpreadConstraint {
	return &corev1.TopologySpreadConstraint{MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: unsatisfiable,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
}

// near returns a term about pods labelled app=web.
func near(key string) *corev1.PodAffinityTerm {
	return &corev1.PodAffinityTerm{TopologyKey: key,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
}

// decisionKind is a kind of pods to decide about.
type decisionKind struct {
	name string
	// allocs is how many allocations a decision may take, the making of the PodInfo not included.
	allocs int
	change func(*corev1.PodSpec)
}

func decisionKinds() []decisionKind {
	return []decisionKind{
		{"required affinity", 13, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{near("zone")},
			}}
		}},
		{"required anti-affinity", 10, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{near("kubernetes.io/hostname")},
			}}
		}},
		{"preferred affinity", 11, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.WeightedPodAffinityTerm{
					{Weight: 1, PodAffinityTerm: near("kubernetes.io/hostname")},
				},
			}}
		}},
		{"preferred anti-affinity", 11, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.WeightedPodAffinityTerm{
					{Weight: 1, PodAffinityTerm: near("kubernetes.io/hostname")},
				},
			}}
		}},
		{"plain", 7, func(*corev1.PodSpec) {}},
		{"hard zone spread", 12, func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{spread("zone", "DoNotSchedule", 5)}
		}},
		{"hard host spread", 12, func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{spread("kubernetes.io/hostname", "DoNotSchedule",
				5)}
		}},
		{"soft zone and host spread", 15, func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{
				spread("zone", "ScheduleAnyway", 1), spread("kubernetes.io/hostname", "ScheduleAnyway", 1),
			}
		}},
		{"required node affinity", 20, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchExpressions: []*corev1.NodeSelectorRequirement{
						{Key: "zone", Operator: "In", Values: []string{"z1", "z2", "z3"}},
					}}},
				}}}
		}},
		{"preferred node affinity", 16, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.PreferredSchedulingTerm{{Weight: 1,
					Preference: &corev1.NodeSelectorTerm{
						MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"z1", "z2"}}},
					}}},
			}}
		}},
	}
}

// BenchmarkDecisions is the scheduling core alone: a new pod is judged and counted on its node, and the oldest one
// leaves, with three pods a node all the time; with one on every second node where no node may have two.
func BenchmarkDecisions(b *testing.B) {
	for _, k := range decisionKinds() {
		for _, nodes := range []int{1000, 5000, 15000} {
			b.Run(fmt.Sprintf("%s/%d nodes", k.name, nodes), func(b *testing.B) {
				c := newBenchCluster(b, nodes, "cpu=64", "memory=256Gi", "pods=110")
				stream := c.stream(k)
				b.ReportAllocs()
				for b.Loop() {
					stream()
				}
				c.report(b, "decisions")
			})
		}
	}
}

// A decision takes no more memory than it did: what is allocated for each node, or each pod, shows here at once.
func TestAllocations(t *testing.T) {
	const nodes = 300
	for _, k := range decisionKinds() {
		c := newBenchCluster(t, nodes, "cpu=64", "memory=256Gi", "pods=110")
		stream := c.stream(k)
		for range nodes { // what the snapshot keeps is there, and the scratch space is large enough
			stream()
		}
		p := c.replica("measured", 0, k.spec())
		if got := c.allocations(p); got > k.allocs {
			t.Errorf("%s: %v allocations, at most %d were expected", k.name, got, k.allocs)
		}
	}
	for name, k := range map[string]struct {
		priority int32
		allocs   int
	}{"refusal": {0, 23}, "preemption": {10, 19}} {
		c := newBenchCluster(t, nodes, "cpu=4", "memory=32Gi", "pods=110")
		spec := c.fill(4)
		p := c.replica("measured", k.priority, spec)
		c.decide(p)
		if got := c.allocations(p); got > k.allocs {
			t.Errorf("%s: %v allocations, at most %d were expected", name, got, k.allocs)
		}
	}
}

func (k decisionKind) spec() *corev1.PodSpec {
	s := newPod("a", "cpu=100m", "memory=100Mi").Spec
	k.change(s)
	return s
}

// BenchmarkDecision is the decision alone, the assumption included: 1 000 nodes, plain pods.
func BenchmarkDecision(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			profile, err := scheduler.DefaultProfile(client.New(nil))
			if err != nil {
				b.Fatal(err)
			}
			snapshot, search := framework.NewSnapshot(), framework.NewSearcher(1)
			for i := range nodes {
				name := fmt.Sprint("n", i)
				snapshot.Set(name, framework.NewNodeInfo(name, newNode(name, "cpu=64", "memory=256Gi", "pods=1000000")))
			}
			p := newPod("a", "cpu=1m", "memory=1Mi")
			p.Metadata = &metav1.ObjectMeta{Name: "a", Uid: "a"}
			info := framework.NewPodInfo(p)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d := profile.Schedule(&framework.CycleState{}, info, snapshot, search)
				if d.Node == "" {
					b.Fatal(d.Diagnosis.Message())
				}
				if i++; i%100 != 0 { // so that nodes do not fill up
					snapshot.Set(d.Node, snapshot.Node(d.Node).WithPodUpdated(info))
				}
			}
		})
	}
}
