package naive

import (
	"fmt"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/objects"
)

// worked is the cluster of the worked example of 001: node-a and node-b in zone1, node-x and node-y in zone2, with 2,
// 1, 0 and 4 pods.
func worked() *Cluster {
	c := &Cluster{}
	for _, n := range []struct {
		name, zone string
		pods       int
	}{{"node-a", "zone1", 2}, {"node-b", "zone1", 1}, {"node-x", "zone2", 0}, {"node-y", "zone2", 4}} {
		node := objects.Node(n.name)
		node.Metadata.Labels["zone"], node.Metadata.Labels["node"] = n.zone, n.name
		c.nodes = append(c.nodes, node)
		for i := range n.pods {
			p := objects.Pod(fmt.Sprint("p-", n.name, i))
			p.Metadata.Uid, p.Metadata.Labels, p.Spec.NodeName = p.Metadata.Name, map[string]string{"foo": ""}, n.name
			c.pods = append(c.pods, p)
		}
	}
	return c
}

// spreading returns a pod labelled foo with constraints given as "key maxSkew kind".
func spreading(t *testing.T, constraints ...string) *corev1.Pod {
	t.Helper()
	p := objects.Pod("p")
	p.Metadata.Uid, p.Metadata.Labels = "p", map[string]string{"foo": ""}
	for _, text := range constraints {
		c := &corev1.TopologySpreadConstraint{LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"foo": ""}}}
		if _, err := fmt.Sscan(text, &c.TopologyKey, &c.MaxSkew, &c.WhenUnsatisfiable); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	return p
}

// The figures of 001: zone1 has 3 pods and zone2 has 4, the nodes have 2, 1, 0 and 4.
//
// spec: SPREAD-2
func TestWorkedExampleCounts(t *testing.T) {
	c := worked()
	p := spreading(t, "zone 1 DoNotSchedule", "node 1 DoNotSchedule")
	want := []struct{ domains, least string }{
		{"map[zone1:3 zone2:4]", "3"},
		{"map[node-a:2 node-b:1 node-x:0 node-y:4]", "0"},
	}
	for i, con := range p.Spec.TopologySpreadConstraints {
		domains := c.domains(con, p)
		if got := fmt.Sprint(domains); got != want[i].domains {
			t.Errorf("%s: domains %s, want %s", con.TopologyKey, got, want[i].domains)
		}
		if got := fmt.Sprint(globalMin(con, domains)); got != want[i].least {
			t.Errorf("%s: minimum %s, want %s", con.TopologyKey, got, want[i].least)
		}
	}
}

// Which nodes of the worked example fit, and their scores, worked out by hand: for the filter matching + 1 - minimum
// against maxSkew, for the score the counts times ln(2+2) for the zones and ln(4+2) for the nodes, that is 7.74, 5.95,
// 5.55 and 12.71.
//
// spec: SPREAD-2, SPREAD-3
func TestWorkedExample(t *testing.T) {
	r := newReferee(t)
	for _, test := range []struct {
		constraints []string
		want        string
	}{
		{[]string{"zone 1 DoNotSchedule"}, "node-a node-b"},
		{[]string{"zone 2 DoNotSchedule"}, "node-a node-b node-x node-y"},
		{[]string{"node 1 DoNotSchedule"}, "node-x"},
		{[]string{"node 2 DoNotSchedule"}, "node-b node-x"},
		{[]string{"node 3 DoNotSchedule"}, "node-a node-b node-x"},
		{[]string{"zone 1 DoNotSchedule", "node 1 DoNotSchedule"}, ""},
		{[]string{"zone 2 DoNotSchedule", "node 1 DoNotSchedule"}, "node-x"},
		{[]string{"zone 1 DoNotSchedule", "node 2 DoNotSchedule"}, "node-b"},
		{[]string{"zone 1 ScheduleAnyway"}, "node-a=100 node-b=100 node-x=66 node-y=66"},
		{[]string{"node 1 ScheduleAnyway"}, "node-a=42 node-b=71 node-x=100 node-y=0"},
		// 8, 6, 6 and 13 pods' worth; cut off instead of rounded they would be 7, 5, 5 and 12.
		{[]string{"zone 1 ScheduleAnyway", "node 1 ScheduleAnyway"}, "node-a=84 node-b=100 node-x=100 node-y=46"},
		// maxSkew - 1 is added: 10 times 4 and 4 more nodes' worth make 12, 10, 10 and 17.
		{[]string{"zone 3 ScheduleAnyway", "node 3 ScheduleAnyway"}, "node-a=88 node-b=100 node-x=100 node-y=58"},
		// Only the nodes that fit have scores, and their domains count: ln(1+2) for one zone, all counts alike.
		{[]string{"zone 1 DoNotSchedule", "zone 1 ScheduleAnyway"}, "node-a=100 node-b=100"},
		{[]string{"absent 1 DoNotSchedule"}, ""},
		{[]string{"absent 1 ScheduleAnyway"}, "node-a=0 node-b=0 node-x=0 node-y=0"},
	} {
		t.Run(strings.Join(test.constraints, ", "), func(t *testing.T) {
			c, p := worked(), spreading(t, test.constraints...)
			naive := c.explain(p, []string{"PodTopologySpread"}, []string{"PodTopologySpread"})
			var got []string
			for _, n := range c.nodes {
				v := naive[n.Metadata.Name]
				score, ok := v.scores["PodTopologySpread"]
				got = append(got, fitting(n.Metadata.Name, len(v.refusals) == 0, score, ok)...)
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("naive: %s\nwant:  %s", s, test.want)
			}
			e, err := r.profile.Explain(framework.NewPodInfo(p), c.snapshot())
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, n := range e.Nodes {
				var score int64
				ok := false
				for _, s := range n.Scores {
					if s.Plugin == "PodTopologySpread" {
						score, ok = s.Score, true
					}
				}
				got = append(got, fitting(n.Name, n.Refused == nil, score, ok)...)
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("profile: %s\nwant:    %s", s, test.want)
			}
		})
	}
}

// fitting words what is known of a node that fits.
func fitting(node string, fits bool, score int64, scored bool) []string {
	switch {
	case !fits:
		return nil
	case !scored:
		return []string{node}
	default:
		return []string{fmt.Sprint(node, "=", score)}
	}
}

// Pods that room is kept for count as there in the domain of their node, which is then no longer the emptiest one.
//
// spec: SPREAD-2, PREEMPT-2
func TestSpreadCountsKeptRoom(t *testing.T) {
	c := worked() // node-x has none, node-b one
	for _, x := range []struct {
		kept int
		want string
	}{
		{0, "node-x"},
		{1, "node-x"}, // it would have one, as node-b, so that a second one does not get ahead of the emptiest
		{2, ""},       // it would have two, and a third is one too many beside node-b's one
	} {
		s := c.snapshot()
		var kept []*framework.PodInfo
		for i := range x.kept {
			p := objects.Pod(fmt.Sprint("kept", i))
			p.Metadata.Uid, p.Metadata.Labels = p.Metadata.Name, map[string]string{"foo": ""}
			kept = append(kept, framework.NewPodInfo(p))
		}
		s.Set("node-x", s.Node("node-x").WithNominated(kept))
		e, err := newReferee(t).profile.Explain(framework.NewPodInfo(spreading(t, "node 1 DoNotSchedule")), s)
		if err != nil {
			t.Fatal(err)
		}
		var fit []string
		for _, n := range e.Nodes {
			if n.Refused == nil {
				fit = append(fit, n.Name)
			}
		}
		if got := strings.Join(fit, " "); got != x.want {
			t.Errorf("%d kept: fits on %q, want %q", x.kept, got, x.want)
		}
	}
}
