// Package kinds lists the kinds that are served. What is special about each is in the package of its API group: one
// file per kind, or a package of its own for a large one (package pod). To add a kind, write its message and one file
// in its group's folder that describes it (core/configmap.go is a short example); make generate does the rest.
package kinds

import (
	"time"

	"google.golang.org/grpc"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/object"
	"monoplane.dev/object/service"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
)

// Service is one gRPC service over one kind.
type Service struct {
	*service.Service
	// Backend serves the standard methods; nil for a kind of which nothing is stored.
	Backend object.Backend

	server any
}

// Register puts the service on a server.
func (s Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(s.Desc, s.server) }

// All returns the services of all kinds.
func All(cfg define.Config) []Service {
	cfg.Deps = cfg.Deps.Complete()
	for _, s := range strategies() {
		if s.Kind.Namespaced {
			cfg.Namespaced = append(cfg.Namespaced, s.Kind)
		}
	}
	definitions := allDefinitions(cfg)
	views := make(map[*object.Kind][]*registry.View)
	for _, d := range definitions {
		if d.View != nil {
			views[d.Strategy.Kind] = append(views[d.Strategy.Kind], d.View)
		}
	}
	backends := make(map[*object.Kind]object.Backend, len(definitions))
	for kind, d := range definitions {
		if d.Strategy != nil {
			backends[kind] = over(cfg.Deps, d, views[d.Strategy.Kind])
		}
	}
	backendOf := func(k *object.Kind) object.Backend { return backends[k] }
	var out []Service
	for _, s := range services.All() {
		b := backends[s.Kind]
		var server any
		if d := definitions[s.Kind]; d.Server != nil {
			server = d.Server(b, backendOf)
		} else {
			server = s.Adapt(b)
		}
		out = append(out, Service{Service: s, Backend: b, server: server})
	}
	return out
}

// over returns the backend of a kind. Views are all those of what is stored.
func over(deps registry.Deps, d define.Definition, views []*registry.View) object.Backend {
	var b *registry.Registry
	if d.View != nil {
		b = registry.NewView(deps, d.Strategy, d.View, views...)
	} else {
		b = registry.New(deps, d.Strategy, views...)
	}
	if d.Deprecated != "" {
		return registry.Deprecated(b, d.Deprecated)
	}
	return b
}

// strategies returns what is stored, without a server around it.
func strategies() []*registry.Strategy {
	var out []*registry.Strategy
	definitions := allDefinitions(define.Config{})
	for _, s := range services.All() {
		if d := definitions[s.Kind]; d.Strategy != nil && d.View == nil {
			out = append(out, d.Strategy)
		}
	}
	return out
}

// Collections tells the store about everything that it has to keep.
func Collections() []store.Collection {
	var out []store.Collection
	for _, s := range strategies() {
		out = append(out, store.Collection{
			Kind: s.Kind, Field: s.Field, Indexes: s.Indexes, TTL: s.TTL, Sealed: s.Sealed, Share: s.Share,
		})
	}
	return out
}

// Tables returns how kubectl get shows each kind (CLI-3).
func Tables() map[*object.Kind]table.Definition {
	out := map[*object.Kind]table.Definition{autoscalingv1.ScaleKind: workload.ScaleTable()}
	for kind, d := range allDefinitions(define.Config{}) {
		switch {
		case d.View != nil:
			out[kind] = viewed{d.Strategy.Table, d.View}
		case d.Strategy != nil && d.Strategy.Table != nil:
			out[kind] = d.Strategy.Table
		}
	}
	return out
}

// viewed shows the objects of a view as those that are stored, in the table of the stored kind.
type viewed struct {
	table.Definition
	view *registry.View
}

// Cells returns the cells of one object, of either kind.
func (v viewed) Cells(o object.Object, now time.Time) []any {
	if o.ObjectKind() == v.view.Kind {
		o = v.view.In(o)
	}
	return v.Definition.Cells(o, now)
}
