package framework

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/hostports"
	"monoplane.dev/rules/resources"
)

// PodInfo is a pod with what decisions need of it worked out once. It is immutable.
type PodInfo struct {
	Pod *corev1.Pod
	Key cache.Key
	UID string
	// Priority is spec.priority, 0 when unset.
	Priority int32
	// Requests is what the pod needs (see PodRequests), or holds while it is being resized; Counted is cpu and memory as
	// scores count them.
	Requests Resources
	Counted  Resources
	// Ports are the ports of the host that the pod takes.
	Ports []hostports.Port
	// Spread are the topologySpreadConstraints.
	Spread []SpreadConstraint
	// Affinity is the inter-pod affinity and anti-affinity; nil when there is none.
	Affinity *PodAffinity
	// Claims are the names of the PersistentVolumeClaims that the pod uses.
	Claims []string
	// Doomed says that the pod is about to be deleted to make room for another.
	Doomed bool
}

// NewPodInfo works out what decisions need of p.
func NewPodInfo(p *corev1.Pod) *PodInfo {
	i := &PodInfo{
		Pod:      p,
		Key:      cache.KeyOf(p),
		UID:      p.GetMetadata().GetUid(),
		Priority: p.GetSpec().GetPriority(),
		Spread:   spreadOf(p),
		Affinity: affinityOf(p),
		Claims:   storage.ClaimNames(p),
		Ports:    hostports.Of(p.GetSpec()),
	}
	i.Requests, i.Counted = demand(resources.Held(p))
	return i
}

// AsDoomed returns the same information about a pod that is about to be deleted, or is not any more.
func (i *PodInfo) AsDoomed(doomed bool) *PodInfo {
	n := *i
	n.Doomed = doomed
	return &n
}

// WithPod returns the same information about a newer state of the pod, whose spec must be the same.
func (i *PodInfo) WithPod(p *corev1.Pod) *PodInfo {
	n := *i
	n.Pod = p
	return &n
}
