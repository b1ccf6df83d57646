package podtopologyspread

import (
	"fmt"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

// cluster makes nodes from lines "name label=value ... : pods", where pods are how many matching ones run there.
func cluster(t *testing.T, lines ...string) *framework.Snapshot {
	t.Helper()
	s := framework.NewSnapshot()
	for _, l := range lines {
		what, pods, _ := strings.Cut(l, ":")
		words := strings.Fields(what)
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}},
			Spec: &corev1.NodeSpec{}}
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			if k == "taint" {
				n.Spec.Taints = append(n.Spec.Taints, &corev1.Taint{Key: v, Effect: "NoSchedule"})
			} else {
				n.Metadata.Labels[k] = v
			}
		}
		info := framework.NewNodeInfo(words[0], n)
		count := 0
		if _, err := fmt.Sscan(pods, &count); err != nil && strings.TrimSpace(pods) != "" {
			t.Fatal(err)
		}
		for i := range count {
			info = info.WithPod(framework.NewPodInfo(&corev1.Pod{
				Metadata: &metav1.ObjectMeta{Namespace: "default", Uid: fmt.Sprint(words[0], i),
					Labels: map[string]string{"app": "web"}},
				Spec: &corev1.PodSpec{NodeName: words[0]},
			}))
		}
		s.Set(words[0], info)
	}
	return s
}

type constraint = corev1.TopologySpreadConstraint

func hard(key string, skew int32, change ...func(*constraint)) *constraint {
	c := &constraint{MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: "DoNotSchedule",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	for _, f := range change {
		f(c)
	}
	return c
}

func soft(key string, skew int32) *constraint {
	return hard(key, skew, func(c *constraint) { c.WhenUnsatisfiable = "ScheduleAnyway" })
}

func pod(change func(*corev1.Pod), constraints ...*constraint) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "new", Uid: "new", Labels: map[string]string{"app": "web"}},
		Spec:     &corev1.PodSpec{TopologySpreadConstraints: constraints},
	}
	if change != nil {
		change(p)
	}
	return framework.NewPodInfo(p)
}

// fitting runs the filter on all nodes: "a b(uneven) c(unlabelled)".
func fitting(p *Plugin, pod *framework.PodInfo, s *framework.Snapshot) string {
	state := framework.NewCycleState(s)
	_, status := p.PreFilter(state, pod, s)
	if status.Code() == framework.Skip {
		return "skip"
	}
	var words []string
	for _, n := range s.Nodes() {
		switch p.Filter(state, pod, n) {
		case nil:
			words = append(words, n.Name)
		case p.uneven:
			words = append(words, n.Name+"(uneven)")
		case p.unlabelled:
			words = append(words, n.Name+"(unlabelled)")
		}
	}
	return strings.Join(words, " ")
}

// spec: SPREAD-1, SPREAD-2, SPREAD-5
func TestFilter(t *testing.T) {
	zones := []string{"1 zone=A host=1:1", "2 zone=A host=2:1", "3 zone=B host=3:1", "4 zone=B host=4:0"}
	minDomains := func(n int32) func(*constraint) { return func(c *constraint) { c.MinDomains = &n } }
	policy := func(affinity, taints string) func(*constraint) {
		return func(c *constraint) { c.NodeAffinityPolicy, c.NodeTaintsPolicy = &affinity, &taints }
	}
	for name, c := range map[string]struct {
		nodes []string
		pod   *framework.PodInfo
		want  string
	}{
		"no constraint":    {zones, pod(nil), "skip"},
		"only soft ones":   {zones, pod(nil, soft("zone", 1)), "skip"},
		"zones 2:1":        {zones, pod(nil, hard("zone", 1)), "1(uneven) 2(uneven) 3 4"},
		"zones 2:1 skew 2": {zones, pod(nil, hard("zone", 2)), "1 2 3 4"},
		"hosts":            {zones, pod(nil, hard("host", 1)), "1(uneven) 2(uneven) 3(uneven) 4"},
		"both":             {zones, pod(nil, hard("zone", 1), hard("host", 1)), "1(uneven) 2(uneven) 3(uneven) 4"},
		"conflict": {
			[]string{"1 zone=A host=1:2", "2 zone=A host=2:1", "3 zone=B host=3:2"}, pod(nil, hard("zone", 1), hard("host", 1)),
			"1(uneven) 2(uneven) 3(uneven)",
		},
		"conflict, zone is soft": {
			[]string{"1 zone=A host=1:2", "2 zone=A host=2:1", "3 zone=B host=3:2"}, pod(nil, soft("zone", 1), hard("host", 1)),
			"1(uneven) 2 3(uneven)",
		},
		"a pod that does not match itself": {zones, pod(func(p *corev1.Pod) { p.Metadata.Labels = nil }, hard("zone", 1)),
			"1 2 3 4"},
		"other namespace": {zones, pod(func(p *corev1.Pod) { p.Metadata.Namespace = "x" }, hard("zone", 1)),
			"1 2 3 4"},
		"nil selector": {zones, pod(nil, hard("zone", 1, func(c *constraint) { c.LabelSelector = nil })),
			"1 2 3 4"},
		"empty selector": {zones,
			pod(nil, hard("zone", 1, func(c *constraint) { c.LabelSelector = &metav1.LabelSelector{} })), "1 2 3 4"},
		"label missing": {append(zones, "5 host=5"), pod(nil, hard("zone", 1)),
			"1(uneven) 2(uneven) 3 4 5(unlabelled)"},
		"a node without one label does not count for the other": {
			[]string{"1 zone=A host=1:1", "2 zone=B:0", "3 zone=C host=3:1"}, pod(nil, hard("zone", 1), hard("host", 1)),
			"1 2(unlabelled) 3",
		},
		"too few domains": {zones, pod(nil, hard("zone", 2, minDomains(3))), "1(uneven) 2(uneven) 3 4"},
		"enough domains":  {zones, pod(nil, hard("zone", 2, minDomains(2))), "1 2 3 4"},
		// zone B, which NodeAffinity refuses, does not hold zone A back
		"affinity honored": {zones, pod(only("A"), hard("zone", 1)), "1 2 3 4"},
		"affinity ignored": {zones, pod(only("B"), hard("host", 1, policy("Ignore", "Ignore"))),
			"1(uneven) 2(uneven) 3(uneven) 4"},
		"affinity restricts": {zones, pod(only("A"), hard("host", 1)), "1 2 3 4"},
		"taints ignored": {append(zones, "5 zone=C host=5 taint=x"), pod(nil, hard("zone", 1)),
			"1(uneven) 2(uneven) 3(uneven) 4(uneven) 5"},
		"taints honored": {append(zones, "5 zone=C host=5 taint=x"), pod(nil, hard("zone", 1, policy("Honor", "Honor"))),
			"1(uneven) 2(uneven) 3 4 5"},
		"taints tolerated": {append(zones, "5 zone=C host=5 taint=x"), pod(func(p *corev1.Pod) {
			p.Spec.Tolerations = []*corev1.Toleration{{Operator: "Exists"}}
		}, hard("zone", 1, policy("Honor", "Honor"))), "1(uneven) 2(uneven) 3(uneven) 4(uneven) 5"},
		"no nodes": {nil, pod(nil, hard("zone", 1)), ""},
	} {
		if got := fitting(New(), c.pod, cluster(t, c.nodes...)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func only(zone string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": zone} }
}

// spec: SCHED-2
func TestHelps(t *testing.T) {
	with := func(label string, going bool) *corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": label}}}
		if going {
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		return p
	}
	node := func(zone string) *corev1.Node {
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Labels: map[string]string{}}}
		if zone != "" {
			n.Metadata.Labels["zone"] = zone
		}
		return n
	}
	honors := "Honor"
	waiting := pod(nil, hard("zone", 1), soft("host", 1))
	for name, c := range map[string]struct {
		pod    *framework.PodInfo
		change framework.Change
		want   bool
	}{
		"one of them comes": {waiting, framework.Change{Event: framework.PodAssigned,
			Pod: with("web", false)}, true},
		"another comes": {waiting, framework.Change{Event: framework.PodAssigned, Pod: with("db", false)},
			false},
		"one of them goes": {waiting, framework.Change{Event: framework.PodGone, OldPod: with("web", false)},
			true},
		"another goes": {waiting, framework.Change{Event: framework.PodGone, OldPod: with("db", false)},
			false},
		"one of them is about to go": {waiting, framework.Change{Event: framework.PodShrunk,
			OldPod: with("web", false), Pod: with("web", true)}, true},
		"one that was about to go is gone": {waiting, framework.Change{Event: framework.PodGone, OldPod: with("web", true)},
			false},
		"one becomes one of them": {waiting, framework.Change{Event: framework.PodShrunk, OldPod: with("db", false),
			Pod: with("web", false)}, true},
		"one of them asks for less": {waiting, framework.Change{Event: framework.PodShrunk,
			OldPod: with("web", false), Pod: with("web", false)}, false},
		"a node in a zone": {waiting, framework.Change{Event: framework.NodeAdded, Node: node("A")}, true},
		"a node without":   {waiting, framework.Change{Event: framework.NodeAdded, Node: node("")}, false},
		"a node moves": {waiting, framework.Change{Event: framework.NodeLabels, OldNode: node("A"),
			Node: node("")}, true},
		"other labels of a node": {waiting, framework.Change{Event: framework.NodeLabels, OldNode: node(""),
			Node: node("")}, false},
		"a node is gone": {waiting, framework.Change{Event: framework.NodeGone, OldNode: node("A")}, true},
		"taints": {waiting, framework.Change{Event: framework.NodeTaints, OldNode: node("A"),
			Node: node("A")}, false},
		"taints that count": {
			pod(nil, hard("zone", 1, func(c *constraint) { c.NodeTaintsPolicy = &honors })),
			framework.Change{Event: framework.NodeTaints, OldNode: node("A"), Node: node("A")}, true,
		},
		"only soft ones": {pod(nil, soft("zone", 1)), framework.Change{Event: framework.PodGone, OldPod: with("web", false)},
			false},
	} {
		if got := New().Helps(c.pod, &c.change); got != c.want || New().Events()&c.change.Event == 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// rated runs the scores of all nodes.
func rated(p *Plugin, pod *framework.PodInfo, s *framework.Snapshot) string {
	state := framework.NewCycleState(s)
	if p.PreScore(state, pod, s.Nodes()).Code() == framework.Skip {
		return "skip"
	}
	scores := make([]int64, len(s.Nodes()))
	for i, n := range s.Nodes() {
		scores[i] = p.Score(state, pod, n)
	}
	p.NormalizeScore(state, pod, s.Nodes(), scores)
	return fmt.Sprint(scores)
}

// spec: SPREAD-3
func TestScore(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []string
		pod   *framework.PodInfo
		want  string
	}{
		"only hard ones": {[]string{"1 zone=A:1"}, pod(nil, hard("zone", 1)), "skip"},
		"all empty":      {[]string{"1 zone=A", "2 zone=B"}, pod(nil, soft("zone", 1)), "[100 100]"},
		// Two zones: ln(4) = 1.386 a pod: 3 * 1.386 rounds to 4, 1.386 to 1: 100*(4+1-4)/4, 100*(4+1-1)/4.
		"zones 3:1": {[]string{"1 zone=A:3", "2 zone=B:1"}, pod(nil, soft("zone", 1)), "[25 100]"},
		// The skew adds to all: 4.16+4, 1.39+4: 8 and 5.
		"skew flattens": {[]string{"1 zone=A:3", "2 zone=B:1"}, pod(nil, soft("zone", 5)), "[62 100]"},
		// Hosts are counted one by one whatever their label says: ln(4): 4 and 1.
		"hosts of one name": {
			[]string{"1 kubernetes.io/hostname=x:3", "2 kubernetes.io/hostname=x:1"},
			pod(nil, soft("kubernetes.io/hostname", 1)), "[25 100]",
		},
		"label missing": {[]string{"1 zone=A:3", "2 zone=B:1", "3:0"}, pod(nil, soft("zone", 1)), "[25 100 0]"},
		"both": {
			// Zones 2 of ln(4), hosts 3 of ln(5): 3*1.386+2*1.609 = 7.38, 3*1.386+1.609 = 5.77, 1.386+1.609 = 3.0: 7, 6, 3.
			[]string{"1 zone=A host=1:2", "2 zone=A host=2:1", "3 zone=B host=3:1"}, pod(nil, soft("zone", 1), soft("host", 1)),
			"[42 57 100]",
		},
		"pods on nodes that the pod does not select": {
			[]string{"1 zone=A:1", "2 zone=B:1"}, pod(only("A"), soft("zone", 1)), "[0 100]",
		},
	} {
		if got := rated(New(), c.pod, cluster(t, c.nodes...)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
