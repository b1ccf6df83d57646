package monoplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"monoplane.dev/client"
	"monoplane.dev/client/election"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers"
	"monoplane.dev/controllers/controller"
)

// The Lease of the server whose controllers work, where several share an etcd.
const (
	leaseNamespace = "kube-system"
	leaseName      = "monoplane-controllers"
)

// leadership runs the controllers while this server leads, of those that share an etcd. Each term has controllers of
// its own: those of the one before may still be about to end when they are asked to, and know what was true then.
type leadership struct {
	cluster  *Cluster
	parts    *parts
	identity string
	elector  *election.Elector
	recorder *record.Recorder

	mu sync.Mutex
	// working are the controllers of this term; none while another server leads.
	working []component
}

// newLeadership returns what runs the controllers while this server leads.
func (c *Cluster) newLeadership(p *parts) (*leadership, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the name of this machine: %w", err)
	}
	id, api := host+"_"+rand.Text(), p.controller(controllers.Election)
	l := &leadership{cluster: c, parts: p, identity: id, recorder: record.New(record.Config{
		Events: api.Events, Controller: leaseName, Instance: id, Logger: c.cfg.Logger,
	})}
	l.elector, err = election.New(election.Config{
		Leases: api.Leases, Namespace: leaseNamespace, Name: leaseName, Identity: id, Times: c.cfg.LeaderElection,
		Recorder: l.recorder, Logger: c.cfg.Logger,
	})
	return l, err
}

// Run works until ctx ends, or a controller ends by itself.
func (l *leadership) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.recorder.Run(ctx) })
	g.Go(func() error { return l.elector.Run(ctx, l.lead) })
	return g.Wait()
}

// Ready returns nil once the controllers work here, or another server leads.
func (l *leadership) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder := l.elector.Holder(); l.working == nil && (holder == "" || holder == l.identity) {
		return errors.New("no server is known that leads")
	}
	for _, part := range l.working {
		if err := part.Ready(); err != nil {
			return err
		}
	}
	return nil
}

// lead runs the controllers for a term.
func (l *leadership) lead(ctx context.Context, term *election.Term) error {
	metrics := &registered{Registerer: l.parts.metrics}
	defer metrics.unregister()
	led := slices.DeleteFunc(slices.Clone(l.cluster.cfg.controllers),
		func(d controller.Declaration) bool { return d.EveryServer })
	all, err := l.cluster.newControllers(l.parts, led, metrics, func(name string) *client.Client {
		return client.New(term.Conn(l.parts.connOf(controllerUser(name))))
	})
	if err != nil {
		return err
	}
	l.work(all)
	defer l.work(nil)
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range all {
		g.Go(func() error {
			if err := part.Run(ctx); ctx.Err() == nil {
				return fmt.Errorf("%s: %w", part.name, cmp.Or(err, errEnded))
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// work notes which controllers work.
func (l *leadership) work(all []component) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = all
}

// registered registers metrics that are given back together.
type registered struct {
	prometheus.Registerer

	mu  sync.Mutex
	all []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (r *registered) Register(c prometheus.Collector) error {
	if err := r.Registerer.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *registered) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// unregister gives all of them back.
func (r *registered) unregister() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		r.Unregister(c)
	}
}
