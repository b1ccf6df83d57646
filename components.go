package monoplane

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/scheduler"
)

func check(name string, run func() error) rest.Check {
	return rest.Check{Name: name, Run: func(context.Context) error { return run() }}
}

// startComponents starts the scheduler, the controllers and the agents, each with an identity of its own.
func (c *Cluster) startComponents(ctx, running context.Context, p *parts) error {
	start := func(name string, part controller.Component, err error) error {
		if err == nil {
			c.run(running, name, part.Run)
			c.checks = append(c.checks, check(name, part.Ready))
		}
		return err
	}
	as := &authn.User{Name: authn.SchedulerName, Groups: []string{authn.AuthenticatedGroup}}
	part, err := c.newScheduler(p.clientOf(as), p.metrics)
	if err := start("scheduler", part, err); err != nil {
		return err
	}
	here := c.cfg.controllers
	if len(c.cfg.EtcdEndpoints) > 0 {
		here = slices.DeleteFunc(slices.Clone(here), func(d controller.Declaration) bool { return !d.EveryServer })
		l, err := c.newLeadership(p)
		if err := start("controllers", l, err); err != nil {
			return err
		}
	}
	parts, err := c.newControllers(p, here, p.metrics, p.controller)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := start(part.name, part, nil); err != nil {
			return err
		}
	}
	for i, name := range c.cfg.nodeNames() {
		if slices.Contains(c.refusedNodes, name) {
			continue
		}
		if err := c.startAgent(ctx, running, p, i, name); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	if c.cfg.Runtime.Simulated() {
		c.run(running, "watch of the nodes", func(ctx context.Context) error {
			return c.watchNodes(ctx,
				p.controller("simulatednodes"))
		})
	}
	c.watchMachine(running)
	c.checks = append(c.checks, check("shutdown", c.shutdown), check("nodes", c.nodesReady))
	return nil
}

// component is a component with its name, and what takes the metrics of its work queues.
type component struct {
	controller.Component

	name    string
	metrics prometheus.Registerer
}

// Run implements controller.Component.
func (c component) Run(ctx context.Context) error {
	return c.Component.Run(controller.WithRegisterer(ctx, c.metrics))
}

// newControllers makes controllers, and what feeds the caches that they share. clientOf returns the client of one.
func (c *Cluster) newControllers(
	p *parts, declared []controller.Declaration, metrics prometheus.Registerer, clientOf func(name string) *client.Client,
) ([]component, error) {
	var rootCA func() []byte
	var sign func(*x509.Certificate) ([]byte, error)
	if p.bundle != nil {
		rootCA, sign = p.bundle.CA, p.bundle.Sign
	}
	shared := controller.NewShared(clientOf(controller.SharedRole().Name), c.cfg.Logger)
	var out []component
	for _, d := range declared {
		part, err := d.New(controller.Env{
			Client: clientOf(d.Name), Shared: shared, Logger: c.cfg.Logger, Registerer: metrics, RootCA: rootCA,
			Sign: sign, Tokens: p.tokens,
			Settings: controller.Settings{
				TerminatedPodGCThreshold: c.cfg.TerminatedPodGCThreshold, NodeLifecycle: c.cfg.NodeLifecycle,
				Server: c.server(p), PodRanges: c.cfg.podRanges, Ingress: c.ingress,
				ServiceRanges:       c.cfg.services.Prefixes(),
				DefaultStorageClass: c.cfg.DefaultStorageClass, RemoveVolume: p.broker.RemoveVolume,
			},
		})
		if err != nil {
			return nil, err
		}
		out = append(out, component{part, d.Name, metrics})
	}
	return append(out, component{shared, "shared caches", metrics}), nil
}

// server says how the API is reached by programs in the cluster.
func (c *Cluster) server(p *parts) controller.Server {
	s := controller.Server{ClusterIP: c.cfg.services.API(), Shared: len(c.cfg.EtcdEndpoints) > 0}
	at, err := netip.ParseAddrPort(c.sockets.REST())
	if err != nil {
		return s
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	s.Reached = func() netip.AddrPort {
		now := c.reached(at, s.ClusterIP.Is4())
		if now.IsValid() && p.bundle != nil {
			p.bundle.Cover(now.Addr())
		}
		return now
	}
	return s
}

// reached says where programs in the cluster reach what listens at an address: there; where that is everywhere, at the
// address of the machine; and where it is the loopback, which each pod with a network of its own has for itself, where
// this network leads there. Of several it is one of the family of the API's Service, if there is one. It is not valid
// while the network has not said.
func (c *Cluster) reached(at netip.AddrPort, is4 bool) netip.AddrPort {
	all := []netip.AddrPort{at}
	if at.Addr().IsUnspecified() {
		all = nil
		for _, text := range hostinfo.Addresses() {
			if addr, err := netip.ParseAddr(text); err == nil {
				all = append(all, netip.AddrPortFrom(addr, at.Port()))
			}
		}
	}
	loopback := func(at netip.AddrPort) bool { return at.Addr().IsLoopback() }
	serves := c.hasNetwork() && len(c.refusedNodes) < len(c.cfg.nodeNames())
	if serves && !slices.ContainsFunc(all, func(at netip.AddrPort) bool { return !loopback(at) }) {
		all = nil
		if inPods := c.inPods.Load(); inPods != nil {
			all = *inPods
		}
	}
	if i := slices.IndexFunc(all, func(at netip.AddrPort) bool { return at.Addr().Is4() == is4 }); i > 0 {
		return all[i]
	}
	if len(all) == 0 {
		return netip.AddrPort{}
	}
	return all[0]
}

// errEnded is the error of a component that ends without having been asked to.
var errEnded = errors.New("ended by itself")

// run runs f until running ends. Any other end of f ends the cluster.
func (c *Cluster) run(running context.Context, name string, f func(context.Context) error) {
	c.group.Go(func() error {
		err := f(running)
		if running.Err() != nil {
			return running.Err() // a wanted end, which Stop does not report
		}
		if err == nil {
			err = errEnded
		}
		err = fmt.Errorf("%s: %w", name, err)
		c.finish(err)
		return err
	})
}

func (p *parts) controller(name string) *client.Client { return p.clientOf(controllerUser(name)) }

func controllerUser(name string) *authn.User {
	return &authn.User{Name: authn.ControllerPrefix + name, Groups: []string{authn.AuthenticatedGroup}}
}

// newScheduler returns the scheduler of the cluster.
func (c *Cluster) newScheduler(api *client.Client, metrics prometheus.Registerer) (controller.Component, error) {
	cfg := scheduler.Config{Client: api, Logger: c.cfg.Logger, Registerer: metrics}
	if file := c.cfg.scheduling; file != nil {
		profiles, err := file.Profiles(api)
		if err != nil {
			return nil, err
		}
		cfg.Profiles, cfg.InitialBackoff, cfg.MaxBackoff = profiles, file.InitialBackoff, file.MaxBackoff
	}
	return scheduler.New(cfg)
}
