// Package kinds lists the kinds that are served and what is special about each: one file per kind, or a
// package of its own for a large one (package pod). To add a kind, write its message and one file here that
// describes it (configmap.go is the shortest example); make generate does the rest.
package kinds

import (
	"google.golang.org/grpc"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/pod"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// Config is what the kinds need.
type Config struct {
	// Deps is what all registries share.
	Deps registry.Deps
	// Audit takes forced deletions.
	Audit *auth.Audit
	// Rights says who may do what.
	Rights *auth.Authorizer
	// Logs streams the logs of containers; nil for none.
	Logs pod.LogStreamer
	// Scheduler explains where pods can go; nil for none.
	Scheduler Explainer
}

// definition says how a kind is served. For every kind there is a method of Config that returns one, by the name of
// the kind; the generated allDefinitions calls them all.
type definition struct {
	// strategy is what is special about what is stored; nil for a kind of which nothing is.
	strategy *registry.Strategy
	// view serves what the strategy of another kind stores as this kind; nil for a kind that is stored itself.
	view *registry.View
	// server serves all methods, from the kind's backend (nil without a strategy) and those of other kinds, in place
	// of the generated adapter, which serves the standard ones.
	server func(b object.Backend, backendOf func(*object.Kind) object.Backend) any
}

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
func All(cfg Config) []Service {
	cfg.Deps = cfg.Deps.Complete()
	definitions := cfg.allDefinitions()
	backends := make(map[*object.Kind]object.Backend, len(definitions))
	for kind, d := range definitions {
		if d.strategy != nil {
			backends[kind] = d.over(cfg.Deps)
		}
	}
	backendOf := func(k *object.Kind) object.Backend { return backends[k] }
	var out []Service
	for _, s := range services.All() {
		b := backends[s.Kind]
		var server any
		if d := definitions[s.Kind]; d.server != nil {
			server = d.server(b, backendOf)
		} else {
			server = s.Adapt(b)
		}
		out = append(out, Service{Service: s, Backend: b, server: server})
	}
	return out
}

// over returns the backend of a kind.
func (d definition) over(deps registry.Deps) object.Backend {
	if d.view != nil {
		return registry.NewView(deps, d.strategy, d.view)
	}
	return registry.New(deps, d.strategy)
}

// strategies returns what is stored, without a server around it.
func strategies() []*registry.Strategy {
	var out []*registry.Strategy
	definitions := Config{}.allDefinitions()
	for _, s := range services.All() {
		if d := definitions[s.Kind]; d.strategy != nil && d.view == nil {
			out = append(out, d.strategy)
		}
	}
	return out
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
	out := make(map[*object.Kind]table.Definition)
	for kind, d := range (Config{}).allDefinitions() {
		switch {
		case d.view != nil:
			out[kind] = d.view.Table
		case d.strategy != nil && d.strategy.Table != nil:
			out[kind] = d.strategy.Table
		}
	}
	return out
}
