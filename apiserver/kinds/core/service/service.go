// Package service is what is special about Services: defaults, validation, what an update carries over, and the
// cluster IPs and node ports that they are given.
//
// # Addresses and ports
//
// A Service is what says that an address or a port is taken: nothing else is stored, so that nothing can disagree
// with it, be lost or be left behind. A write that takes one takes a turn with it (store.Store.Turn), in the
// transaction that writes the Service:
//
//	choose an address that no Service has → the turn of the address → look again at all Services →
//	commit: the Service, if nobody had that turn since
//
// Who had the turn before has left its Service where the second look sees it; who comes at the same time has the same
// turn, and one of the two transactions fails and is judged again. So no two Services have the same address or port,
// whatever servers of one etcd they are written through, and a server that dies on the way has taken nothing. What is
// given back is free in the transaction that deletes or changes the Service, for which nobody needs a turn.
//
// Guarantees:
//   - No two Services have the same cluster IP, or the same node port (spec: OBJ-2).
//   - A dry run looks, and takes nothing.
//   - A write that takes nothing looks at no other Service.
package service

import (
	"context"

	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/rules/servicerange"

	corev1 "monoplane.dev/api/core/v1"
)

// The types of a Service.
const (
	ClusterIP    = "ClusterIP"
	NodePort     = "NodePort"
	LoadBalancer = "LoadBalancer"
	ExternalName = "ExternalName"
)

// None is the clusterIP of a headless Service.
const None = "None"

// Services is the kind.
type Services struct {
	deps   registry.Deps
	ranges servicerange.Ranges
	// carried says that traffic to the addresses of Services is carried.
	carried bool
}

// New returns the kind with its ranges. Carried says that traffic to the addresses of Services is carried: where it is
// not, who makes one that needs such an address is warned.
func New(deps registry.Deps, ranges servicerange.Ranges, carried bool) Services {
	return Services{deps: deps, ranges: ranges.Complete(), carried: carried}
}

// Strategy describes the kind.
func (s Services) Strategy() *registry.Strategy {
	return registry.Typed[*corev1.Service]{
		Kind:           corev1.ServiceKind,
		CreateOnUpdate: true,
		Default:        Default,
		DefaultNew:     DefaultNew,
		Allot: func(ctx context.Context, o *corev1.Service) ([]store.Guard, error) {
			return s.allot(ctx, o, nil)
		},
		Validate: Validate,
		Warn:     warnings,
		Guards: func(ctx context.Context, o *corev1.Service) ([]store.Guard, error) {
			s.warn(ctx, o, nil)
			return nil, nil
		},
		Main: registry.TypedUpdateRules[*corev1.Service]{
			Apply: Apply,
			Authorize: func(ctx context.Context, u *registry.Update, next, live *corev1.Service) error {
				guards, err := s.allot(ctx, next, live)
				if err != nil {
					return err
				}
				u.Guards = append(u.Guards, guards...)
				s.warn(ctx, next, live)
				return nil
			},
			Validate: ValidateUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.Service]{
			"status": {Apply: ApplyStatus, Validate: ValidateStatusUpdate},
		},
		Fields: map[string]func(*corev1.Service) string{
			"spec.clusterIP": func(o *corev1.Service) string { return o.GetSpec().GetClusterIP() },
			"spec.type":      func(o *corev1.Service) string { return o.GetSpec().GetType() },
		},
		Table: columns(),
	}.Strategy()
}

// specOf returns the spec of a Service, which is empty rather than nil.
func specOf(o *corev1.Service) *corev1.ServiceSpec {
	if s := o.GetSpec(); s != nil {
		return s
	}
	return &corev1.ServiceSpec{}
}

// headless says whether the endpoints of a Service are reached without an address of its own.
func headless(s *corev1.ServiceSpec) bool {
	return len(s.GetClusterIPs()) == 1 && s.GetClusterIPs()[0] == None
}

// external says whether a Service is reached from outside of the cluster.
func external(s *corev1.ServiceSpec) bool {
	return nodePorts(s) || s.GetType() == ClusterIP && len(s.GetExternalIPs()) > 0
}

// addressed says whether a Service has addresses of the cluster, or says that it has none.
func addressed(s *corev1.ServiceSpec) bool { return s.GetType() != ExternalName }

// nodePorts says whether a Service can have node ports.
func nodePorts(s *corev1.ServiceSpec) bool {
	return s.GetType() == NodePort || s.GetType() == LoadBalancer
}

// givenPorts says whether a Service is given node ports that it does not ask for.
func givenPorts(s *corev1.ServiceSpec) bool {
	return s.GetType() == NodePort ||
		s.GetType() == LoadBalancer && (s.AllocateLoadBalancerNodePorts == nil || *s.AllocateLoadBalancerNodePorts)
}

// healthChecked says whether nodes say if pods of the Service are on them.
func healthChecked(s *corev1.ServiceSpec) bool {
	return s.GetType() == LoadBalancer && s.GetExternalTrafficPolicy() == "Local"
}
