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
	return &corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
}

// BenchmarkDecisions is the scheduling core alone: a new pod is judged and counted on its node, and the oldest one leaves, with
// three pods a node all the time; with one on every second node where no node may have two.
func BenchmarkDecisions(b *testing.B) {
	kinds := []struct {
		name   string
		change func(*corev1.PodSpec)
	}{
		{"required affinity", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{near("zone")},
			}}
		}},
		{"required anti-affinity", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{near("kubernetes.io/hostname")},
			}}
		}},
		{"preferred affinity", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.WeightedPodAffinityTerm{
					{Weight: 1, PodAffinityTerm: near("kubernetes.io/hostname")},
				},
			}}
		}},
		{"preferred anti-affinity", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.WeightedPodAffinityTerm{
					{Weight: 1, PodAffinityTerm: near("kubernetes.io/hostname")},
				},
			}}
		}},
		{"plain", func(*corev1.PodSpec) {}},
		{"hard zone spread", func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{spread("zone", "DoNotSchedule", 5)}
		}},
		{"hard host spread", func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{spread("kubernetes.io/hostname", "DoNotSchedule", 5)}
		}},
		{"soft zone and host spread", func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{
				spread("zone", "ScheduleAnyway", 1), spread("kubernetes.io/hostname", "ScheduleAnyway", 1),
			}
		}},
		{"required node affinity", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchExpressions: []*corev1.NodeSelectorRequirement{
					{Key: "zone", Operator: "In", Values: []string{"z1", "z2", "z3"}},
				}}},
			}}}
		}},
		{"preferred node affinity", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.PreferredSchedulingTerm{{Weight: 1, Preference: &corev1.NodeSelectorTerm{
					MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"z1", "z2"}}},
				}}},
			}}
		}},
	}
	for _, k := range kinds {
		for _, nodes := range []int{1000, 5000, 15000} {
			b.Run(fmt.Sprintf("%s/%d nodes", k.name, nodes), func(b *testing.B) { benchmarkDecisions(b, nodes, k.change) })
		}
	}
}

func benchmarkDecisions(b *testing.B, nodes int, change func(*corev1.PodSpec)) {
	profile, err := scheduler.DefaultProfile(client.New(nil))
	if err != nil {
		b.Fatal(err)
	}
	snapshot, search := framework.NewSnapshot(), framework.NewSearcher(1)
	for i := range nodes {
		n := newNode(fmt.Sprint("n", i), "cpu=64", "memory=256Gi", "pods=110")
		n.Metadata.Labels["zone"] = fmt.Sprint("z", i%10)
		n.Metadata.Labels["kubernetes.io/hostname"] = n.Metadata.Name
		snapshot.Set(n.Metadata.Name, framework.NewNodeInfo(n.Metadata.Name, n))
	}
	spec := newPod("a", "cpu=100m", "memory=100Mi").Spec
	change(spec)
	type placed struct{ uid, node string }
	var pods []placed
	replica := func(uid string) *framework.PodInfo {
		return framework.NewPodInfo(&corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: uid, Uid: uid, Labels: map[string]string{"app": "web"}}, Spec: spec,
		})
	}
	decide := func(uid string) {
		info := replica(uid)
		d := profile.Schedule(&framework.CycleState{}, info, snapshot, search)
		if d.Node == "" {
			b.Fatal(d.Diagnosis.Message(), d.Err)
		}
		snapshot.Set(d.Node, snapshot.Node(d.Node).WithPod(info))
		pods = append(pods, placed{uid, d.Node})
	}
	count := 3 * nodes
	if len(spec.GetAffinity().GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()) > 0 {
		count = nodes / 2
	}
	for i := range count {
		uid, node := fmt.Sprint(i), fmt.Sprint("n", i%nodes)
		snapshot.Set(node, snapshot.Node(node).WithPod(replica(uid)))
		pods = append(pods, placed{uid, node})
	}
	b.ReportAllocs()
	i := len(pods)
	for b.Loop() {
		decide(fmt.Sprint(i))
		i++
		old := pods[0]
		pods = pods[1:]
		snapshot.Set(old.node, snapshot.Node(old.node).WithoutPod(old.uid))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
