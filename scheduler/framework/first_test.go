package framework

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// host wants one host: it refuses all others, and says which nodes to look at first.
type host struct {
	name  string
	tells bool
	asked *[]string
	no    *Status
}

func (h host) Name() string { return "Host" + h.name }

func (h host) PreFilter(_ *CycleState, _ *PodInfo, s *Snapshot) (*PreFilterResult, *Status) {
	if !h.tells {
		return nil, nil
	}
	if h.name == "any" {
		return &PreFilterResult{First: s.Nodes()}, nil
	}
	return &PreFilterResult{First: append([]*NodeInfo{}, s.NodesWith("host", h.name)...)}, nil
}

func (h host) Filter(_ *CycleState, _ *PodInfo, n *NodeInfo) *Status {
	*h.asked = append(*h.asked, n.Name)
	if h.name == "any" || n.Node.GetMetadata().GetLabels()["host"] == h.name {
		return nil
	}
	return h.no
}

// Nodes that a plugin wants looked at first are the only ones that are looked at when one of them fits. It changes no
// decision and no message.
func TestFirstNodes(t *testing.T) {
	s := NewSnapshot()
	for i := range 40 {
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("n", i),
			Labels: map[string]string{"host": fmt.Sprint("h", i/2)}}}
		s.Set(n.Metadata.Name, NewNodeInfo(n.Metadata.Name, n))
	}
	search := NewSearcher(1)
	for _, c := range []struct{ hosts, want string }{
		{"h3", "n6 n7"},
		{"h3 h3x", ""},
		{"gone", ""},
		{"h5 h5", "n10 n11"},
		{"h5 h6", ""},
		{"any h7", "n14 n15"},
		{"h8 any", "n16 n17"},
	} {
		decide := func(tells bool) (Decision, []string) {
			var asked []string
			p := &Profile{enqueue: map[string]Enqueue{}}
			for _, name := range strings.Fields(c.hosts) {
				h := host{name, tells, &asked, NewStatus(Unresolvable, "Host", "another host")}
				p.preFilters, p.filters = append(p.preFilters, h), append(p.filters, h)
			}
			return p.Schedule(&CycleState{}, testPod("a", ""), s, search), asked
		}
		search.next = 7
		with, asked := decide(true)
		if with.Node != "" && (search.next != 7 || len(asked) > 4) {
			t.Errorf("%s: asked about %v, and the search goes on at %d after 7", c.hosts, asked, search.next)
		}
		without, _ := decide(false)
		if fits := slices.Contains(strings.Fields(c.want), with.Node); fits != (c.want != "") ||
			(with.Node == "") != (without.Node == "") {
			t.Errorf("%s: on %q, without being told on %q, want one of %q", c.hosts, with.Node, without.Node, c.want)
		}
		if with.Node == "" && with.Diagnosis.Message() != without.Diagnosis.Message() {
			t.Errorf("%s: %s, without being told: %s", c.hosts, with.Diagnosis.Message(), without.Diagnosis.Message())
		}
	}
}
