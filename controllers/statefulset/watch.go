package statefulset

import (
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/statefulset/members"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/labelselector"
)

// watch has everything looked at that a change may concern.
func (c *Controller) watch() {
	c.sets.AddHandler(cache.Handler[*appsv1.StatefulSet]{
		OnAdd: func(o *appsv1.StatefulSet) { c.queue.Add(cache.KeyOf(o)) },
		OnUpdate: func(_, o *appsv1.StatefulSet) {
			c.queue.Add(cache.KeyOf(o))
		},
		OnDelete: func(o *appsv1.StatefulSet) { c.forget(o.GetMetadata().GetUid()) },
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd: c.podChanged,
		OnUpdate: func(old, p *corev1.Pod) {
			if !counts(old, p) {
				return
			}
			if controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() {
				c.podChanged(old)
			}
			c.podChanged(p)
		},
		OnDelete: c.podChanged,
	})
	c.claims.AddHandler(cache.Handler[*corev1.PersistentVolumeClaim]{
		OnUpdate: func(old, o *corev1.PersistentVolumeClaim) {
			m, was := o.GetMetadata(), old.GetMetadata()
			if m.GetDeletionTimestamp() != was.GetDeletionTimestamp() || len(m.GetOwnerReferences()) !=
				len(was.GetOwnerReferences()) {
				c.claimChanged(o)
			}
		},
		OnDelete: c.claimChanged,
	})
}

// counts says whether a change of a pod may change what is done, or a status. Most changes do not.
func counts(old, p *corev1.Pod) bool {
	o, m := old.GetMetadata(), p.GetMetadata()
	return old.GetStatus().GetPhase() != p.GetStatus().GetPhase() ||
		(o.GetDeletionTimestamp() == nil) != (m.GetDeletionTimestamp() == nil) ||
		availability.Ready(old) != availability.Ready(p) ||
		!availability.ReadySince(old).Equal(availability.ReadySince(p)) ||
		controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() ||
		!labels.Equals(o.GetLabels(), m.GetLabels())
}

// podChanged has the StatefulSet looked at that manages a pod, or those that may adopt it.
func (c *Controller) podChanged(p *corev1.Pod) {
	namespace := p.GetMetadata().GetNamespace()
	if r := controller.ManagerOf(p); r != nil {
		if owned.IsManager(r, appsv1.StatefulSetKind) { // also one before of that name, which holds up its successor
			c.queue.Add(cache.Key{Namespace: namespace, Name: r.GetName()})
		}
		return
	}
	for _, o := range c.sets.ByIndex(controller.ByNamespace, namespace) {
		if _, ok := members.Ordinal(o.GetMetadata().GetName(), p); ok &&
			labelselector.OrNothing(o.GetSpec().GetSelector()).Matches(labels.Set(p.GetMetadata().GetLabels())) {
			c.queue.Add(cache.KeyOf(o))
		}
	}
}

// claimChanged has the StatefulSet looked at that has a claim, or waits for it to go.
func (c *Controller) claimChanged(claim *corev1.PersistentVolumeClaim) {
	m := claim.GetMetadata()
	for _, o := range c.sets.ByIndex(controller.ByNamespace, m.GetNamespace()) {
		if members.Claims(o, m.GetName()) {
			c.queue.Add(cache.KeyOf(o))
		}
	}
}
