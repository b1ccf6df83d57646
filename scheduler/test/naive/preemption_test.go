package naive

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/objects"
)

// plea makes a random cluster that is rather full, and a pod for it.
func (d Dice) plea(filters []string) *plea {
	n := &plea{Cluster: d.Cluster(), filters: filters, kept: map[string][]*corev1.Pod{}}
	n.nodes = n.nodes[:min(len(n.nodes), 1+d.IntN(5))]
	for i, p := range n.pods {
		p.Spec.NodeName = n.nodes[d.IntN(len(n.nodes))].Metadata.Name
		p.Spec.Priority = d.priority()
		if i > 0 { // no two start at once, and one has not yet
			p.Status.StartTime = &metav1.Time{Seconds: int64(1 + d.IntN(1000)*100 + i)}
		}
	}
	for _, node := range n.nodes {
		if !d.one(3) { // it is full, and removing pods helps
			node.Status.Allocatable["pods"].String_ = fmt.Sprint(1 + d.IntN(4))
			node.Spec.Taints, node.Spec.Unschedulable = nil, false
		}
	}
	n.pod = d.Pending("new")
	if !d.one(3) { // few wishes
		n.pod = d.pod("new")
		if d.one(2) {
			d.keepNear(n.pod, 3)
		}
	}
	n.pod.Spec.Priority = d.priority()
	if high := int32(50); d.one(2) {
		n.pod.Spec.Priority = &high
	}
	for i := range max(0, d.IntN(6)-2) {
		k := d.Pending(fmt.Sprint("kept", i))
		k.Spec.NodeName, k.Spec.Priority = "", d.priority()
		at := n.nodes[d.IntN(len(n.nodes))].Metadata.Name
		n.kept[at] = append(n.kept[at], k)
	}
	for range d.IntN(4) {
		n.budgets = append(n.budgets, budget{
			namespace: pick(d, "ns", "ns", "other"), key: "app", value: pick(d, "web", "db"),
			allowed: d.IntN(3), disrupted: pick(d, "", fmt.Sprint("p", d.IntN(5))),
		})
	}
	return n
}

func (d Dice) priority() *int32 {
	n := pick(d, int32(-2_000_000_000), -5, 0, 0, 1, 10, 10, 100, 1_000_000_000)
	return &n
}

// snapshot is the same for the profile.
func (n *plea) snapshot() *framework.Snapshot {
	s := n.Cluster.snapshot()
	for node, pods := range n.kept {
		var list []*framework.PodInfo
		for _, p := range pods {
			list = append(list, framework.NewPodInfo(p))
			s.SetNominated(p.Metadata.Uid, node)
		}
		s.Set(node, s.Node(node).WithNominated(list))
	}
	var budgets []*framework.Budget
	for _, b := range n.budgets {
		budgets = append(budgets, &framework.Budget{
			Namespace: b.namespace, Selector: labels.SelectorFromSet(labels.Set{b.key: b.value}),
			Allowed:   int32(b.allowed), //nolint:gosec // small
			Disrupted: map[string]struct{}{b.disrupted: {}},
		})
	}
	s.SetBudgets(budgets)
	return s
}

// The plugin and the naive preemption agree on random clusters, with room kept for other pods and with budgets: where
// room is made, at whose cost, and what is said when none can be made. Victims have a lower priority, are on the node,
// are enough, and each is needed. One case is repeated with -seed.
//
// spec: PREEMPT-1, PREEMPT-3, PREEMPT-4
func TestPreemptionAgainstNaive(t *testing.T) {
	r := newReferee(t)
	counts := objects.Counts{}
	first, last := 0, 12_000
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	for seed := first; seed < last; seed++ {
		d := NewDice(uint64(seed)) //nolint:gosec // not negative
		n := d.plea(r.filters)
		got := r.profile.Schedule(&framework.CycleState{}, framework.NewPodInfo(n.pod), n.snapshot(),
			framework.NewSearcher(1))
		if got.Err != nil {
			t.Fatalf("seed %d: %v", seed, got.Err)
		}
		if n.fits() {
			counts["fits"]++
			if got.Node == "" || got.Nomination != nil {
				t.Fatalf("seed %d: it fits, but: %s", seed, got.Diagnosis.Message())
			}
			continue
		}
		if got.Node != "" {
			t.Fatalf("seed %d: on %s, where it does not fit", seed, got.Node)
		}
		if got.Diagnosis.PreFilter != nil {
			counts["refused for all nodes"]++
			continue
		}
		all, reasons := n.sacrifices()
		if about := n.judge(got, all, reasons); about != "" {
			t.Fatalf("seed %d: %s\n%s", seed, about, n.story(got, all))
		}
		count(counts, got, all)
	}
	if *onlySeed < 0 {
		counts.Floors(t, map[string]int{
			"in vain": 1000, "made room": 2000, "one candidate of several": 800, "several victims": 800, "some broken": 100,
			"a budget decides": 20,
		})
	}
}

func count(c objects.Counts, got framework.Decision, all []sacrifice) {
	if len(all) == 0 {
		c["in vain"]++
		return
	}
	c["made room"]++
	if len(all) > 1 {
		c["one candidate of several"]++
	}
	if len(got.Nomination.Victims) > 1 {
		c["several victims"]++
	}
	best := smallest(all)[0]
	if best.broken > 0 {
		c["some broken"]++
	}
	for i := range all {
		all[i].broken = 0
	}
	if smallest(all)[0].node != best.node {
		c["a budget decides"]++
	}
}

// judge says what is wrong with a decision, "" when nothing.
func (n *plea) judge(got framework.Decision, all []sacrifice, reasons map[string]int) string {
	if got.Nomination == nil {
		return "no answer of the plugin: " + got.Diagnosis.Message()
	}
	if len(all) == 0 {
		want := hopeless(len(n.nodes), reasons)
		if got.Nomination.Node != "" || len(got.Nomination.Victims) > 0 || got.Diagnosis.PostFilter != want {
			return fmt.Sprintf("there is no room to be made: %+v, %q, want %q", got.Nomination, got.Diagnosis.PostFilter, want)
		}
		return ""
	}
	best := smallest(all)
	i := slices.IndexFunc(best, func(s sacrifice) bool { return s.node == got.Nomination.Node })
	if i < 0 {
		return fmt.Sprintf("the best node is %s, not %q", best[0].node, got.Nomination.Node)
	}
	if names(got.Nomination.Victims) != podNames(best[i].victims) {
		return "the victims differ, or their order"
	}
	return n.sound(got.Nomination)
}

// sound says whether a nomination keeps what preemption promises.
func (n *plea) sound(got *framework.Nomination) string {
	gone := map[string]bool{}
	for _, v := range got.Victims {
		if v.Priority >= n.pod.Spec.GetPriority() || v.Pod.Spec.NodeName != got.Node {
			return v.Key.Name + " is no lower pod of the node"
		}
		gone[v.UID] = true
	}
	node := n.nodes[slices.IndexFunc(n.nodes, func(o *corev1.Node) bool { return o.Metadata.Name == got.Node })]
	if n.refusal(node, gone) != nil {
		return "it does not fit without the victims"
	}
	for _, v := range got.Victims {
		delete(gone, v.UID)
		if n.refusal(node, gone) == nil {
			return "it fits beside " + v.Key.Name
		}
		gone[v.UID] = true
	}
	return ""
}

func names(list []*framework.PodInfo) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Key.Name)
	}
	return strings.Join(out, " ")
}

func podNames(list []*corev1.Pod) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Metadata.Name)
	}
	return strings.Join(out, " ")
}

func (n *plea) story(got framework.Decision, all []sacrifice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s\n", n.pod.AppendJSON(nil))
	for _, node := range n.nodes {
		fmt.Fprintf(&b, "  node %s\n", object.Clone(node).AppendJSON(nil))
		for _, p := range n.on(node) {
			fmt.Fprintf(&b, "    pod %s\n", p.AppendJSON(nil))
		}
		for _, p := range n.kept[node.Metadata.Name] {
			fmt.Fprintf(&b, "    kept for %s\n", p.AppendJSON(nil))
		}
	}
	fmt.Fprintf(&b, "budgets %+v\n%s\n", n.budgets, got.Diagnosis.Message())
	if got.Nomination != nil {
		fmt.Fprintf(&b, "the plugin: %s for %s\n", got.Nomination.Node, names(got.Nomination.Victims))
	}
	for _, s := range all {
		fmt.Fprintf(&b, "naive: %s for %s, %d broken\n", s.node, podNames(s.victims), s.broken)
	}
	return b.String()
}
