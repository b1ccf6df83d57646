// Package kinds lists the kinds that are served and what is special about each: one file per kind, or a
// package of its own for a large one (package pod). To add a kind, write its .proto files, one file here that
// describes it (configmap.go is the shortest example), and its line in served.
package kinds

import (
	"google.golang.org/grpc"

	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/pod"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/rest/table"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// Config is what the kinds need.
type Config struct {
	// Deps is what all registries share.
	Deps registry.Deps
	// Audit takes forced deletions.
	Audit *auth.Audit
	// Logs streams the logs of containers; nil for none.
	Logs pod.LogStreamer
	// Scheduler explains where pods can go; nil for none.
	Scheduler Explainer
}

// Service is one gRPC service over one kind.
type Service struct {
	// Kind is the kind that the service reads and writes.
	Kind *object.Kind
	// Name is the full name of the gRPC service, such as "monoplane.core.v1.Pods".
	Name string
	// Backend serves the standard methods; nil for a kind of which nothing is stored.
	Backend object.Backend
	// Methods are the names of its methods, such as "Get".
	Methods []string
	// Register puts the service on a server.
	Register func(grpc.ServiceRegistrar)
}

// All returns the services of all kinds.
func All(cfg Config) []Service {
	cfg.Deps = cfg.Deps.Complete()
	pods := pod.New(cfg.Deps, cfg.Audit)
	events := event()
	podBackend := registry.New(cfg.Deps, pods.Strategy())
	return []Service{
		serve(podBackend, corev1.PodKind, corev1.Pods_ServiceDesc, func(b object.Backend) any {
			return pods.Service(b, cfg.Logs)
		}),
		serve(registry.New(cfg.Deps, node(cfg.Deps)), corev1.NodeKind, corev1.Nodes_ServiceDesc, func(b object.Backend) any {
			return corev1.NodesBackend{Backend: b}
		}),
		serve(registry.New(cfg.Deps, namespace(cfg.Deps)), corev1.NamespaceKind, corev1.Namespaces_ServiceDesc, func(b object.Backend) any {
			return corev1.NamespacesBackend{Backend: b}
		}),
		serve(registry.New(cfg.Deps, events), corev1.EventKind, corev1.Events_ServiceDesc, func(b object.Backend) any {
			return corev1.EventsBackend{Backend: b}
		}),
		serve(registry.NewView(cfg.Deps, events, eventView()), eventsv1.EventKind, eventsv1.Events_ServiceDesc, func(b object.Backend) any {
			return eventsv1.EventsBackend{Backend: b}
		}),
		serve(registry.New(cfg.Deps, configMap()), corev1.ConfigMapKind, corev1.ConfigMaps_ServiceDesc, func(b object.Backend) any {
			return corev1.ConfigMapsBackend{Backend: b}
		}),
		serve(registry.New(cfg.Deps, serviceAccount()), corev1.ServiceAccountKind, corev1.ServiceAccounts_ServiceDesc, func(b object.Backend) any {
			return corev1.ServiceAccountsBackend{Backend: b}
		}),
		serve(registry.New(cfg.Deps, lease()), coordinationv1.LeaseKind, coordinationv1.Leases_ServiceDesc, func(b object.Backend) any {
			return coordinationv1.LeasesBackend{Backend: b}
		}),
		serve(registry.New(cfg.Deps, persistentVolume(cfg.Deps)), corev1.PersistentVolumeKind, corev1.PersistentVolumes_ServiceDesc,
			func(b object.Backend) any { return corev1.PersistentVolumesBackend{Backend: b} }),
		serve(registry.New(cfg.Deps, persistentVolumeClaim(cfg.Deps)), corev1.PersistentVolumeClaimKind, corev1.PersistentVolumeClaims_ServiceDesc,
			func(b object.Backend) any { return corev1.PersistentVolumeClaimsBackend{Backend: b} }),
		serve(registry.New(cfg.Deps, storageClass()), storagev1.StorageClassKind, storagev1.StorageClasses_ServiceDesc,
			func(b object.Backend) any { return storagev1.StorageClassesBackend{Backend: b} }),
		serve(registry.New(cfg.Deps, priorityClass(cfg.Deps)), schedulingv1.PriorityClassKind, schedulingv1.PriorityClasses_ServiceDesc,
			func(b object.Backend) any { return schedulingv1.PriorityClassesBackend{Backend: b} }),
		serve(nil, schedulingv1.PlacementReviewKind, schedulingv1.PlacementReviews_ServiceDesc, func(object.Backend) any {
			return &placementReviews{pods: podBackend, scheduler: cfg.Scheduler}
		}),
	}
}

// serve makes a service of a generated adapter.
func serve(b object.Backend, k *object.Kind, desc grpc.ServiceDesc, adapter func(object.Backend) any) Service {
	var methods []string
	for _, m := range desc.Methods {
		methods = append(methods, m.MethodName)
	}
	for _, m := range desc.Streams {
		methods = append(methods, m.StreamName)
	}
	return Service{Kind: k, Name: desc.ServiceName, Methods: methods, Backend: b, Register: func(s grpc.ServiceRegistrar) {
		s.RegisterService(&desc, adapter(b))
	}}
}

// strategies returns what is stored, without a server around it.
func strategies() []*registry.Strategy {
	deps := registry.Deps{}
	return []*registry.Strategy{
		pod.New(deps, nil).Strategy(), node(deps), namespace(deps), event(), configMap(), serviceAccount(), lease(),
		priorityClass(deps), persistentVolume(deps), persistentVolumeClaim(deps), storageClass(),
	}
}

// Resources tells the store about everything that it has to keep.
func Resources() []store.Resource {
	var out []store.Resource
	for _, s := range strategies() {
		out = append(out, store.Resource{Kind: s.Kind, Field: s.Field, Indexes: s.Indexes, TTL: s.TTL, Share: s.Share})
	}
	return out
}

// Tables returns how kubectl get shows each kind (CLI-3).
func Tables() map[*object.Kind]table.Definition {
	out := map[*object.Kind]table.Definition{eventsv1.EventKind: eventView().Table}
	for _, s := range strategies() {
		if s.Table != nil {
			out[s.Kind] = s.Table
		}
	}
	return out
}
