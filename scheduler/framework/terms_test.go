package framework

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// The weights of terms that the snapshot keeps are what one finds by going through all pods, whatever comes and goes.
//
// spec: SCHED-4, SCHED-5
func TestTermsAgainstCounting(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := termTest{t, rand.New(rand.NewPCG(seed, 0)), NewSnapshot(), 0}
	for step := range 4000 {
		r.change()
		if r.IntN(3) == 0 {
			continue // several changes between two decisions
		}
		asker := r.pod().Pod
		for kind := range termKinds {
			if about := r.compare(kind, asker); about != "" {
				t.Fatalf("step %d: %s", step, about)
			}
		}
	}
	for kind := range termKinds {
		used := map[string]bool{}
		for _, n := range r.s.Nodes() {
			for _, p := range n.Pods() {
				for _, term := range termsOf(p, kind) {
					used[term.text] = true
				}
			}
		}
		if len(r.s.terms.terms[kind]) != len(used) {
			t.Errorf("kind %d: %d terms are kept, %d are in use", kind, len(r.s.terms.terms[kind]), len(used))
		}
	}
}

type termTest struct {
	*testing.T
	*rand.Rand
	s   *Snapshot
	uid int
}

func (r *termTest) pick(list ...string) string { return list[r.IntN(len(list))] }

func (r *termTest) term() *corev1.PodAffinityTerm {
	term := &corev1.PodAffinityTerm{TopologyKey: r.pick("zone", "host", "none")}
	switch r.IntN(5) {
	case 0:
		term.LabelSelector = &metav1.LabelSelector{}
	case 1:
		term.LabelSelector = &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{
			{Key: "app", Operator: r.pick("In", "NotIn"), Values: []string{"x", r.pick("y", "z")}},
		}}
	case 2, 3:
		term.LabelSelector = labelled(map[string]string{"app": r.pick("x", "y")})
	}
	switch r.IntN(4) {
	case 0:
		term.Namespaces = []string{r.pick("a", "b"), "c"}
	case 1:
		term.NamespaceSelector = labelled(map[string]string{"team": r.pick("1", "2")})
	}
	return term
}

func (r *termTest) pod() *PodInfo {
	r.uid++
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{
		Namespace: r.pick("a", "b"), Uid: fmt.Sprint(r.uid), Labels: map[string]string{"app": r.pick("x", "y", "z")},
	}, Spec: &corev1.PodSpec{}}
	if r.IntN(2) == 0 {
		var near corev1.PodAffinity
		var apart corev1.PodAntiAffinity
		for range r.IntN(3) {
			near.RequiredDuringSchedulingIgnoredDuringExecution = append(near.RequiredDuringSchedulingIgnoredDuringExecution,
				r.term())
			apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution,
				r.term())
			near.PreferredDuringSchedulingIgnoredDuringExecution = append(near.PreferredDuringSchedulingIgnoredDuringExecution,
				&corev1.WeightedPodAffinityTerm{Weight: 1 + r.Int32N(3), PodAffinityTerm: r.term()})
			apart.PreferredDuringSchedulingIgnoredDuringExecution = append(
				apart.PreferredDuringSchedulingIgnoredDuringExecution,
				&corev1.WeightedPodAffinityTerm{Weight: 1 + r.Int32N(3), PodAffinityTerm: r.term()})
		}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &near, PodAntiAffinity: &apart}
	}
	return NewPodInfo(p)
}

// change makes one change: nodes, pods and namespaces come, go and change.
func (r *termTest) change() {
	name := fmt.Sprint("n", r.IntN(8))
	n := r.s.Node(name)
	switch c := r.IntN(20); {
	case c == 0:
		r.s.SetNamespace(r.pick("a", "b"), map[string]string{"team": r.pick("1", "2", "3")})
		return
	case c == 1:
		r.s.SetNamespace(r.pick("a", "b"), nil)
		return
	case n == nil || c == 2:
		kv := map[string]string{"host": name}
		if r.IntN(4) > 0 {
			kv["zone"] = r.pick("1", "2", "3")
		}
		node := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: kv}}
		if n == nil {
			n = NewNodeInfo(name, node).WithPod(r.pod())
		} else {
			n = n.WithNode(node)
		}
	case c == 3:
		n = nil
	case c < 10 && len(n.Pods()) > 0:
		n = n.WithoutPod(n.Pods()[r.IntN(len(n.Pods()))].UID)
	case c < 12 && len(n.Pods()) > 0:
		old, p := n.Pods()[r.IntN(len(n.Pods()))], r.pod()
		p.UID = old.UID
		n = n.WithPodUpdated(p)
	default:
		n = n.WithPod(r.pod())
	}
	r.s.Set(name, n)
}

func termsOf(p *PodInfo, kind TermKind) []PodTerm {
	if p.Affinity == nil {
		return nil
	}
	return [termKinds][]PodTerm{p.Affinity.Affinity, p.Affinity.AntiAffinity, p.Affinity.Preferred}[kind]
}

// compare returns how the weights by label and value differ, for the terms of one kind that select a pod.
func (r *termTest) compare(kind TermKind, pod *corev1.Pod) string {
	got, want := map[string]int64{}, map[string]int64{}
	r.s.Terms(kind, pod, func(t *Term) {
		topology, sums := r.s.TermSums(t)
		for d, sum := range sums {
			got[t.Key+"="+topology.values[d]] += sum
		}
	})
	for _, n := range r.s.Nodes() {
		for _, p := range n.Pods() {
			for _, t := range termsOf(p, kind) {
				if v, ok := n.Node.Metadata.Labels[t.Key]; ok && t.Pods.Counts(pod, r.s.Namespaces()) {
					want[t.Key+"="+v] += t.Weight
				}
			}
		}
	}
	for _, m := range []map[string]int64{got, want} {
		maps.DeleteFunc(m, func(_ string, v int64) bool { return v == 0 })
	}
	if !maps.Equal(got, want) {
		return fmt.Sprintf("terms of kind %d: %v, want %v", kind, got, want)
	}
	return ""
}

// More terms than sums are kept for are summed up right all the same.
func TestTermSumsAreBounded(t *testing.T) {
	s := NewSnapshot()
	n := NewNodeInfo("n", &corev1.Node{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"zone": "1"}}})
	for i := range maxTermSums + 10 {
		n = n.WithPod(NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: fmt.Sprint(i), Namespace: "a"},
			Spec: &corev1.PodSpec{
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{TopologyKey: "zone",
						LabelSelector: &metav1.LabelSelector{
							MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: fmt.Sprint(i), Operator: "DoesNotExist"}},
						}}},
				}},
			}}))
	}
	s.Set("n", n)
	for range 2 {
		terms := 0
		s.Terms(RequiredAntiAffinity, &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "a"}}, func(term *Term) {
			if _, sums := s.TermSums(term); len(sums) != 1 || sums[0] != 1 {
				t.Fatalf("%s: %v", term.text, sums)
			}
			terms++
		})
		if terms != maxTermSums+10 || len(s.terms.summed) > maxTermSums {
			t.Errorf("%d terms, %d have sums", terms, len(s.terms.summed))
		}
	}
}
