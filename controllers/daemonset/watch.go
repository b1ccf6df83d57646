package daemonset

import (
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/labelselector"
)

// watch has every DaemonSet looked at that a change may concern.
func (c *Controller) watch() {
	c.sets.AddHandler(cache.Handler[*appsv1.DaemonSet]{
		OnAdd: func(d *appsv1.DaemonSet) { c.queue.Add(cache.KeyOf(d)) },
		OnUpdate: func(_, d *appsv1.DaemonSet) {
			c.queue.Add(cache.KeyOf(d))
		},
		OnDelete: func(d *appsv1.DaemonSet) { c.forget(d.GetMetadata().GetUid()) },
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd: func(p *corev1.Pod) { c.dependentChanged(p) },
		OnUpdate: func(old, p *corev1.Pod) {
			if !counts(old, p) {
				return
			}
			if controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() {
				c.dependentChanged(old)
			}
			c.dependentChanged(p)
		},
		OnDelete: func(p *corev1.Pod) { c.dependentChanged(p) },
	})
	c.revisions.AddHandler(cache.Handler[*appsv1.ControllerRevision]{
		OnAdd: func(r *appsv1.ControllerRevision) { c.dependentChanged(r) },
		OnUpdate: func(old, r *appsv1.ControllerRevision) {
			if controller.ManagerOf(old).GetUid() != controller.ManagerOf(r).GetUid() {
				c.dependentChanged(old)
			}
			c.dependentChanged(r)
		},
		OnDelete: func(r *appsv1.ControllerRevision) { c.dependentChanged(r) },
	})
	c.nodes.AddHandler(cache.Handler[*corev1.Node]{
		OnAdd: func(n *corev1.Node) { c.nodeChanged(nil, n) }, OnUpdate: c.nodeChanged,
		OnDelete: func(n *corev1.Node) { c.nodeChanged(n, nil) },
	})
}

// counts says whether a change of a pod may change what is made or deleted, or a status. Most changes do not.
func counts(old, p *corev1.Pod) bool {
	o, m := old.GetMetadata(), p.GetMetadata()
	return old.GetStatus().GetPhase() != p.GetStatus().GetPhase() ||
		old.GetSpec().GetNodeName() != p.GetSpec().GetNodeName() ||
		(o.GetDeletionTimestamp() == nil) != (m.GetDeletionTimestamp() == nil) ||
		availability.Ready(old) != availability.Ready(p) ||
		!availability.ReadySince(old).Equal(availability.ReadySince(p)) ||
		controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() ||
		!labels.Equals(o.GetLabels(), m.GetLabels())
}

// dependentChanged has the DaemonSet looked at that manages a pod or a revision, or those that may adopt it.
func (c *Controller) dependentChanged(o object.Object) {
	m := o.GetMetadata()
	if r := controller.ManagerOf(o); r != nil {
		if owned.IsManager(r, appsv1.DaemonSetKind) {
			c.queue.Add(cache.Key{Namespace: m.GetNamespace(), Name: r.GetName()})
		}
		return
	}
	set := labels.Set(m.GetLabels())
	if len(set) == 0 {
		return
	}
	for _, d := range c.sets.ByIndex(controller.ByNamespace, m.GetNamespace()) {
		if labelselector.OrNothing(d.GetSpec().GetSelector()).Matches(set) {
			c.queue.Add(cache.KeyOf(d))
		}
	}
}

// nodeChanged has those DaemonSets looked at to which a node means another thing than before; nil stands for no node.
// The heartbeats of nodes, of which there are many, mean nothing to any of them.
func (c *Controller) nodeChanged(old, n *corev1.Node) {
	if old != nil && n != nil && old.GetMetadata().GetUid() == n.GetMetadata().GetUid() &&
		labels.Equals(old.GetMetadata().GetLabels(), n.GetMetadata().GetLabels()) &&
		sameTaints(old.GetSpec().GetTaints(), n.GetSpec().GetTaints()) {
		return
	}
	for _, d := range c.sets.List("", nil) {
		place := plan.PlaceOf(d)
		if means(place, old) != means(place, n) {
			c.queue.Add(cache.KeyOf(d))
		}
	}
}

// meaning is what a node is to a DaemonSet.
type meaning struct{ there, run, stay bool }

func means(place *plan.Place, n *corev1.Node) meaning {
	if n == nil {
		return meaning{}
	}
	run, stay := place.Judge(n)
	return meaning{true, run, stay}
}

func sameTaints(a, b []*corev1.Taint) bool {
	if len(a) != len(b) {
		return false
	}
	for i, t := range a {
		if t.GetKey() != b[i].GetKey() || t.GetValue() != b[i].GetValue() || t.GetEffect() != b[i].GetEffect() {
			return false
		}
	}
	return true
}
