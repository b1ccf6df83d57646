package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
)

// unschedulable is the state of pods for which there is no node.
const unschedulable = "Unschedulable"

// wanted returns how many pods a workload should have; nil for one that has no such number.
func wanted(root object.Object) *int32 {
	switch o := root.(type) {
	case *appsv1.Deployment:
		return replicasOf(o.GetSpec())
	case *appsv1.ReplicaSet:
		return replicasOf(o.GetSpec())
	case *appsv1.StatefulSet:
		return replicasOf(o.GetSpec())
	case *corev1.ReplicationController:
		return replicasOf(o.GetSpec())
	case *appsv1.DaemonSet:
		return new(o.GetStatus().GetDesiredNumberScheduled())
	default:
		return nil
	}
}

func replicasOf[S interface {
	comparable
	GetReplicas() int32
}](spec S) *int32 {
	var none S
	if spec == none {
		return nil
	}
	return new(spec.GetReplicas())
}

// report words the facts.
func (f *facts) report() *Report {
	r := &Report{Name: nameOf(f.root), Pods: len(f.pods), Wanted: wanted(f.root), Holds: f.holds()}
	slices.SortFunc(f.pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
	})
	at := map[string]int{}
	for _, p := range f.pods {
		g := f.state(p)
		if g.State == "" {
			r.Ready++
			continue
		}
		key := strings.Join(append([]string{g.State, g.Why}, g.Details...), "\x00")
		i, ok := at[key]
		if !ok {
			i, at[key] = len(r.Groups), len(r.Groups)
			r.Groups = append(r.Groups, g)
		}
		r.Groups[i].Pods = append(r.Groups[i].Pods, p.GetMetadata().GetName())
	}
	slices.SortStableFunc(r.Groups, func(a, b Group) int { return cmp.Compare(len(b.Pods), len(a.Pods)) })
	return r
}

// state says what a pod waits for; the state is empty for one that is ready.
func (f *facts) state(p *corev1.Pod) Group {
	s, m := p.GetStatus(), p.GetMetadata()
	switch {
	case m.GetDeletionTimestamp() != nil:
		return f.terminating(p)
	case s.GetPhase() == phase.Succeeded:
		return Group{State: "Succeeded"}
	case s.GetPhase() == phase.Failed:
		if why := strings.TrimSuffix(strings.TrimPrefix(s.GetReason()+": "+s.GetMessage(), ": "), ": "); why != "" {
			return Group{State: "Failed", Why: why}
		}
		return Group{State: "Failed", Why: strings.Join(exits(p), "; ")}
	case p.GetSpec().GetNodeName() == "":
		return f.waiting(p)
	}
	for _, c := range statuses(p) {
		w := c.GetState().GetWaiting()
		if w == nil || w.GetReason() == "" || w.GetReason() == "PodInitializing" || w.GetReason() == "ContainerCreating" {
			continue
		}
		why := fmt.Sprintf("container %s", c.GetName())
		if e := c.GetLastState().GetTerminated(); e != nil {
			why += fmt.Sprintf(": restarted %d times, the last exit code was %d (%s)", c.GetRestartCount(), e.GetExitCode(),
				e.GetReason())
		} else if w.GetMessage() != "" {
			why += ": " + w.GetMessage()
		}
		return Group{State: w.GetReason(), Why: why}
	}
	if availability.Ready(p) {
		return Group{}
	}
	return f.unready(p)
}

// statuses returns those of all containers of a pod, in the order in which they start.
func statuses(p *corev1.Pod) []*corev1.ContainerStatus {
	return slices.Concat(p.GetStatus().GetInitContainerStatuses(), p.GetStatus().GetContainerStatuses())
}

// exits words with which codes the containers of a pod ended badly.
func exits(p *corev1.Pod) (all []string) {
	for _, c := range statuses(p) {
		if e := c.GetState().GetTerminated(); e.GetExitCode() != 0 {
			all = append(all, fmt.Sprintf("container %s ended with exit code %d (%s)", c.GetName(), e.GetExitCode(),
				e.GetReason()))
		}
	}
	return all
}

// terminating says what holds a pod that is being deleted.
func (f *facts) terminating(p *corev1.Pod) Group {
	m, node := p.GetMetadata(), p.GetSpec().GetNodeName()
	n := f.nodes[node]
	lost := func(c *corev1.NodeCondition) bool { return c.GetType() == "Ready" && c.GetStatus() != "True" }
	end := value.GoTime(m.GetDeletionTimestamp())
	var why string
	switch {
	case len(m.GetFinalizers()) > 0:
		why = strings.TrimPrefix(heldBy(m.GetFinalizers()), ", ")
	case node != "" && n == nil:
		why = fmt.Sprintf("its node %s is gone", node)
	case slices.ContainsFunc(n.GetStatus().GetConditions(), lost):
		why = fmt.Sprintf("its node %s is not ready, so that nobody says whether it has ended", node)
	case lingering.Why(p) != "":
		why = lingering.Why(p)
	case f.now.After(end):
		why = "its containers have not ended, although their time to do so is over"
	default:
		why = "its containers have time to end"
	}
	return Group{State: "Terminating", Why: why}
}

// waiting says why a pod has no node.
func (f *facts) waiting(p *corev1.Pod) Group {
	if gates := p.GetSpec().GetSchedulingGates(); len(gates) > 0 {
		var names []string
		for _, g := range gates {
			names = append(names, g.GetName())
		}
		return Group{State: "SchedulingGated", Why: "held by " + strings.Join(names, ", ")}
	}
	g := Group{State: unschedulable}
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "PodScheduled" {
			g.Why = c.GetMessage()
		}
	}
	review := f.reviews[p.GetMetadata().GetUid()]
	if review == nil {
		return g
	}
	g.Why, g.Details = review.GetMessage(), refusals(review)
	return g
}

// refusals says of every plugin how many nodes it refuses, the first one alone or not, and why.
func refusals(review *schedulingv1.PlacementReviewStatus) (all []string) {
	nodes, reasons := map[string]int{}, map[string]map[string]bool{}
	for _, n := range review.GetNodes() {
		list := n.GetAlsoRefusedBy()
		if n.GetRefusedBy() != nil {
			list = append([]*schedulingv1.PlacementRefusal{n.GetRefusedBy()}, list...)
		}
		for _, r := range list {
			nodes[r.GetPlugin()]++
			if reasons[r.GetPlugin()] == nil {
				reasons[r.GetPlugin()] = map[string]bool{}
			}
			for _, reason := range r.GetReasons() {
				reasons[r.GetPlugin()][reason] = true
			}
		}
	}
	for _, plugin := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, fmt.Sprintf("%s refuses %d of %d nodes: %s", plugin, nodes[plugin], review.GetNodeCount(),
			strings.Join(slices.Sorted(maps.Keys(reasons[plugin])), ", ")))
	}
	return all
}

// unready says what a pod waits for that has a node and no trouble that its containers tell of.
func (f *facts) unready(p *corev1.Pod) Group {
	var why []string
	spec := map[string]*corev1.Container{}
	for _, c := range p.GetSpec().GetContainers() {
		spec[c.GetName()] = c
	}
	for _, c := range p.GetStatus().GetContainerStatuses() {
		switch started := c.GetStarted(); {
		case c.GetReady():
		case c.GetState().GetRunning() == nil:
			why = append(why, fmt.Sprintf("container %s does not run yet", c.GetName()))
		case !started && spec[c.GetName()].GetStartupProbe() != nil:
			why = append(why, fmt.Sprintf("container %s has not passed its startup probe", c.GetName()))
		default:
			why = append(why, fmt.Sprintf("container %s does not pass its readiness probe", c.GetName()))
		}
	}
	for _, gate := range p.GetSpec().GetReadinessGates() {
		met := slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
			return c.GetType() == gate.GetConditionType() && c.GetStatus() == "True"
		})
		if !met {
			why = append(why, "readiness gate "+gate.GetConditionType()+" is not met")
		}
	}
	var last time.Time
	said := ""
	for _, e := range f.events[p.GetMetadata().GetUid()] {
		if at := lastOf(e); e.GetType() == "Warning" && at.After(last) {
			last, said = at, e.GetReason()+": "+e.GetMessage()
		}
	}
	if said != "" {
		why = append(why, said)
	}
	return Group{State: "NotReady", Why: strings.Join(why, "; ")}
}
