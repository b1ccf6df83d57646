package naive

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/objects"
)

// closed refuses all nodes, so that the PostFilter plugins run, until it opens.
type closed struct {
	refused *framework.Status
	open    bool
}

func (*closed) Name() string { return "Closed" }

func (c *closed) Filter(*framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	if c.open {
		return nil
	}
	return c.refused
}

// judge opens the filter and tries nodes.
type judge struct {
	closed *closed
	try    func(t *framework.Trial, s *framework.Snapshot)
}

func (*judge) Name() string { return "Judge" }

func (j *judge) PostFilter(state *framework.CycleState, _ *framework.PodInfo, s *framework.Snapshot,
	_ *framework.Diagnosis,
) (*framework.Nomination, *framework.Status) {
	if t := state.Trial(); t != nil { // nil when the pod was refused for all nodes
		j.closed.open = true
		j.try(t, s)
	}
	return nil, j.closed.refused
}

// What a trial says of a node without some of its pods is what the default filters say of it when these pods are
// really gone, and those that room is kept for are really there, or not there. So it is when pods come back one by
// one, and nothing of one trial is left in the next.
//
// spec: PREEMPT-1, PREEMPT-2
func TestTrialJudgesAsReality(t *testing.T) {
	const seeds = 600
	r := newReferee(t)
	counts := objects.Counts{}
	first, last := 0, seeds
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	for seed := first; seed < last; seed++ {
		d := NewDice(uint64(seed)) //nolint:gosec // not negative
		n := d.plea(r.filters)
		shut := &closed{refused: framework.NewStatus(framework.Unschedulable, "Closed", "closed")}
		j := &judge{closed: shut, try: func(trial *framework.Trial, s *framework.Snapshot) {
			for range 6 {
				node := s.Nodes()[d.IntN(len(s.Nodes()))]
				if about := (reality{n, r.profile, counts}).check(d, trial, node); about != "" {
					t.Fatalf("seed %d: node %s: %s\n%s", seed, node.Name, about,
						n.story(framework.Decision{Diagnosis: &framework.Diagnosis{}}, nil))
				}
			}
		}}
		plugins := []framework.Enabled{{Plugin: shut}}
		for _, e := range scheduler.DefaultPlugins(client.New(nil)) {
			if e.Plugin.Name() != "DefaultPreemption" {
				plugins = append(plugins, e)
			}
		}
		profile, err := framework.NewProfile("closed", 0, append(plugins, framework.Enabled{Plugin: j})...)
		if err != nil {
			t.Fatal(err)
		}
		if got := profile.Schedule(&framework.CycleState{}, framework.NewPodInfo(n.pod), n.snapshot(),
			framework.NewSearcher(1)); got.Err != nil {
			t.Fatalf("seed %d: %v", seed, got.Err)
		}
	}
	if *onlySeed < 0 {
		least := map[string]int{"fits": 800, "came back": 400, "stayed away": 100, "room is kept": 200}
		for _, plugin := range []string{"NodePorts", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"} {
			least["refused by "+plugin] = 20
		}
		counts.Floors(t, least)
	}
}

// reality judges clusters in which what a trial supposes is so.
type reality struct {
	*plea
	profile *framework.Profile
	counts  objects.Counts
}

func (r reality) check(d Dice, trial *framework.Trial, node *framework.NodeInfo) string {
	gone := map[string]*framework.PodInfo{}
	share := 1 + d.IntN(3)
	for _, p := range node.Pods() {
		if d.one(share) {
			gone[p.UID] = p
		}
	}
	trial.Begin(node, func(p *framework.PodInfo) bool { return gone[p.UID] != nil })
	if about := r.same(trial.Fits(), node.Name, gone); about != "" {
		return about
	}
	order := slices.Sorted(maps.Keys(gone))
	d.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, uid := range order {
		p := gone[uid]
		delete(gone, uid)
		back := trial.Return(p)
		if back != (r.refusal(node.Name, gone) == nil) {
			return fmt.Sprintf("%s came back: %t, without %v: %s", uid, back, slices.Sorted(maps.Keys(gone)),
				r.refusal(node.Name, gone).Message())
		}
		if back {
			r.counts["came back"]++
		} else {
			r.counts["stayed away"]++
			gone[uid] = p
		}
		var left []string
		for _, p := range trial.Gone() {
			left = append(left, p.UID)
		}
		if slices.Sort(left); !slices.Equal(left, slices.Sorted(maps.Keys(gone))) {
			return fmt.Sprintf("gone are %v, want %v", left, slices.Sorted(maps.Keys(gone)))
		}
	}
	return r.same(trial.Fits(), node.Name, gone)
}

func (r reality) same(got *framework.Status, node string, gone map[string]*framework.PodInfo) string {
	want := r.refusal(node, gone)
	if want == nil {
		r.counts["fits"]++
	} else {
		r.counts["refused by "+want.Plugin()]++
	}
	if (got == nil) != (want == nil) {
		return fmt.Sprintf("without %v: %q, really %q", slices.Sorted(maps.Keys(gone)), got.Message(), want.Message())
	}
	if leftOut := "node(s) didn't satisfy plugin(s) [NodeAffinity]"; got.Message() != want.Message() &&
		want.Message() != leftOut {
		return fmt.Sprintf("without %v it is refused for %q, really for %q", slices.Sorted(maps.Keys(gone)), got.Message(),
			want.Message())
	}
	return ""
}

// refusal is what the profile says of a cluster in which the pods are gone: first with the pods that room is kept for,
// then without.
func (r reality) refusal(node string, gone map[string]*framework.PodInfo) *framework.Status {
	without := &Cluster{nodes: r.nodes, namespaces: r.namespaces}
	for _, p := range r.pods {
		if gone[p.Metadata.Uid] == nil {
			without.pods = append(without.pods, p)
		}
	}
	with := &Cluster{nodes: r.nodes, namespaces: r.namespaces, pods: slices.Clone(without.pods)}
	for _, k := range r.kept[node] {
		if k.Spec.GetPriority() >= r.pod.Spec.GetPriority() {
			there := object.Clone(k)
			there.Spec.NodeName = node
			with.pods = append(with.pods, there)
			r.counts["room is kept"]++
		}
	}
	for _, c := range []*Cluster{with, without} {
		e, err := r.profile.Explain(framework.NewPodInfo(r.pod), c.snapshot())
		if err != nil {
			return framework.AsError("Explain", err)
		}
		for _, n := range e.Nodes {
			if n.Name == node && n.Refused != nil {
				return n.Refused
			}
		}
	}
	return nil
}
