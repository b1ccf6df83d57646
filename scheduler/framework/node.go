package framework

import (
	"cmp"
	"math"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/hostports"
	"monoplane.dev/rules/taints"
)

// NodeInfo is a node with the sums over its pods. It is immutable: With... return a new one. A plugin may keep one for
// as long as it likes: it stays true to what the node was. (As long as all plugins are of this module, where none
// keeps one, the snapshot writes the next state of a node over the last one.)
//
// What filters look at first stands first: most nodes of a large cluster are refused after a look at one cache line.
type NodeInfo struct {
	Name string
	// Node is the node's object; nil for a node that has pods but no object.
	Node *corev1.Node
	// Taints and Unschedulable are the node's, at hand; Avoid says whether a taint is PreferNoSchedule.
	Taints        []*corev1.Taint
	Unschedulable bool
	Avoid         bool
	// place is where the node is in its snapshot, nowhere when it is in none.
	place int32
	// least is the lowest priority of a pod.
	least int32
	// Nominated are the pods that the node's room is kept for (spec: PREEMPT-2).
	Nominated []*PodInfo

	// Allocatable is what pods may use in all; AllowedPods is how many there may be.
	AllowedPods int
	pods        []*PodInfo
	Allocatable Resources
	// Requested is the sum over all pods, assumed ones included; Counted is the same as scores count it.
	Requested Resources
	Counted   Resources
	// CPUShare and MemoryShare are MaxScore divided by the allocatable amount, 0 when there is none: scores multiply by
	// them, since a division for each node is most of what a decision would cost.
	CPUShare, MemoryShare float64
	// Ports are the host ports in use.
	Ports []hostports.Port

	images *nodeImages
}

const nowhere = -1

// NewNodeInfo returns a node without pods. node may be nil.
func NewNodeInfo(name string, node *corev1.Node) *NodeInfo {
	return (&NodeInfo{Name: name, place: nowhere}).WithNode(node)
}

// become makes n the node m at a place of a snapshot.
func (n *NodeInfo) become(m *NodeInfo, place int) {
	*n = *m
	n.place = int32(place) //nolint:gosec // there are no 2^31 nodes
}

// lasting returns a copy that shares nothing with scratch space.
func (n *NodeInfo) lasting() *NodeInfo {
	c := *n
	c.pods, c.Ports = slices.Clone(n.pods), slices.Clone(n.Ports)
	return &c
}

// Place returns the node's index in the Nodes of the snapshot that it, or the state that it was made from, is in; ok
// is false when it is in none.
func (n *NodeInfo) Place() (i int, ok bool) { return int(n.place), n.place != nowhere }

func (n *NodeInfo) comparePlace(place int32) int { return cmp.Compare(n.place, place) }

// Pods returns the node's pods. The slice must not be changed.
func (n *NodeInfo) Pods() []*PodInfo { return n.pods }

// HasBelow says whether a pod of the node has a lower priority.
func (n *NodeInfo) HasBelow(priority int32) bool { return len(n.pods) > 0 && n.least < priority }

// WithNominated returns the node with its room kept for these pods.
func (n *NodeInfo) WithNominated(pods []*PodInfo) *NodeInfo {
	c := *n
	c.Nominated = pods
	return &c
}

// WithNode returns the same pods on a newer state of the node.
func (n *NodeInfo) WithNode(node *corev1.Node) *NodeInfo {
	c := *n
	c.Node = node
	c.Allocatable = ParseResources(node.GetStatus().GetAllocatable())
	c.AllowedPods = int(min(c.Allocatable.Scalar[Pods], math.MaxInt32))
	c.images = newNodeImages(node.GetStatus().GetImages(), n.images)
	c.CPUShare, c.MemoryShare = share(c.Allocatable.MilliCPU), share(c.Allocatable.Memory)
	c.Taints, c.Unschedulable = node.GetSpec().GetTaints(), node.GetSpec().GetUnschedulable()
	c.Avoid = slices.ContainsFunc(c.Taints, func(t *corev1.Taint) bool {
		return t.GetEffect() == taints.PreferNoSchedule
	})
	return &c
}

// Renewed returns the same pods on a newer state of the node, in which nothing has changed that WithNode works out,
// but for the images.
func (n *NodeInfo) Renewed(node *corev1.Node) *NodeInfo {
	c := *n
	c.Node = node
	c.images = newNodeImages(node.GetStatus().GetImages(), n.images)
	return &c
}

func share(amount int64) float64 {
	if amount <= 0 {
		return 0
	}
	return MaxScore / float64(amount)
}

// WithPod returns the node with one more pod.
func (n *NodeInfo) WithPod(p *PodInfo) *NodeInfo {
	c := *n
	c.pods = make([]*PodInfo, len(n.pods)+1)
	copy(c.pods, n.pods)
	c.pods[len(n.pods)] = p
	if len(n.pods) == 0 || p.Priority < n.least {
		c.least = p.Priority
	}
	c.Requested = n.Requested.Add(p.Requests)
	c.Counted = n.Counted.Add(p.Counted)
	if len(p.Ports) > 0 {
		c.Ports = slices.Concat(n.Ports, p.Ports)
	}
	return &c
}

// WithoutPod returns the node without the pod of that uid, or the node itself when it has no such pod.
func (n *NodeInfo) WithoutPod(uid string) *NodeInfo {
	i := slices.IndexFunc(n.pods, func(p *PodInfo) bool { return p.UID == uid })
	if i < 0 {
		return n
	}
	c := *n
	c.pods = slices.Concat(n.pods[:i], n.pods[i+1:])
	// Sums are made anew: saturated ones could not be subtracted from.
	c.Requested, c.Counted, c.Ports = Resources{}, Resources{}, nil
	for i, p := range c.pods {
		if i == 0 || p.Priority < c.least {
			c.least = p.Priority
		}
		c.Requested = c.Requested.Add(p.Requests)
		c.Counted = c.Counted.Add(p.Counted)
		c.Ports = append(c.Ports, p.Ports...)
	}
	return &c
}

// WithPodUpdated returns the node with the pod of p's uid replaced by p.
func (n *NodeInfo) WithPodUpdated(p *PodInfo) *NodeInfo {
	i := slices.IndexFunc(n.pods, func(o *PodInfo) bool { return o.UID == p.UID })
	if i < 0 {
		return n.WithPod(p)
	}
	if !sameDemand(n.pods[i], p) {
		return n.WithoutPod(p.UID).WithPod(p)
	}
	c := *n
	c.pods = slices.Clone(n.pods)
	c.pods[i] = p
	return &c
}

// sameDemand says whether two states of a pod take the same of a node, so that sums stay as they are.
func sameDemand(a, b *PodInfo) bool {
	return a.Requests.Equal(b.Requests) && a.Counted.Equal(b.Counted) && slices.Equal(a.Ports, b.Ports) &&
		a.Priority == b.Priority
}
