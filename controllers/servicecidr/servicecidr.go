// Package servicecidr is the controller of ServiceCIDRs, the ranges that cluster IPs of Services come from.
//
// It makes the one called "kubernetes", of the ranges that the server was started with, and makes it again when it
// is gone. One that says something else stays as it is, of which an event and the log tell, but that a range of the
// other family joins a single one.
//
// A ServiceCIDR that is deleted stays, with condition Ready "False" and reason Terminating, while there is an
// IPAddress of a Service in it that is in no other one which stays:
//
//	made --> finalizer --> deleted --> Terminating while addresses are in use --> endAfter --> gone
//
// What it guarantees: no address is left outside of all ranges, as long as what gives addresses sees a deletion within
// endAfter. Two ranges that share addresses and are deleted together both stay.
//
// What it does not do: it gives out no addresses. Services have those of the ranges of the server alone, so that no
// other ServiceCIDR becomes Ready.
package servicecidr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/rights"
)

const (
	// byDefault is the range of the server.
	byDefault = "kubernetes"
	// finalizer keeps a range until none of its addresses is in use.
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// endAfter is how long a range that is deleted stays at least.
	endAfter = 10 * time.Second

	// managedBy is the label of an IPAddress that says who keeps it; allocator, that it is a Service's.
	managedBy = "ipaddress.kubernetes.io/managed-by"
	allocator = "ipallocator.k8s.io"

	ready = "Ready"
)

type (
	serviceCIDR = networkingv1.ServiceCIDR
	ipAddress   = networkingv1.IPAddress
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "service-cidrs",
		Grants: []rights.Grant{
			{Verbs: rights.Read + " create update", Resources: "servicecidrs"},
			{Verbs: "update", Resources: "servicecidrs/status"},
			{Verbs: rights.Read, Resources: "ipaddresses"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Ranges: e.Settings.ServiceRanges, Logger: e.Logger})
		},
	}
}

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:service-cidrs.
	Client *client.Client
	// Ranges are those of the server: one, or two of different families; without any there is no default ServiceCIDR.
	Ranges []netip.Prefix
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps ServiceCIDRs. Run starts it.
type Controller struct {
	api    *client.Client
	logger *slog.Logger
	// cidrs are the ranges of the server, as they are written.
	cidrs     []string
	events    *record.Recorder
	ranges    *cache.Cache[*serviceCIDR]
	addresses *cache.Cache[*ipAddress]
	synced    atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("servicecidr: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{api: cfg.Client, logger: cfg.Logger, events: record.New(record.Config{
		Events: cfg.Client.Events, Controller: "service-cidr-controller", Logger: cfg.Logger,
	})}
	for _, r := range cfg.Ranges {
		c.cidrs = append(c.cidrs, r.String())
	}
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("controller of service ranges: reading the ServiceCIDRs")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.ranges = cache.New(cache.Config[*serviceCIDR]{
		Source: cache.Watch(c.api.ServiceCIDRs.Watch), Logger: c.logger,
	})
	c.addresses = cache.New(cache.Config[*ipAddress]{
		Source: cache.Watch(c.api.IPAddresses.Watch), Logger: c.logger,
	})
	queue := loop.New(loop.Config[string]{Name: "servicecidr", Reconcile: c.reconcile, Logger: c.logger})
	// What changes may end what a range waits for, or give it something to wait for.
	waiting := func() {
		for _, o := range c.ranges.List("", nil) {
			if deleting(o) {
				queue.Add(o.GetMetadata().GetName())
			}
		}
	}
	changed := func(o *serviceCIDR) {
		queue.Add(o.GetMetadata().GetName())
		waiting()
	}
	c.ranges.AddHandler(cache.Handler[*serviceCIDR]{
		OnAdd: changed, OnUpdate: func(_, o *serviceCIDR) { changed(o) }, OnDelete: changed,
	})
	c.addresses.AddHandler(cache.Handler[*ipAddress]{
		OnAdd: func(*ipAddress) { waiting() }, OnDelete: func(*ipAddress) { waiting() },
	})
	queue.Add(byDefault)
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.ranges, c.addresses},
		c.ranges.Run, c.addresses.Run, c.events.Run)
}

// reconcile does the next thing that a range needs. What is written brings it here again.
func (c *Controller) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	o, ok := c.ranges.Get("", name)
	switch {
	case !ok && name == byDefault && len(c.cidrs) > 0:
		err = c.make(ctx)
	case !ok:
	case deleting(o):
		return c.end(ctx, o)
	case !slices.Contains(o.GetMetadata().GetFinalizers(), finalizer):
		next := object.Clone(o)
		next.Metadata.Finalizers = append(next.Metadata.Finalizers, finalizer)
		err = c.update(ctx, next)
	case name == byDefault:
		err = c.keep(ctx, o)
	}
	return 0, err
}

func (c *Controller) update(ctx context.Context, next *serviceCIDR) error {
	_, err := c.api.ServiceCIDRs.Update(ctx, &networkingv1rpc.UpdateServiceCIDRRequest{Object: next})
	return err
}

func (c *Controller) make(ctx context.Context) error {
	_, err := c.api.ServiceCIDRs.Create(ctx, &networkingv1rpc.CreateServiceCIDRRequest{Object: &serviceCIDR{
		Metadata: &metav1.ObjectMeta{Name: byDefault, Finalizers: []string{finalizer}},
		Spec:     &networkingv1.ServiceCIDRSpec{Cidrs: c.cidrs},
	}})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return nil
	}
	return err
}

// keep says that the default range is in use, if it is that of the server.
func (c *Controller) keep(ctx context.Context, o *serviceCIDR) error {
	is := o.GetSpec().GetCidrs()
	switch {
	case slices.Equal(is, c.cidrs):
		return c.say(ctx, o, &metav1.Condition{
			Type: ready, Status: "True", Message: "Services have addresses of this range",
		})
	case len(is) == 1 && len(c.cidrs) == 2 && is[0] == c.cidrs[0]:
		next := object.Clone(o)
		next.Spec.Cidrs = c.cidrs
		return c.update(ctx, next)
	}
	text := fmt.Sprintf("the ServiceCIDR %s has %s, but Services have addresses of %s, with which the server was started",
		byDefault, strings.Join(is, ","), strings.Join(c.cidrs, ","))
	c.logger.Warn(text)
	c.events.Event(o, record.Warning, "KubernetesDefaultServiceCIDRInconsistent", "Comparing", text)
	return nil
}

// end lets a range go once no Service has an address of it that is in no other one.
func (c *Controller) end(ctx context.Context, o *serviceCIDR) (again time.Duration, err error) {
	m := o.GetMetadata()
	switch left := time.Until(value.GoTime(m.GetDeletionTimestamp()).Add(endAfter)); {
	case !slices.Contains(m.GetFinalizers(), finalizer):
		return 0, nil
	case c.inUse(o):
		return 0, c.say(ctx, o, &metav1.Condition{
			Type: ready, Status: "False", Reason: "Terminating",
			Message: "Services have addresses that are in no other ServiceCIDR: it stays until they go, or are in another",
		})
	case left > 0:
		return left, nil
	}
	next := object.Clone(o)
	next.Metadata.Finalizers = slices.DeleteFunc(next.Metadata.Finalizers, func(f string) bool { return f == finalizer })
	return 0, c.update(ctx, next)
}

// inUse says whether a Service has an address of the range that is in no other one which stays.
func (c *Controller) inUse(o *serviceCIDR) bool {
	stay := slices.DeleteFunc(c.ranges.List("", nil), func(r *serviceCIDR) bool { return deleting(r) })
	return slices.ContainsFunc(c.addresses.List("", nil), func(a *ipAddress) bool {
		m := a.GetMetadata()
		addr, err := netip.ParseAddr(m.GetName())
		return err == nil && m.GetLabels()[managedBy] == allocator && contains(o, addr) &&
			!slices.ContainsFunc(stay, func(r *serviceCIDR) bool { return contains(r, addr) })
	})
}

func deleting(o *serviceCIDR) bool { return o.GetMetadata().GetDeletionTimestamp() != nil }

// contains says whether an address is in a range.
func contains(o *serviceCIDR, addr netip.Addr) bool {
	return slices.ContainsFunc(o.GetSpec().GetCidrs(), func(text string) bool {
		r, err := netip.ParsePrefix(text)
		return err == nil && r.Contains(addr)
	})
}

// say writes a condition, unless the range has it.
func (c *Controller) say(ctx context.Context, o *serviceCIDR, is *metav1.Condition) error {
	next := object.Clone(o)
	if next.Status == nil {
		next.Status = &networkingv1.ServiceCIDRStatus{}
	}
	list := next.Status.Conditions
	i := slices.IndexFunc(list, func(was *metav1.Condition) bool { return was.GetType() == is.Type })
	is.LastTransitionTime = value.Time(time.Now())
	switch {
	case i < 0:
		next.Status.Conditions = append(list, is)
	case list[i].GetStatus() == is.Status && list[i].GetReason() == is.Reason && list[i].GetMessage() == is.Message:
		return nil
	default:
		if list[i].GetStatus() == is.Status {
			is.LastTransitionTime = list[i].GetLastTransitionTime()
		}
		list[i] = is
	}
	_, err := c.api.ServiceCIDRs.UpdateStatus(ctx, &networkingv1rpc.UpdateServiceCIDRRequest{Object: next})
	return err
}
