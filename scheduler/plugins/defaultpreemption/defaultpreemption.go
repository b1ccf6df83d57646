// Package defaultpreemption makes room for a pod that fits nowhere at the cost of pods of lower priority (spec:
// PREEMPT-1 to PREEMPT-4). It picks the node and the victims; the scheduler deletes them and keeps the room.
//
// What it guarantees: victims have a lower priority than the pod; without them, and with everything else as it is, the
// pod fits; putting any one of them back would make it not fit. No other node's pods are touched. A pod whose victims
// are still on their way out preempts no more.
//
// How a node is judged: all pods of lower priority are taken away; if the pod fits then, they are put back one by one,
// as far as it still fits, those first whose removal would break a disruption budget, and among them the important
// ones first.
package defaultpreemption

import (
	"fmt"
	"strings"

	"monoplane.dev/rules/disruption"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "DefaultPreemption"

// Plugin implements PostFilter.
type Plugin struct {
	args Args

	none, never, waiting *framework.Status
}

// New returns the plugin, or what is wrong with its arguments.
func New(args Args) (*Plugin, error) {
	if err := args.Validate(); err != nil {
		return nil, err
	}
	return &Plugin{
		args:    args,
		none:    framework.NewStatus(framework.Unschedulable, Name),
		never:   refuse("not eligible due to preemptionPolicy=Never."),
		waiting: refuse("not eligible due to a terminating pod on the nominated node."),
	}, nil
}

func refuse(message string) *framework.Status {
	return framework.NewStatus(framework.Unschedulable, Name, "preemption: "+message)
}

var _ framework.PostFilter = (*Plugin)(nil)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// PostFilter nominates the best node for the pod, or says why there is none.
func (p *Plugin) PostFilter(state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
	d *framework.Diagnosis,
) (*framework.Nomination, *framework.Status) {
	switch {
	case d.Nodes == 0:
		return nil, p.none
	case pod.Pod.GetSpec().GetPreemptionPolicy() == "Never":
		return nil, p.never
	case leaving(pod, snapshot.NominatedNode(pod.UID), d.Curable):
		return nil, p.waiting
	}
	s := search{pod: pod, budgets: snapshot.Budgets(), limit: p.args.candidates(len(d.Curable)),
		reasons: map[string]int{}}
	if trial := state.Trial(); trial != nil && snapshot.HasBelow(pod.Priority) {
		s.run(trial, d.Curable)
	} else {
		s.tried, s.harmless = len(d.Curable), len(d.Curable)
	}
	if s.found == 0 {
		return &framework.Nomination{}, refuse(s.message(d.Nodes))
	}
	return &framework.Nomination{Node: s.best.node.Name, Victims: s.victims(state.Trial())}, nil
}

// leaving says whether victims of the pod are still on the node that was nominated for it. One that no removal can
// cure any more does not hold the pod back.
func leaving(pod *framework.PodInfo, nominated *framework.NodeInfo, curable []*framework.NodeInfo) bool {
	if nominated == nil || !nominated.HasBelow(pod.Priority) {
		return false
	}
	going := false
	for _, v := range nominated.Pods() {
		going = going || v.Priority < pod.Priority && (v.Doomed || goingByPreemption(v))
	}
	if !going {
		return false
	}
	for _, n := range curable {
		if n == nominated {
			return true
		}
	}
	return false
}

func goingByPreemption(p *framework.PodInfo) bool {
	if p.Pod.GetMetadata().GetDeletionTimestamp() == nil {
		return false
	}
	for _, c := range p.Pod.GetStatus().GetConditions() {
		if c.GetType() == "DisruptionTarget" {
			return c.GetStatus() == "True" && c.GetReason() == disruption.ByPreemption
		}
	}
	return false
}

// message says of the nodes why none of them is a candidate.
func (s *search) message(nodes int) string {
	s.reasons["No preemption victims found for incoming pod"] = s.harmless
	s.reasons["Preemption is not helpful for scheduling"] = nodes - s.tried
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(framework.CountedReasons(s.reasons), ", "))
}
