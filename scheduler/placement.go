package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/codec/value"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

// status puts what is known about a pod into the form of the API.
func (t *told) status(pod *framework.PodInfo, ask *schedulingv1rpc.ExplainCall) *schedulingv1.PlacementReviewStatus {
	st := &schedulingv1.PlacementReviewStatus{SchedulerName: pod.Pod.GetSpec().GetSchedulerName()}
	if t.picked != "" {
		st.Message = fmt.Sprintf("node %s was picked for the pod, which is about to be bound to it", t.picked)
		st.Holds = []*schedulingv1.PlacementHold{{Reason: "Binding", Message: st.Message}}
		return st
	}
	e := &t.explanation
	nodes := make([]*schedulingv1.PlacementNode, len(e.Nodes))
	for i := range e.Nodes {
		nodes[i] = nodeOf(&e.Nodes[i])
		if nodes[i].Fits {
			st.FitCount++
		}
	}
	slices.SortFunc(nodes, bestFirst)
	st.NodeCount = int32(len(nodes)) //nolint:gosec // there are no 2^31 nodes
	st.PreFilter = refusalOf(e.PreFilter)
	st.Queue = queueOf(t.place)
	st.Preemption = t.preemption(pod)
	st.Message = t.sentence(nodes, st.FitCount)
	if !t.gate.IsSuccess() {
		why := t.gate.Message()
		if gates := pod.Pod.GetSpec().GetSchedulingGates(); len(gates) > 0 {
			names := make([]string, len(gates))
			for i, g := range gates {
				names[i] = g.GetName()
			}
			why += " (" + strings.Join(names, ", ") + ")"
		}
		st.Holds = []*schedulingv1.PlacementHold{{Reason: "SchedulingGated", Message: why}}
		st.Message = why + "; otherwise: " + st.Message
	}
	st.Nodes = selected(nodes, ask)
	return st
}

// sentence says why no node fits, or where the pod would go. Nodes are the best first.
func (t *told) sentence(nodes []*schedulingv1.PlacementNode, fit int32) string {
	if fit == 0 {
		return t.explanation.Message
	}
	text := fmt.Sprintf("%d/%d nodes are available: ", fit, len(nodes))
	if t.nominated != nil && slices.ContainsFunc(nodes[:fit],
		func(n *schedulingv1.PlacementNode) bool { return n.Name == t.nominated.Name }) {
		return text + "the pod would go to " + t.nominated.Name + ", where room is kept for it."
	}
	if int(fit) > t.explanation.Enough {
		return text + fmt.Sprintf("the pod would go to the best of the first %d that the search meets.",
			t.explanation.Enough)
	}
	best := 1
	for best < int(fit) && nodes[best].GetTotal() == nodes[0].GetTotal() {
		best++
	}
	const most = 3
	switch {
	case best == 1:
		return text + "the pod would go to " + nodes[0].Name + "."
	case best > most:
		return text + fmt.Sprintf("the pod would go to one of the %d that score alike.", best)
	}
	names := make([]string, best)
	for i := range names {
		names[i] = nodes[i].Name
	}
	return text + "the pod would go to " + strings.Join(names[:best-1], ", ") + " or " + names[best-1] +
		", which score alike."
}

// preemption says what was done to make room for the pod, or would be.
func (t *told) preemption(pod *framework.PodInfo) *schedulingv1.PlacementPreemption {
	if t.nominated != nil {
		p := &schedulingv1.PlacementPreemption{NodeName: t.nominated.Name, Begun: true}
		for _, v := range t.nominated.Pods() {
			if v.Priority < pod.Priority && (v.Doomed || v.Pod.GetMetadata().GetDeletionTimestamp() != nil) {
				p.Victims = append(p.Victims, v.Key.String())
			}
		}
		return p
	}
	n := t.explanation.Nomination
	if n == nil || n.Node == "" {
		return nil
	}
	p := &schedulingv1.PlacementPreemption{NodeName: n.Node}
	for _, v := range n.Victims {
		p.Victims = append(p.Victims, v.Key.String())
	}
	return p
}

func nodeOf(n *framework.NodeExplanation) *schedulingv1.PlacementNode {
	if n.Refused != nil {
		out := &schedulingv1.PlacementNode{Name: n.Name, RefusedBy: refusalOf(n.Refused)}
		for _, s := range n.Also {
			out.AlsoRefusedBy = append(out.AlsoRefusedBy, refusalOf(s))
		}
		return out
	}
	out := &schedulingv1.PlacementNode{
		Name: n.Name, Fits: true, Total: &n.Total, Scores: make([]*schedulingv1.PlacementScore, len(n.Scores)),
	}
	for i, s := range n.Scores {
		out.Scores[i] = &schedulingv1.PlacementScore{Plugin: s.Plugin, Score: s.Score, Weight: s.Weight}
	}
	return out
}

func refusalOf(s *framework.Status) *schedulingv1.PlacementRefusal {
	if s == nil {
		return nil
	}
	return &schedulingv1.PlacementRefusal{Plugin: s.Plugin(), Reasons: s.Reasons(),
		Resolvable: s.Code() == framework.Unschedulable}
}

func queueOf(p *queue.Place) *schedulingv1.PlacementQueue {
	if p == nil {
		return nil
	}
	return &schedulingv1.PlacementQueue{
		State: p.State, Attempts: int32(p.Attempts), //nolint:gosec // at most one a second
		LastFailure: timeOf(p.LastFailure), NextTry: timeOf(p.NextTry), WaitsFor: p.WaitsFor,
	}
}

func timeOf(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return value.MicroTime(t)
}

// bestFirst orders nodes: those that fit first, of these the best, and then by name.
func bestFirst(a, b *schedulingv1.PlacementNode) int {
	if a.Fits != b.Fits {
		if a.Fits {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.GetTotal(), a.GetTotal()), strings.Compare(a.Name, b.Name))
}

// selected returns the nodes that the answer is to have.
func selected(nodes []*schedulingv1.PlacementNode, ask *schedulingv1rpc.ExplainCall) []*schedulingv1.PlacementNode {
	if len(ask.GetNodes()) > 0 {
		wanted := make(map[string]bool, len(ask.GetNodes()))
		for _, name := range ask.GetNodes() {
			wanted[name] = true
		}
		found := nodes[:0]
		for _, n := range nodes {
			if wanted[n.Name] {
				found = append(found, n)
				delete(wanted, n.Name)
			}
		}
		for _, name := range ask.GetNodes() {
			if wanted[name] {
				delete(wanted, name)
				found = append(found, &schedulingv1.PlacementNode{
					Name: name, RefusedBy: &schedulingv1.PlacementRefusal{Reasons: []string{"there is no such node"}},
				})
			}
		}
		nodes = found
	}
	if limit := int(ask.GetLimit()); limit > 0 && limit < len(nodes) {
		nodes = nodes[:limit]
	}
	return nodes
}
