package rest

import (
	"context"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/object"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// Service is a gRPC service that the front serves at the REST paths of its google.api.http rules.
type Service struct {
	// Kind is the kind that the service reads and writes.
	Kind *object.Kind
	// Descriptor describes the service.
	Descriptor protoreflect.ServiceDescriptor
	// Register puts the generated gateway handlers on a mux.
	Register Register
	// Events passes the events of one message of the Watch method to yield until that returns false; nil without such a
	// method.
	Events func(m proto.Message, yield func(object.Event) bool)
}

// Register puts the generated gateway handlers of a service on mux, with a client of the service on conn.
type Register func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error

// Services returns all services with REST paths. To serve another kind, add its line.
func Services() []*Service {
	return []*Service{
		service[*corev1.ConfigMapEvents](corev1.ConfigMapKind, corev1.File_monoplane_core_v1_configmap_service_proto,
			register(corev1.RegisterConfigMapsHandlerClient, corev1.NewConfigMapsClient)),
		service[*corev1.EventEvents](corev1.EventKind, corev1.File_monoplane_core_v1_event_service_proto,
			register(corev1.RegisterEventsHandlerClient, corev1.NewEventsClient)),
		service[*corev1.NamespaceEvents](corev1.NamespaceKind, corev1.File_monoplane_core_v1_namespace_service_proto,
			register(corev1.RegisterNamespacesHandlerClient, corev1.NewNamespacesClient)),
		service[*corev1.NodeEvents](corev1.NodeKind, corev1.File_monoplane_core_v1_node_service_proto,
			register(corev1.RegisterNodesHandlerClient, corev1.NewNodesClient)),
		service[*corev1.PersistentVolumeEvents](corev1.PersistentVolumeKind, corev1.File_monoplane_core_v1_persistentvolume_service_proto,
			register(corev1.RegisterPersistentVolumesHandlerClient, corev1.NewPersistentVolumesClient)),
		service[*corev1.PersistentVolumeClaimEvents](corev1.PersistentVolumeClaimKind,
			corev1.File_monoplane_core_v1_persistentvolumeclaim_service_proto,
			register(corev1.RegisterPersistentVolumeClaimsHandlerClient, corev1.NewPersistentVolumeClaimsClient)),
		service[*corev1.PodEvents](corev1.PodKind, corev1.File_monoplane_core_v1_pod_service_proto,
			register(corev1.RegisterPodsHandlerClient, corev1.NewPodsClient)),
		service[*corev1.ServiceAccountEvents](corev1.ServiceAccountKind, corev1.File_monoplane_core_v1_serviceaccount_service_proto,
			register(corev1.RegisterServiceAccountsHandlerClient, corev1.NewServiceAccountsClient)),
		service[*coordinationv1.LeaseEvents](coordinationv1.LeaseKind, coordinationv1.File_monoplane_coordination_v1_lease_service_proto,
			register(coordinationv1.RegisterLeasesHandlerClient, coordinationv1.NewLeasesClient)),
		service[*eventsv1.EventEvents](eventsv1.EventKind, eventsv1.File_monoplane_events_v1_event_service_proto,
			register(eventsv1.RegisterEventsHandlerClient, eventsv1.NewEventsClient)),
		service[*schedulingv1.PriorityClassEvents](schedulingv1.PriorityClassKind,
			schedulingv1.File_monoplane_scheduling_v1_priorityclass_service_proto,
			register(schedulingv1.RegisterPriorityClassesHandlerClient, schedulingv1.NewPriorityClassesClient)),
		{
			Kind:       schedulingv1.PlacementReviewKind,
			Descriptor: schedulingv1.File_monoplane_scheduling_v1_placementreview_service_proto.Services().Get(0),
			Register:   register(schedulingv1.RegisterPlacementReviewsHandlerClient, schedulingv1.NewPlacementReviewsClient),
		},
		service[*storagev1.StorageClassEvents](storagev1.StorageClassKind, storagev1.File_monoplane_storage_v1_storageclass_service_proto,
			register(storagev1.RegisterStorageClassesHandlerClient, storagev1.NewStorageClassesClient)),
	}
}

// batch is a message of a Watch method, such as *corev1.PodEvents.
type batch[E any] interface {
	proto.Message
	GetEvents() []E
}

// event is an element of a batch, such as *corev1.PodEvent.
type event[O object.Object] interface {
	GetType() string
	GetObject() O
	GetStatus() *metav1.Status
}

// service describes the only service of file.
func service[B batch[E], E event[O], O object.Object](kind *object.Kind, file protoreflect.FileDescriptor, r Register) *Service {
	return &Service{Kind: kind, Descriptor: file.Services().Get(0), Register: r, Events: events[B]}
}

// register adapts a pair of generated functions.
func register[C any](
	handler func(context.Context, *runtime.ServeMux, C) error, client func(grpc.ClientConnInterface) C,
) Register {
	return func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
		return handler(ctx, mux, client(conn))
	}
}

func events[B batch[E], E event[O], O object.Object](m proto.Message, yield func(object.Event) bool) {
	b, ok := m.(B)
	if !ok {
		return
	}
	for _, e := range b.GetEvents() {
		ev := object.Event{Type: object.EventType(e.GetType()), Status: e.GetStatus()}
		if ev.Type != object.Error {
			ev.Object = e.GetObject()
		}
		if !yield(ev) {
			return
		}
	}
}
