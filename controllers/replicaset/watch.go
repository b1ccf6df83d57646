package replicaset

import (
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
)

// watch has everything looked at that a change may concern.
func (c *Controller[T]) watch() {
	c.objects.AddHandler(cache.Handler[T]{
		OnAdd: func(o T) { c.queue.Add(cache.KeyOf(o)) },
		OnUpdate: func(_, o T) {
			c.queue.Add(cache.KeyOf(o))
		},
		OnDelete: func(o T) { c.forget(o.GetMetadata().GetUid()) },
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
}

// counts says whether a change of a pod may change what is made or deleted, or a status. Most changes do not, and the
// pods of one object may be many.
func counts(old, p *corev1.Pod) bool {
	o, m := old.GetMetadata(), p.GetMetadata()
	return availability.Active(old) != availability.Active(p) || availability.Terminating(old) !=
		availability.Terminating(p) || availability.Ready(old) != availability.Ready(p) ||
		!availability.ReadySince(old).Equal(availability.ReadySince(p)) ||
		controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() ||
		!labels.Equals(o.GetLabels(), m.GetLabels())
}

// podChanged has the object looked at that manages a pod, or those that may adopt it.
func (c *Controller[T]) podChanged(p *corev1.Pod) {
	namespace := p.GetMetadata().GetNamespace()
	if r := controller.ManagerOf(p); r != nil {
		if owned.IsManager(r, kindOf[T]()) {
			c.queue.Add(cache.Key{Namespace: namespace, Name: r.GetName()})
		}
		return
	}
	set := labels.Set(p.GetMetadata().GetLabels())
	if len(set) == 0 {
		return
	}
	for _, o := range c.objects.ByIndex(controller.ByNamespace, namespace) {
		if c.selector(o).Matches(set) {
			c.queue.Add(cache.KeyOf(o))
		}
	}
}

// kindOf returns the kind of objects of type T.
func kindOf[T object.Object]() *object.Kind {
	var none T
	return none.ObjectKind()
}
