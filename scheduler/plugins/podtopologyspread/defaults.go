package podtopologyspread

import (
	"maps"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// defaults are the constraints of pods that have none themselves and belong to a Service or workload (spec: SPREAD-4).
// Which pods count is not in them: it follows from what each pod belongs to.
type defaults struct {
	hard, soft []framework.SpreadConstraint
	// lenient says that nodes which lack the label of one constraint are rated by the others.
	lenient bool
}

// systemDefaults are those of a cluster that configures none.
func systemDefaults() defaults {
	d := listDefaults([]*corev1.TopologySpreadConstraint{
		{TopologyKey: hostname, MaxSkew: 3, WhenUnsatisfiable: "ScheduleAnyway"},
		{TopologyKey: zone, MaxSkew: 5, WhenUnsatisfiable: "ScheduleAnyway"},
	})
	d.lenient = true
	return d
}

func listDefaults(list []*corev1.TopologySpreadConstraint) defaults {
	var d defaults
	// They mean what they would mean in a pod.
	for _, c := range framework.NewPodInfo(&corev1.Pod{Spec: &corev1.PodSpec{TopologySpreadConstraints: list}}).Spread {
		if c.Hard {
			d.hard = append(d.hard, c)
		} else {
			d.soft = append(d.soft, c)
		}
	}
	return d
}

// constraints returns those of one kind for a pod; none when it belongs to nothing.
func (d *defaults) constraints(
	pod *framework.PodInfo, snapshot *framework.Snapshot, hard bool,
) []*framework.SpreadConstraint {
	from := d.soft
	if hard {
		from = d.hard
	}
	if len(from) == 0 {
		return nil
	}
	groups := snapshot.Groups(pod.Pod)
	if len(groups) == 0 {
		return nil
	}
	m := pod.Pod.GetMetadata()
	pods := framework.NewGroupQuery(m.GetNamespace(), groups)
	if pods == nil {
		return nil
	}
	self := pods.Selects(m.GetLabels())
	list := make([]*framework.SpreadConstraint, len(from))
	for i, c := range from {
		c.Pods, c.Self = pods, self
		list[i] = &c
	}
	return list
}

// helps says whether a change can help a pod that hard ones refuse. Which pods count is not known without a snapshot,
// so that any of the pod's namespace may.
func (d *defaults) helps(pod *framework.PodInfo, c *framework.Change) bool {
	switch c.Event {
	case framework.PodAssigned:
		return len(d.hard) > 0 && mayCount(pod, c.Pod)
	case framework.PodGone:
		return len(d.hard) > 0 && mayCount(pod, c.OldPod)
	case framework.PodShrunk:
		return len(d.hard) > 0 && mayCount(pod, c.OldPod) && otherwiseCounted(c.OldPod, c.Pod)
	}
	for i := range d.hard {
		if helps(&d.hard[i], c) {
			return true
		}
	}
	return false
}

// mayCount says whether another pod may count for a pod.
func mayCount(pod *framework.PodInfo, other *corev1.Pod) bool {
	m := other.GetMetadata()
	return m.GetNamespace() == pod.Pod.GetMetadata().GetNamespace() && m.GetDeletionTimestamp() == nil
}

// otherwiseCounted says whether one of the states of a pod may count and the other may not.
func otherwiseCounted(was, is *corev1.Pod) bool {
	return is.GetMetadata().GetDeletionTimestamp() != nil || !maps.Equal(was.GetMetadata().GetLabels(),
		is.GetMetadata().GetLabels())
}
