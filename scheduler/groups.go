package scheduler

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
	"monoplane.dev/scheduler/framework"
)

// follower feeds a cache.
type follower interface {
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) error
}

// newGroupCaches returns the caches of what pods belong to, which the default spread constraints are for (spec:
// SPREAD-4). Another kind of workload is another line.
func (s *Scheduler) newGroupCaches() []follower {
	api := s.cfg.Client
	return []follower{
		workloads(s, cache.Watch(api.ReplicaSets.Watch), func(o *appsv1.ReplicaSet) labels.Selector {
			return labelselector.OrNothing(o.GetSpec().GetSelector())
		}),
		workloads(s, cache.Watch(api.ReplicationControllers.Watch), func(o *corev1.ReplicationController) labels.Selector {
			return labels.SelectorFromSet(o.GetSpec().GetSelector())
		}),
		workloads(s, cache.Watch(api.StatefulSets.Watch), func(o *appsv1.StatefulSet) labels.Selector {
			return labelselector.OrNothing(o.GetSpec().GetSelector())
		}),
		s.services(),
	}
}

// services returns a cache of Services, to which the pods that they select belong.
func (s *Scheduler) services() follower {
	all := cache.New(cache.Config[*corev1.Service]{
		Source: cache.Watch(s.cfg.Client.Services.Watch), Logger: s.cfg.Logger,
	})
	set := func(o *corev1.Service) {
		k, m := o.ObjectKind(), o.GetMetadata()
		g := &framework.Group{
			Namespace: m.GetNamespace(), Service: true, APIVersion: k.APIVersion(), Kind: k.Kind, Name: m.GetName(),
		}
		if len(o.GetSpec().GetSelector()) == 0 {
			s.state.RemoveGroup(g)
			return
		}
		g.Selector = labels.SelectorFromSet(o.GetSpec().GetSelector())
		s.state.SetGroup(g)
	}
	all.AddHandler(cache.Handler[*corev1.Service]{
		OnAdd:    set,
		OnUpdate: func(_, o *corev1.Service) { set(o) },
		OnDelete: func(o *corev1.Service) {
			k, m := o.ObjectKind(), o.GetMetadata()
			s.state.RemoveGroup(&framework.Group{
				Namespace: m.GetNamespace(), APIVersion: k.APIVersion(), Kind: k.Kind, Name: m.GetName(),
			})
		},
	})
	return all
}

// workloads returns a cache of workloads of a kind, whose groups it tells the picture of the cluster.
func workloads[T object.Object](s *Scheduler, from cache.Source[T], selector func(T) labels.Selector) follower {
	all := cache.New(cache.Config[T]{Source: from, Logger: s.cfg.Logger})
	set := func(o T) {
		k, m := o.ObjectKind(), o.GetMetadata()
		s.state.SetGroup(&framework.Group{
			Namespace: m.GetNamespace(), Selector: selector(o), APIVersion: k.APIVersion(), Kind: k.Kind, Name: m.GetName(),
		})
	}
	all.AddHandler(cache.Handler[T]{
		OnAdd: set,
		OnUpdate: func(old, o T) {
			if old.GetMetadata().GetGeneration() != o.GetMetadata().GetGeneration() { // not a status
				set(o)
			}
		},
		OnDelete: func(o T) {
			k, m := o.ObjectKind(), o.GetMetadata()
			s.state.RemoveGroup(&framework.Group{
				Namespace: m.GetNamespace(), APIVersion: k.APIVersion(), Kind: k.Kind, Name: m.GetName(),
			})
		},
	})
	return all
}
