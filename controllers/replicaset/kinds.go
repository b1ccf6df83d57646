package replicaset

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/replicaset/plan"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
)

// machine is what the controller has to know of a kind.
type machine[T object.Object] struct {
	name     string
	reporter string // of its events
	objects  *cache.Cache[T]
	// wanted, selector, template and status read an object.
	wanted   func(T) plan.Wanted
	selector func(T) labels.Selector
	template func(T) *corev1.PodTemplateSpec
	status   func(T) status
	// related returns the objects whose pods count as neighbours.
	related func(T) []T
	get     func(context.Context, *metav1.GetRequest) (object.Object, error)
	// write writes a status, by compare-and-swap.
	write func(context.Context, T, status) (T, error)
}

// status is that of either kind.
type status struct {
	plan.Counts

	observed   int64
	conditions []condition
}

// condition is one of a status.
type condition struct {
	kind, status, reason, message string
	since                         *metav1.Time
}

// replicaSets is the machine of ReplicaSets.
func replicaSets(api *client.Client, shared *controller.Shared) *machine[*appsv1.ReplicaSet] {
	all := controller.Of[*appsv1.ReplicaSet](shared, controller.ByController, controller.ByNamespace)
	return &machine[*appsv1.ReplicaSet]{
		name: "replicaset", reporter: "replicaset-controller", objects: all,
		wanted: func(o *appsv1.ReplicaSet) plan.Wanted {
			s := o.GetSpec()
			return plan.Wanted{Replicas: int(s.GetReplicas()), MinReadySeconds: s.GetMinReadySeconds(),
				Labels: s.GetTemplate().GetMetadata().GetLabels()}
		},
		selector: func(o *appsv1.ReplicaSet) labels.Selector { return labelselector.OrNothing(o.GetSpec().GetSelector()) },
		template: func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
		status: func(o *appsv1.ReplicaSet) status {
			s := o.GetStatus()
			out := status{observed: s.GetObservedGeneration(), Counts: plan.Counts{
				Replicas: s.GetReplicas(), FullyLabeled: s.GetFullyLabeledReplicas(), Ready: s.GetReadyReplicas(),
				Available: s.GetAvailableReplicas(), Terminating: -1, // unlike any count, when it was never written
			}}
			if s != nil && s.TerminatingReplicas != nil {
				out.Terminating = s.GetTerminatingReplicas()
			}
			for _, c := range s.GetConditions() {
				out.conditions = append(out.conditions,
					condition{c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage(), c.GetLastTransitionTime()})
			}
			return out
		},
		related: func(o *appsv1.ReplicaSet) []*appsv1.ReplicaSet {
			if m := controller.ManagerOf(o); m != nil {
				return all.ByIndex(controller.ByController, m.GetUid())
			}
			return []*appsv1.ReplicaSet{o}
		},
		get: func(ctx context.Context, req *metav1.GetRequest) (object.Object, error) {
			return api.ReplicaSets.Get(ctx, req)
		},
		write: func(ctx context.Context, o *appsv1.ReplicaSet, s status) (*appsv1.ReplicaSet, error) {
			next := o.Shallow()
			next.Status = &appsv1.ReplicaSetStatus{
				Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeled, ReadyReplicas: s.Ready,
				AvailableReplicas: s.Available, TerminatingReplicas: &s.Terminating, ObservedGeneration: s.observed,
			}
			for _, c := range s.conditions {
				next.Status.Conditions = append(next.Status.Conditions, &appsv1.ReplicaSetCondition{
					Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: c.since})
			}
			return api.ReplicaSets.UpdateStatus(ctx, &appsv1rpc.UpdateReplicaSetRequest{Object: next})
		},
	}
}

// replicationControllers is the machine of ReplicationControllers.
func replicationControllers(
	api *client.Client, all *cache.Cache[*corev1.ReplicationController],
) *machine[*corev1.ReplicationController] {
	return &machine[*corev1.ReplicationController]{
		name: "replicationcontroller", reporter: "replication-controller", objects: all,
		wanted: func(o *corev1.ReplicationController) plan.Wanted {
			s := o.GetSpec()
			return plan.Wanted{Replicas: int(s.GetReplicas()), MinReadySeconds: s.GetMinReadySeconds(),
				Labels: s.GetTemplate().GetMetadata().GetLabels()}
		},
		selector: func(o *corev1.ReplicationController) labels.Selector {
			return labels.SelectorFromSet(o.GetSpec().GetSelector())
		},
		template: func(o *corev1.ReplicationController) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
		status: func(o *corev1.ReplicationController) status {
			s := o.GetStatus()
			out := status{observed: s.GetObservedGeneration(), Counts: plan.Counts{
				Replicas: s.GetReplicas(), FullyLabeled: s.GetFullyLabeledReplicas(), Ready: s.GetReadyReplicas(),
				Available: s.GetAvailableReplicas(),
			}}
			for _, c := range s.GetConditions() {
				out.conditions = append(out.conditions,
					condition{c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage(), c.GetLastTransitionTime()})
			}
			return out
		},
		related: func(o *corev1.ReplicationController) []*corev1.ReplicationController {
			return []*corev1.ReplicationController{o}
		},
		get: func(ctx context.Context, req *metav1.GetRequest) (object.Object, error) {
			return api.ReplicationControllers.Get(ctx, req)
		},
		write: func(
			ctx context.Context, o *corev1.ReplicationController, s status,
		) (*corev1.ReplicationController, error) {
			next := o.Shallow()
			next.Status = &corev1.ReplicationControllerStatus{
				Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeled, ReadyReplicas: s.Ready,
				AvailableReplicas: s.Available, ObservedGeneration: s.observed,
			}
			for _, c := range s.conditions {
				next.Status.Conditions = append(next.Status.Conditions, &corev1.ReplicationControllerCondition{
					Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: c.since})
			}
			return api.ReplicationControllers.UpdateStatus(ctx, &corev1rpc.UpdateReplicationControllerRequest{Object: next})
		},
	}
}
