package framework

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// inZones are three nodes in each of as many zones, numbered across the zones, and one node without. Each pod is on
// the node that has its name.
func inZones(zones int, pods ...*PodInfo) *Snapshot {
	s := NewSnapshot()
	for i := range 3*zones + 1 {
		labels := map[string]string{"zone": fmt.Sprint("z", i%zones)}
		if i == 3*zones {
			labels = nil
		}
		name := fmt.Sprint("n", i)
		n := NewNodeInfo(name, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: labels}})
		for _, p := range pods {
			if p.Pod.Metadata.Name == name {
				n = n.WithPod(p)
			}
		}
		s.Set(name, n)
	}
	return s
}

func appPod(name, app string) *PodInfo {
	p := testPod(name, "")
	p.Pod.Metadata.Labels = map[string]string{"app": app}
	return p
}

// The nodes around some pods are those of their domains, whole, as long as they are few.
func TestNodesAround(t *testing.T) {
	s := inZones(4, appPod("n1", "web"), appPod("n5", "web"), appPod("n2", "db"), appPod("n3", "db"),
		appPod("n12", "lost"))
	zone := s.Topology("zone")
	for _, c := range []struct {
		app   string
		limit int
		want  string
		ok    bool
	}{
		{"web", 3, "n1 n5 n9", true},
		{"web", 2, "", false},
		{"db", 6, "n10 n11 n2 n3 n6 n7", true},
		{"db", 5, "", false},
		{"lost", 9, "", true},
		{"nobody", 0, "", true},
	} {
		q := newTermQuery(&metav1.ObjectMeta{}, &corev1.PodAffinityTerm{TopologyKey: "zone",
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": c.app}}})
		for range 2 { // lists are kept
			list, ok := s.NodesAround(zone, s.Counter(q).Sums(zone), c.limit)
			var names []string
			for _, n := range list {
				names = append(names, n.Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != c.want || ok != c.ok {
				t.Errorf("%s, at most %d: %q, %v, want %q, %v", c.app, c.limit, got, ok, c.want, c.ok)
			}
		}
	}
}

// crowd wants all but a few nodes looked at first.
type crowd struct{ host }

func (c crowd) PreFilter(_ *CycleState, _ *PodInfo, s *Snapshot) (*PreFilterResult, *Status) {
	return &PreFilterResult{First: s.Nodes()[:len(s.Nodes())-3]}, nil
}

// First nodes that are more than a search would find are no shortcut, and all of them would have to be scored.
func TestTooManyFirstNodes(t *testing.T) {
	s := inZones(100)
	var asked []string
	c := crowd{host{name: "any", asked: &asked}}
	p := &Profile{enqueue: map[string]Enqueue{}, preFilters: []PreFilter{c}, filters: []Filter{c}}
	d := p.Schedule(&CycleState{}, testPod("a", ""), s, NewSearcher(1))
	if want := p.search.enough(301); d.Feasible != want || len(asked) != want {
		t.Errorf("%d fit of %d, want %d", d.Feasible, len(asked), want)
	}
}
