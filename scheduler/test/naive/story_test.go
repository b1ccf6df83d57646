package naive

import (
	"fmt"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/framework"
)

// story tells of a dispute about the pod: the smallest cluster in which it is still there, and what each side says.
func (r *referee) story(c *Cluster, pod *corev1.Pod) string {
	c, pod = r.shrink(c, pod)
	want := r.naive(c, pod)
	d := r.agree(c.snapshot(), pod, want)
	var b strings.Builder
	fmt.Fprintf(&b, "node %s: %s\npod %s\n", d.node, d.about, pod.AppendJSON(nil))
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "  node %s\n", n.AppendJSON(nil))
		for _, p := range c.on(n) {
			fmt.Fprintf(&b, "    pod %s\n", p.AppendJSON(nil))
		}
	}
	e, err := r.profile.Explain(framework.NewPodInfo(pod), c.snapshot())
	if err != nil {
		fmt.Fprintf(&b, "the profile: %v\n", err)
	}
	for _, n := range e.Nodes {
		fmt.Fprintf(&b, "the profile: %s: %s\n", n.Name, opinion(n))
	}
	for _, n := range c.nodes {
		v := want[n.Metadata.Name]
		fmt.Fprintf(&b, "naive:       %s: refused %v, scores %v\n", n.Metadata.Name, v.refusals, v.scores)
	}
	return b.String()
}

func opinion(n framework.NodeExplanation) string {
	if n.Refused != nil {
		return fmt.Sprintf("refused by %q, %v: %s", n.Refused.Plugin(), n.Refused.Code(), n.Refused.Message())
	}
	return fmt.Sprintf("scores %v, total %d", n.Scores, n.Total)
}

// shrink takes away what the dispute does not need.
func (r *referee) shrink(c *Cluster, pod *corev1.Pod) (*Cluster, *corev1.Pod) {
	disputed := func(c *Cluster, pod *corev1.Pod) bool { return r.agree(c.snapshot(), pod, r.naive(c, pod)) != nil }
	for smaller := true; smaller; {
		smaller = false
		for i := len(c.pods) - 1; i >= 0; i-- {
			if less := (&Cluster{c.nodes, slices.Delete(slices.Clone(c.pods), i, i+1), c.namespaces}); disputed(less, pod) {
				c, smaller = less, true
			}
		}
		for i := len(c.nodes) - 1; i >= 0; i-- {
			if less := (&Cluster{slices.Delete(slices.Clone(c.nodes), i, i+1), c.pods, c.namespaces}); disputed(less, pod) {
				c, smaller = less, true
			}
		}
		for _, less := range simpler(pod) {
			if disputed(c, less) {
				pod, smaller = less, true
				break
			}
		}
	}
	return c, pod
}

// simpler returns the pod with one wish less each.
func simpler(pod *corev1.Pod) []*corev1.Pod {
	var list []*corev1.Pod
	less := func(has bool, change func(s *corev1.PodSpec)) {
		if has {
			p := object.Clone(pod)
			change(p.Spec)
			list = append(list, p)
		}
	}
	s := pod.Spec
	less(s.Affinity != nil, func(s *corev1.PodSpec) { s.Affinity = nil })
	less(s.NodeSelector != nil, func(s *corev1.PodSpec) { s.NodeSelector = nil })
	less(s.NodeName != "", func(s *corev1.PodSpec) { s.NodeName = "" })
	less(s.Overhead != nil, func(s *corev1.PodSpec) { s.Overhead = nil })
	less(s.Resources != nil, func(s *corev1.PodSpec) { s.Resources = nil })
	for i := range s.TopologySpreadConstraints {
		less(true, func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = slices.Delete(s.TopologySpreadConstraints, i, i+1)
		})
	}
	for i := range s.Tolerations {
		less(true, func(s *corev1.PodSpec) { s.Tolerations = slices.Delete(s.Tolerations, i, i+1) })
	}
	for i := range s.InitContainers {
		less(true, func(s *corev1.PodSpec) { s.InitContainers = slices.Delete(s.InitContainers, i, i+1) })
	}
	less(len(s.Containers) > 1, func(s *corev1.PodSpec) { s.Containers = s.Containers[:1] })
	for i, c := range s.Containers {
		less(len(c.Ports) > 0, func(s *corev1.PodSpec) { s.Containers[i].Ports = nil })
		less(len(c.Resources.GetRequests()) > 0, func(s *corev1.PodSpec) { s.Containers[i].Resources = nil })
	}
	return list
}
