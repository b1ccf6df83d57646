package pod

import (
	"monoplane.dev/internal/intern"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// share replaces the parts of a pod that many pods have alike: those of one template, and what happened in the same
// second. What o has from live has been through here already, and may be in use.
func share(pool *intern.Pool, o, live *corev1.Pod) {
	shareMeta(pool, o.Metadata, live.GetMetadata())
	if s := o.GetSpec(); s != nil && (live == nil || s != live.GetSpec()) {
		o.Spec = intern.Compound(pool, s, func(pool *intern.Pool, s *corev1.PodSpec) { shareSpec(pool, s, live.GetSpec()) })
	}
	if s := o.GetStatus(); s != nil && (live == nil || s != live.GetStatus()) {
		shareStatus(pool, s, live.GetStatus())
	}
}

func shareMeta(pool *intern.Pool, m, live *metav1.ObjectMeta) {
	intern.Texts(pool, &m.Namespace)
	m.Labels, m.Annotations = intern.Map(pool, m.Labels), intern.Map(pool, m.Annotations)
	m.CreationTimestamp = intern.Message(pool, m.CreationTimestamp)
	intern.Each(pool, m.OwnerReferences, live.GetOwnerReferences())
}

func shareSpec(pool *intern.Pool, s, live *corev1.PodSpec) {
	intern.Each(pool, s.InitContainers, live.GetInitContainers())
	intern.Each(pool, s.Containers, live.GetContainers())
	intern.Each(pool, s.Volumes, live.GetVolumes())
	intern.Each(pool, s.Tolerations, live.GetTolerations())
	intern.Each(pool, s.TopologySpreadConstraints, live.GetTopologySpreadConstraints())
	intern.Texts(pool, &s.PriorityClassName)
	s.NodeSelector = intern.Map(pool, s.NodeSelector)
	s.Affinity = intern.Message(pool, s.Affinity)
	s.SecurityContext = intern.Message(pool, s.SecurityContext)
}

func shareStatus(pool *intern.Pool, s, live *corev1.PodStatus) {
	intern.Each(pool, s.Conditions, live.GetConditions())
	intern.Each(pool, s.HostIPs, live.GetHostIPs())
	s.StartTime = intern.Message(pool, s.StartTime)
	intern.Texts(pool, &s.Phase, &s.QosClass, &s.HostIP)
	shareContainers(pool, s.InitContainerStatuses, live.GetInitContainerStatuses())
	shareContainers(pool, s.ContainerStatuses, live.GetContainerStatuses())
}

func shareContainers(pool *intern.Pool, statuses, live []*corev1.ContainerStatus) {
	if len(statuses) > 0 && len(live) > 0 && &statuses[0] == &live[0] {
		return // a change of something else has left them as they are
	}
	for _, c := range statuses {
		if c == nil {
			continue
		}
		c.State, c.LastState = intern.Message(pool, c.State), intern.Message(pool, c.LastState)
		c.Resources, c.User = intern.Message(pool, c.Resources), intern.Message(pool, c.User)
		c.AllocatedResources = shareAmounts(pool, c.AllocatedResources)
		intern.Each(pool, c.VolumeMounts, nil)
		intern.Texts(pool, &c.Name, &c.Image, &c.ImageID)
	}
}

// shareAmounts shares a list of amounts as the part of a message: the pool has messages.
func shareAmounts(pool *intern.Pool, amounts map[string]*metav1.Quantity) map[string]*metav1.Quantity {
	if len(amounts) == 0 {
		return amounts
	}
	return intern.Message(pool, &corev1.ResourceRequirements{Requests: amounts}).Requests
}
