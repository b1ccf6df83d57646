package framework

import (
	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// Event is a kind of change in the cluster that could make a pod schedulable.
type Event uint32

// The events. A plugin asks for a union of them.
const (
	NodeAdded Event = 1 << iota
	NodeLabels
	NodeTaints // also spec.unschedulable
	NodeAllocatable
	// PodAssigned, PodGone and PodShrunk are about pods on nodes: one came, one went, one needs less or has other labels.
	PodAssigned
	PodGone
	PodShrunk
	// NodeGone is about a node that was deleted: with it goes the domain that it may have been alone in.
	NodeGone
	// NamespaceLabels is about a namespace that came, went or has other labels.
	NamespaceLabels
	// ClaimChanged, VolumeChanged and ClassChanged are about PersistentVolumeClaims, PersistentVolumes and StorageClasses
	// that came or changed.
	ClaimChanged
	VolumeChanged
	ClassChanged
	// VolumesFreed is about what was planned for a pod's volumes and does not count any more: its binding has failed.
	VolumesFreed
)

// AnyEvent is all of them.
const AnyEvent = VolumesFreed<<1 - 1

// Change is one change in the cluster.
type Change struct {
	Event Event
	// Node and OldNode are set with events about nodes; OldNode is nil when it was added, Node when it is gone.
	Node, OldNode *corev1.Node
	// Pod and OldPod are set with events about pods.
	Pod, OldPod *corev1.Pod
	// Namespace and OldNamespace are set with events about namespaces, as for nodes.
	Namespace, OldNamespace *corev1.Namespace
	// Claim, Volume and Class are set with events about them; the old state is nil when it came, or when it is not known
	// what changed.
	Claim, OldClaim   *corev1.PersistentVolumeClaim
	Volume, OldVolume *corev1.PersistentVolume
	Class, OldClass   *storagev1.StorageClass
	// Freed is set with VolumesFreed.
	Freed *VolumePlan

	// oldAffinity is worked out when the first plugin asks.
	oldAffinity *PodAffinity
	worked      bool
}

// OldAffinity returns the inter-pod affinity of OldPod; nil when it has none. It must not be called from two
// goroutines at once.
func (c *Change) OldAffinity() *PodAffinity {
	if !c.worked {
		c.oldAffinity, c.worked = affinityOf(c.OldPod), true
	}
	return c.oldAffinity
}

// Enqueue is for plugins that refuse pods: it says which changes could end the refusal. A plugin without it is asked
// again at any change.
type Enqueue interface {
	Plugin
	// Events are the kinds of changes to look at.
	Events() Event
	// Helps says whether a change, of one of these kinds, could make the plugin accept the pod. In doubt it says yes.
	Helps(pod *PodInfo, change *Change) bool
}
