// Package apiserver is the API: the gRPC services of all kinds over one store, with the interceptors that
// every request passes, wherever it comes from. The REST front (package rest) calls the same services.
//
// What it guarantees: no request reaches a service without having been authorized (spec: OBJ-15); an error that
// is not an API error is logged and reaches the client as Internal without its text; a panic does too; every
// request is counted and timed; forced deletions leave a line in the audit log (DEL-8).
//
// Use: New, then Register on every server (the in-process one and the one with listeners), each of them made
// with UnaryInterceptors and StreamInterceptors. The identity of a request is in its context (package authn).
//
// It does not listen, authenticate, or close the store.
package apiserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"monoplane.dev/apiserver/admission"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/auth/roles"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds"
	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/scheduling"
	"monoplane.dev/apiserver/metering"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/object"
	"monoplane.dev/rules/rights"
	"monoplane.dev/rules/servicerange"

	corev1 "monoplane.dev/api/core/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// LogStreamer streams a container's log from the agent of a node.
type LogStreamer = define.LogStreamer

// Config is what New needs.
type Config struct {
	// Store holds the objects; it must know Collections. Required.
	Store *store.Store
	// Logs reaches the agents for the logs of containers; nil refuses such requests.
	Logs LogStreamer
	// Streams reaches the agents for exec, attach and port-forward; nil refuses such requests.
	Streams define.StreamSource
	// Usage reaches the agents for what their nodes use; nil: nobody tells.
	Usage define.UsageSource
	// Documents reaches the agents for what kubelets serve, such as stats/summary; nil: nobody does.
	Documents define.DocumentSource
	// Scheduler explains where pods can go; nil refuses such requests.
	Scheduler define.Explainer
	// Tokens issues the tokens of service accounts; nil refuses such requests.
	Tokens *tokens.Authority
	// Bearers tells whose a bearer token is; nil knows none.
	Bearers *authn.Bearers
	// Controllers is what the controllers may do that are known by name; others have the rights of any controller.
	Controllers []rights.Role
	// Ingress says that Ingresses are served.
	Ingress bool
	// PodSecurity is the standards of security of pods that hold for all namespaces; none by default.
	PodSecurity security.Config
	// Services is where the addresses and node ports of Services come from; it has defaults.
	Services servicerange.Ranges
	// PodNetwork says that pods have a network of their own, in which NetworkPolicies are enforced.
	PodNetwork bool
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Logger gets what clients are not told, and the audit; it defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
	// Audit takes what its policy says of each request; nil for none. It is closed by who has made it.
	Audit *audit.Log
	// Rand is where uids and generated names come from; crypto/rand by default. It must be safe for concurrent use.
	Rand io.Reader
}

// Server holds the services. It is safe for concurrent use.
type Server struct {
	store    *store.Store
	log      *slog.Logger
	services []kinds.Service
	tables   map[*object.Kind]table.Definition
	authz    *auth.Authorizer
	audit    *auth.Audit
	trail    *audit.Log // nil without
	methods  map[string]*method
	meter    *metering.Meter // nil without
	// unknown are calls of methods that there are not, health and reflection what gRPC itself has.
	unknown, health, reflection *method
}

// Collections is what the store must be opened with.
func Collections() []store.Collection { return kinds.Collections() }

// New returns the services and makes sure that the system namespaces (OBJ-14) and priority classes (PRIO-1) exist.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	index := roles.New()
	for _, kind := range []*object.Kind{
		rbacv1.RoleKind, rbacv1.ClusterRoleKind, rbacv1.RoleBindingKind, rbacv1.ClusterRoleBindingKind,
	} {
		if err := cfg.Store.Follow(kind, index.Changed); err != nil {
			return nil, fmt.Errorf("follow the %s: %w", kind.Plural, err)
		}
	}
	authz, acts := auth.NewAuthorizer(cfg.Controllers, index), auth.NewAudit(cfg.Logger)
	cfg.PodSecurity.Note = func(ctx context.Context, o object.Object, violation string) {
		m := o.GetMetadata()
		cfg.Logger.InfoContext(ctx, "pod security", "audit", violation, "kind", o.ObjectKind().Kind,
			"namespace", m.GetNamespace(), "name", m.GetName(), "user", auth.From(ctx).Name)
	}
	cfg.PodSecurity.MayUseHost = func(ctx context.Context, namespace string) error {
		return authz.MayUseHost(auth.From(ctx), namespace)
	}
	rules, err := admission.New(admission.Config{Store: cfg.Store, Clock: cfg.Clock, Security: cfg.PodSecurity})
	if err != nil {
		return nil, err
	}
	s := &Server{
		store: cfg.Store, log: cfg.Logger, tables: kinds.Tables(), authz: authz, audit: acts,
		trail: cfg.Audit,
		services: kinds.All(define.Config{
			Deps: registry.Deps{Store: cfg.Store, Clock: cfg.Clock, Rand: cfg.Rand, Admission: rules,
				MayCreate: func(ctx context.Context, kind *object.Kind, namespace, name string) error {
					return mayCreate(ctx, authz, kind, namespace, name)
				}},
			Ingress: cfg.Ingress,
			Audit:   acts, Rights: authz, Logs: cfg.Logs, Streams: cfg.Streams, Usage: cfg.Usage,
			Documents: cfg.Documents, Scheduler: cfg.Scheduler,
			Tokens: cfg.Tokens, Bearers: cfg.Bearers, Services: cfg.Services, PodNetwork: cfg.PodNetwork,
		}),
	}
	if s.meter, err = metering.New(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s.addMethods()
	for _, svc := range s.services {
		switch svc.Kind {
		case corev1.NamespaceKind:
			if err := core.EnsureNamespaces(ctx, svc.Backend); err != nil {
				return nil, fmt.Errorf("create the system namespaces: %w", err)
			}
		case schedulingv1.PriorityClassKind:
			if err := scheduling.EnsurePriorityClasses(ctx, svc.Backend); err != nil {
				return nil, fmt.Errorf("create the system priority classes: %w", err)
			}
		}
	}
	return s, nil
}

// Register puts the services on a server, which must run the interceptors.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	for _, svc := range s.services {
		svc.Register(r)
	}
}

// UnaryInterceptors are what every server must run, in this order, after the user has been put into the context.
func (s *Server) UnaryInterceptors() []grpc.UnaryServerInterceptor {
	if s.trail != nil {
		return []grpc.UnaryServerInterceptor{s.observeUnary, s.auditUnary, s.authorizeUnary}
	}
	return []grpc.UnaryServerInterceptor{s.observeUnary, s.authorizeUnary}
}

// StreamInterceptors are what every server must run, in this order, after the user has been put into the context.
func (s *Server) StreamInterceptors() []grpc.StreamServerInterceptor {
	if s.trail != nil {
		return []grpc.StreamServerInterceptor{s.observeStream, s.auditStream, s.authorizeStream}
	}
	return []grpc.StreamServerInterceptor{s.observeStream, s.authorizeStream}
}

// Table returns how kubectl get shows objects of a kind; nil when nothing special is known.
func (s *Server) Table(k *object.Kind) table.Definition {
	if t, ok := s.tables[k]; ok {
		return t
	}
	return nil
}

// Meter counts requests; a front that answers requests itself counts with it. It is nil without a Registerer.
func (s *Server) Meter() *metering.Meter { return s.meter }

// Live returns nil when etcd answers.
func (s *Server) Live(ctx context.Context) error { return s.store.Live(ctx) }

// Ready returns nil when requests can be served, writes among them.
func (s *Server) Ready(ctx context.Context) error { return s.store.Ready(ctx) }
