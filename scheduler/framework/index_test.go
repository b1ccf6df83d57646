package framework

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func labelled(kv map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: kv}
}

// spec: SPREAD-1, SPREAD-2
func TestPodQuery(t *testing.T) {
	pod := func(namespace string, going bool, kv map[string]string) *corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: namespace, Labels: kv}}
		if going {
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		return p
	}
	expr := func(key, op string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: key, Operator: op,
			Values: values}}}
	}
	web := map[string]string{"app": "web", "hash": "1"}
	for name, c := range map[string]struct {
		query  *PodQuery
		pod    *corev1.Pod
		counts bool
	}{
		"matches": {NewPodQuery("a", labelled(map[string]string{"app": "web"}), nil), pod("a", false, web),
			true},
		"other namespace": {NewPodQuery("a", labelled(map[string]string{"app": "web"}), nil), pod("b", false, web),
			false},
		"terminating": {NewPodQuery("a", labelled(map[string]string{"app": "web"}), nil), pod("a", true, web),
			false},
		"other value": {NewPodQuery("a", labelled(map[string]string{"app": "db"}), nil), pod("a", false, web),
			false},
		"more matches": {NewPodQuery("a", labelled(map[string]string{"app": "web"}), map[string]string{"hash": "1"}),
			pod("a", false, web), true},
		"more does not match": {NewPodQuery("a", labelled(map[string]string{"app": "web"}), map[string]string{"hash": "2"}),
			pod("a", false, web), false},
		"only more":        {NewPodQuery("a", labelled(nil), map[string]string{"hash": "1"}), pod("a", false, web), true},
		"nil":              {NewPodQuery("a", nil, nil), pod("a", false, web), false},
		"nil and more":     {NewPodQuery("a", nil, map[string]string{"hash": "1"}), pod("a", false, web), false},
		"empty":            {NewPodQuery("a", labelled(nil), nil), pod("a", false, web), false},
		"In":               {NewPodQuery("a", expr("app", "In", "db", "web"), nil), pod("a", false, web), true},
		"NotIn":            {NewPodQuery("a", expr("app", "NotIn", "db", "web"), nil), pod("a", false, web), false},
		"Exists":           {NewPodQuery("a", expr("app", "Exists"), nil), pod("a", false, web), true},
		"DoesNotExist":     {NewPodQuery("a", expr("tier", "DoesNotExist"), nil), pod("a", false, web), true},
		"unknown operator": {NewPodQuery("a", expr("app", "Odd"), nil), pod("a", false, web), false},
	} {
		if got := c.query.Counts(c.pod, nil); got != c.counts {
			t.Errorf("%s: %v", name, got)
		}
	}
	if a, b := NewPodQuery("a", labelled(web), nil), NewPodQuery("a", labelled(web), nil); a.text != b.text {
		t.Errorf("equal queries: %s, %s", a.text, b.text)
	}
}

// What the snapshot keeps up to date is what one finds by counting. spec: SPREAD-2
func TestIndexAgainstCounting(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"zone", "host", "rack"}
	queries := []*PodQuery{
		NewPodQuery("a", labelled(map[string]string{"app": "x"}), nil),
		NewPodQuery("a", labelled(map[string]string{"app": "y"}), nil),
		NewPodQuery("b", labelled(map[string]string{"app": "x"}), nil), NewPodQuery("a", nil, nil),
	}
	w := walk{s: NewSnapshot(), rng: rng}
	for step := range 4000 {
		w.step()
		s := w.s
		if rng.IntN(3) == 0 {
			continue // several changes between two decisions
		}
		for _, q := range queries {
			c := s.Counter(q)
			for _, key := range keys[:1+rng.IntN(len(keys))] {
				compare(t, step, s, c, q, key)
			}
		}
	}
}

// walk changes the nodes and pods of a snapshot at random.
type walk struct {
	s   *Snapshot
	rng *rand.Rand
	uid int
}

func (w *walk) step() {
	s, rng := w.s, w.rng
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	name := fmt.Sprint("n", rng.IntN(12))
	n := s.Node(name)
	switch r := rng.IntN(20); {
	case n == nil || r == 0:
		kv := map[string]string{"host": name}
		if rng.IntN(5) > 0 {
			kv["zone"] = pick("1", "2", "3")
		}
		if rng.IntN(2) == 0 {
			kv["rack"] = pick("r", "s")
		}
		node := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: kv}}
		if n == nil {
			n = NewNodeInfo(name, node)
		} else {
			n = n.WithNode(node)
		}
	case r == 1:
		n = nil
	case r < 8 && len(n.Pods()) > 0:
		n = n.WithoutPod(n.Pods()[rng.IntN(len(n.Pods()))].UID)
	case r < 12 && len(n.Pods()) > 0:
		old := n.Pods()[rng.IntN(len(n.Pods()))]
		m := old.Pod.Metadata.Shallow()
		m.Labels = map[string]string{"app": pick("x", "y")}
		m.DeletionTimestamp = nil
		if rng.IntN(3) == 0 {
			m.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		n = n.WithPodUpdated(old.WithPod(&corev1.Pod{Metadata: m, Spec: old.Pod.Spec}))
	default:
		w.uid++
		n = n.WithPod(NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{
			Namespace: pick("a", "b"), Name: fmt.Sprint(w.uid), Uid: fmt.Sprint(w.uid),
			Labels: map[string]string{"app": pick("x", "y")},
		}}))
	}
	s.Set(name, n)
}

func compare(t *testing.T, step int, s *Snapshot, c *Counter, q *PodQuery, key string) {
	t.Helper()
	top := s.Topology(key)
	sums, has := c.Sums(top), map[string]int{}
	without := 0
	for i, n := range s.Nodes() {
		count := 0
		for _, p := range n.Pods() {
			if q.Counts(p.Pod, nil) {
				count++
			}
		}
		if c.Node(i) != count {
			t.Fatalf("step %d: %s has %d pods of %s, the counter says %d", step, n.Name, count, q.text, c.Node(i))
		}
		if v, ok := n.Node.Metadata.Labels[key]; ok {
			has[v] += count
		} else {
			without++
		}
		if d := top.Of(i); d != top.Find(n) || (d != NoDomain) != top.HasKey(n) {
			t.Fatalf("step %d: %s is in domain %d", step, n.Name, d)
		}
	}
	for v, sum := range has {
		d, ok := top.domains[v]
		if !ok || sums.Domain(int(d)) != sum {
			t.Fatalf("step %d: domain %s=%s has %d pods of %s, not %d", step, key, v, sum, q.text, sums.Domain(int(d)))
		}
	}
	least := 0
	if len(has) > 0 {
		least = slices.Min(slices.Collect(maps.Values(has)))
	}
	if top.Domains() != len(has) || top.Without() != without || sums.Least() != least {
		t.Fatalf("step %d: %d domains of %s, %d nodes without, least %d; want %d, %d, %d",
			step, top.Domains(), key, top.Without(), sums.Least(), len(has), without, least)
	}
}

// More selectors than there is room for are counted right all the same.
func TestCountersAreBounded(t *testing.T) {
	s := NewSnapshot()
	n := NewNodeInfo("n", &corev1.Node{})
	for i := range 3 {
		n = n.WithPod(NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: fmt.Sprint(i), Namespace: "a",
			Labels: map[string]string{"i": fmt.Sprint(i)}}}))
	}
	s.Set("n", n)
	for round := range 2 {
		for i := range 2 * maxCounters {
			want := 0
			if i < 3 {
				want = 1
			}
			if got := s.Counter(NewPodQuery("a", labelled(map[string]string{"i": fmt.Sprint(i)}), nil)).Node(0); got != want {
				t.Fatalf("round %d: %d pods with label %d", round, got, i)
			}
		}
	}
	if len(s.index.counters) > maxCounters {
		t.Errorf("%d counters", len(s.index.counters))
	}
}
