// Package apiendpoints keeps the Service "kubernetes" of namespace "default", by which programs in the cluster find
// the API server, and its endpoints: this server, and the others that use the same etcd.
//
// Each of several servers says every few seconds that it lives, in a Lease of its own in namespace kube-system. A
// server whose Lease stands still for leaseTime, by the clock of whoever looks, is left out of the endpoints; one that
// ends in order takes its Lease with it. A server that is alone writes no Leases.
//
// What differs from what should be there is mended, and nothing else is written. While it is not known where pods
// reach the server, nothing is. An address that is the loopback's is listed only where pods have none but the
// machine's.
//
// What it does not do: it makes nothing for a server that nobody reaches over the network.
package apiendpoints

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
	"monoplane.dev/object/builtin"
)

const (
	// startAfter is how long a start is left alone, and the time between two looks at where the server is reached.
	startAfter = 500 * time.Millisecond
	// lookEvery is the time between two looks, and renewEvery between two signs of life, of which leaseTime may pass
	// without any.
	lookEvery  = 10 * time.Second
	renewEvery = 5 * time.Second
	leaseTime  = 15 * time.Second
	// endTime bounds how long the end of a server waits for its Lease to go.
	endTime = 2 * time.Second

	leases      = "kube-system"
	leasePrefix = "apiserver-"
	identity    = "apiserver.kubernetes.io/identity"
	servers     = "kube-apiserver"

	serviceName = "kubernetes.io/service-name"
	managedBy   = "endpointslice.kubernetes.io/managed-by"
	skipMirror  = "endpointslice.kubernetes.io/skip-mirror"
	// manager is who owns the slices.
	manager = "apiendpoints.monoplane.dev"

	portName = "https"
	port     = 443
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:apiendpoints.
	Client *client.Client
	// Server is the server that it runs in.
	Server controller.Server
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the Service and its endpoints. Run starts it.
type Controller struct {
	cfg Config
	// at is where the server is reached, as of the last look.
	at netip.AddrPort
	// seen says when a Lease was last seen to change, and what it said then.
	seen map[string]sign
}

// sign is a sign of life of a server.
type sign struct {
	revision string
	at       time.Time
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("apiendpoints: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, seen: map[string]sign{}}, nil
}

// Ready returns nil: nobody waits for the Service.
func (c *Controller) Ready() error { return nil }

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	every := lookEvery
	if c.cfg.Server.Shared {
		every = renewEvery
	}
	if c.cfg.Server.Reached == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	timer := time.NewTimer(startAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			c.end(context.WithoutCancel(ctx))
			return ctx.Err()
		case <-timer.C:
		}
		at := c.cfg.Server.Reached()
		if !at.IsValid() {
			timer.Reset(startAfter)
			continue
		}
		if at != c.at {
			c.end(ctx) // The Lease of where it was before.
			c.at = at
		}
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("the endpoints of the API server", "error", err)
		}
		timer.Reset(every)
	}
}

// look mends what is not as it should be.
func (c *Controller) look(ctx context.Context) error {
	all := []netip.AddrPort{c.at}
	if c.cfg.Server.Shared {
		if err := c.renew(ctx); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
		var err error
		if all, err = c.alive(ctx); err != nil {
			return fmt.Errorf("leases: %w", err)
		}
	}
	groups := group(all)
	return errors.Join(c.service(ctx, groups), c.endpoints(ctx, groups), c.slices(ctx, groups))
}

// group sorts servers by their port and the family of their addresses.
func group(all []netip.AddrPort) []together {
	slices.SortFunc(all, netip.AddrPort.Compare)
	all = slices.Compact(all)
	var out []together
	for _, at := range all {
		i := slices.IndexFunc(out, func(g together) bool {
			return g.port == int32(at.Port()) && g.six == at.Addr().Is6()
		})
		if i < 0 {
			i = len(out)
			out = append(out, together{port: int32(at.Port()), six: at.Addr().Is6()})
		}
		out[i].ips = append(out[i].ips, at.Addr().String())
	}
	return out
}

// together are servers that listen on one port, with addresses of one family.
type together struct {
	port int32
	six  bool
	ips  []string
}

// service makes the Service, and has it lead to a port that a server listens on.
func (c *Controller) service(ctx context.Context, groups []together) error {
	services := c.cfg.Client.Services
	live, err := services.Get(ctx, this())
	if apierrors.Is(err, apierrors.NotFound) {
		_, err = services.Create(ctx, &corev1rpc.CreateServiceRequest{Object: &corev1.Service{
			Metadata: meta(map[string]string{"component": "apiserver", "provider": "kubernetes"}),
			Spec: &corev1.ServiceSpec{
				Type: "ClusterIP", ClusterIP: c.cfg.Server.ClusterIP.String(), SessionAffinity: "None",
				Ports: []*corev1.ServicePort{servicePort(int32(c.at.Port()))},
			},
		}})
	}
	if err != nil || live == nil {
		return wrap("service", err)
	}
	ports := live.GetSpec().GetPorts()
	if len(ports) == 1 && slices.ContainsFunc(groups, func(g together) bool {
		return proto.Equal(ports[0], servicePort(g.port))
	}) {
		return nil
	}
	next := object.Clone(live)
	next.Spec.Ports = []*corev1.ServicePort{servicePort(int32(c.at.Port()))}
	_, err = services.Update(ctx, &corev1rpc.UpdateServiceRequest{
		Namespace: builtin.Default, Name: builtin.API, Object: next,
	})
	return wrap("service", err)
}

func servicePort(target int32) *corev1.ServicePort {
	return &corev1.ServicePort{
		Name: portName, Port: port, Protocol: "TCP", TargetPort: &metav1.IntOrString{IntVal: target},
	}
}

func (c *Controller) endpoints(ctx context.Context, groups []together) error {
	var subsets []*corev1.EndpointSubset
	for _, g := range groups {
		s := &corev1.EndpointSubset{Ports: []*corev1.EndpointPort{{Name: portName, Port: g.port, Protocol: "TCP"}}}
		for _, ip := range g.ips {
			s.Addresses = append(s.Addresses, &corev1.EndpointAddress{Ip: ip})
		}
		subsets = append(subsets, s)
	}
	endpoints := c.cfg.Client.Endpoints
	live, err := endpoints.Get(ctx, this())
	if apierrors.Is(err, apierrors.NotFound) {
		_, err = endpoints.Create(ctx, &corev1rpc.CreateEndpointsRequest{Object: &corev1.Endpoints{
			Metadata: meta(map[string]string{skipMirror: "true"}), Subsets: subsets,
		}})
	}
	same := func(a, b *corev1.EndpointSubset) bool { return proto.Equal(a, b) }
	if err != nil || live == nil || slices.EqualFunc(live.GetSubsets(), subsets, same) {
		return wrap("endpoints", err)
	}
	next := object.Clone(live)
	next.Subsets = subsets
	_, err = endpoints.Update(ctx, &corev1rpc.UpdateEndpointsRequest{
		Namespace: builtin.Default, Name: builtin.API, Object: next,
	})
	return wrap("endpoints", err)
}

// slices writes a slice for each port and family, of which the first has the name of the Service.
func (c *Controller) slices(ctx context.Context, groups []together) error {
	all, err := c.cfg.Client.EndpointSlices.List(ctx, &metav1.ListRequest{
		Namespace: builtin.Default, LabelSelector: serviceName + "=" + builtin.API + "," + managedBy + "=" + manager,
		ResourceVersion: "0",
	})
	if err != nil {
		return wrap("slices", err)
	}
	wanted := map[string]*discoveryv1.EndpointSlice{}
	for _, g := range groups {
		s := slice(g)
		wanted[s.Metadata.Name] = s
	}
	var errs []error
	for _, live := range all.GetItems() {
		m := live.GetMetadata()
		want := wanted[m.GetName()]
		delete(wanted, m.GetName())
		switch {
		case want == nil:
			_, err = c.cfg.Client.EndpointSlices.Delete(ctx, &metav1.DeleteRequest{
				Namespace: m.GetNamespace(), Name: m.GetName(),
				Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &m.Uid}},
			})
		case slices.EqualFunc(live.GetEndpoints(), want.Endpoints, func(a, b *discoveryv1.Endpoint) bool {
			return proto.Equal(a, b)
		}) && slices.EqualFunc(live.GetPorts(), want.Ports, func(a, b *discoveryv1.EndpointPort) bool {
			return proto.Equal(a, b)
		}):
			continue
		default:
			next := object.Clone(live)
			next.Endpoints, next.Ports = want.Endpoints, want.Ports
			_, err = c.cfg.Client.EndpointSlices.Update(ctx, &discoveryv1rpc.UpdateEndpointSliceRequest{
				Namespace: m.GetNamespace(), Name: m.GetName(), Object: next,
			})
		}
		errs = append(errs, wrap("slice "+m.GetName(), err))
	}
	for name, s := range wanted {
		_, err := c.cfg.Client.EndpointSlices.Create(ctx, &discoveryv1rpc.CreateEndpointSliceRequest{Object: s})
		errs = append(errs, wrap("slice "+name, err))
	}
	return errors.Join(errs...)
}

// slice is the EndpointSlice of servers. Its name says the port and the family, since neither ever changes in it; that
// of the usual port is the name of the Service alone.
func slice(g together) *discoveryv1.EndpointSlice {
	const usual = 6443
	s := &discoveryv1.EndpointSlice{
		Metadata:    meta(map[string]string{serviceName: builtin.API, managedBy: manager}),
		AddressType: "IPv4",
		Ports: []*discoveryv1.EndpointPort{
			{Name: proto.String(portName), Port: proto.Int32(g.port), Protocol: proto.String("TCP")},
		},
	}
	if g.port != usual {
		s.Metadata.Name += "-" + strconv.Itoa(int(g.port))
	}
	if g.six {
		s.AddressType = "IPv6"
		s.Metadata.Name += "-ipv6"
	}
	for _, ip := range g.ips {
		s.Endpoints = append(s.Endpoints, &discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: &discoveryv1.EndpointConditions{Ready: proto.Bool(true)},
		})
	}
	return s
}

// leaseName is the name of the Lease of a server.
func leaseName(at netip.AddrPort) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(at.String()))
	return fmt.Sprintf("%s%016x", leasePrefix, h.Sum64())
}

// renew says that this server lives.
func (c *Controller) renew(ctx context.Context) error {
	at := c.at
	all := c.cfg.Client.Leases
	now := value.MicroTime(time.Now())
	live, err := all.Get(ctx, &metav1.GetRequest{Namespace: leases, Name: leaseName(at), ResourceVersion: "0"})
	if apierrors.Is(err, apierrors.NotFound) {
		_, err := all.Create(ctx, &coordinationv1rpc.CreateLeaseRequest{Object: &coordinationv1.Lease{
			Metadata: &metav1.ObjectMeta{
				Namespace: leases, Name: leaseName(at), Labels: map[string]string{identity: servers},
			},
			Spec: &coordinationv1.LeaseSpec{
				HolderIdentity: proto.String(at.String()), LeaseDurationSeconds: proto.Int32(int32(leaseTime / time.Second)),
				AcquireTime: now, RenewTime: now,
			},
		}})
		return err
	}
	if err != nil {
		return err
	}
	next := object.Clone(live)
	next.Spec.RenewTime = now
	_, err = all.Update(ctx, &coordinationv1rpc.UpdateLeaseRequest{
		Namespace: leases, Name: next.Metadata.Name, Object: next,
	})
	return err
}

// alive returns the servers that have given a sign of life of late, this one among them. The Lease of one that is
// silent for long is removed.
func (c *Controller) alive(ctx context.Context) ([]netip.AddrPort, error) {
	list, err := c.cfg.Client.Leases.List(ctx, &metav1.ListRequest{
		Namespace: leases, LabelSelector: identity + "=" + servers, ResourceVersion: "0",
	})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := []netip.AddrPort{c.at}
	seen := make(map[string]sign, len(list.GetItems()))
	for _, l := range list.GetItems() {
		m := l.GetMetadata()
		s, ok := c.seen[m.GetUid()]
		if !ok || s.revision != m.GetResourceVersion() {
			s = sign{m.GetResourceVersion(), now}
		}
		seen[m.GetUid()] = s
		at, err := netip.ParseAddrPort(l.GetSpec().GetHolderIdentity())
		switch silent := now.Sub(s.at); {
		case err != nil:
		case silent < leaseTime:
			out = append(out, at)
		case silent > 4*leaseTime:
			if _, err := c.cfg.Client.Leases.Delete(ctx, &metav1.DeleteRequest{
				Namespace: leases, Name: m.GetName(), Options: &metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{Uid: &m.Uid, ResourceVersion: &m.ResourceVersion},
				},
			}); err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) {
				return nil, err
			}
		}
	}
	c.seen = seen
	return out, nil
}

// end takes the Lease away, so that the others need not wait.
func (c *Controller) end(ctx context.Context) {
	if !c.cfg.Server.Shared || !c.at.IsValid() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	_, err := c.cfg.Client.Leases.Delete(ctx, &metav1.DeleteRequest{
		Namespace: leases, Name: leaseName(c.at),
	})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		c.cfg.Logger.Debug("the lease of the API server is left to end by itself", "error", err)
	}
}

func this() *metav1.GetRequest {
	return &metav1.GetRequest{Namespace: builtin.Default, Name: builtin.API, ResourceVersion: "0"}
}

func meta(labels map[string]string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: builtin.Default, Name: builtin.API, Labels: labels}
}

// wrap says what err is about. Another server may have written the same at the same time: the next look tells.
func wrap(what string, err error) error {
	if err == nil || apierrors.Is(err, apierrors.AlreadyExists) || apierrors.Is(err, apierrors.Conflict) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
