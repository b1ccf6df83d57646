package ocinode

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/proxy"
)

// retryPorts is the wait before ports that are taken by others are tried again.
const retryPorts = 10 * time.Second

// ports serves the ports of the machine that lead to Services.
type ports struct {
	ns     *nodens.Namespace
	ranges []netip.Prefix
	log    *slog.Logger
	// served is told after each look which ports are served: an error for those that are not. Set before run.
	served func(map[proxy.Port]error)

	mu     sync.Mutex
	wanted []proxy.Port
	told   bool
	wake   chan struct{}

	// What follows belongs to run.
	open map[proxy.Port]*nodens.Port
	said map[proxy.Port]bool
}

func newPorts(ns *nodens.Namespace, ranges []netip.Prefix, log *slog.Logger) *ports {
	return &ports{ns: ns, ranges: ranges, log: log, wake: make(chan struct{}, 1),
		open: map[proxy.Port]*nodens.Port{}, said: map[proxy.Port]bool{}}
}

// want is told which ports there are to be.
func (p *ports) want(all []proxy.Port) {
	p.mu.Lock()
	p.wanted, p.told = all, true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run opens and closes ports until ctx ends.
func (p *ports) run(ctx context.Context) error {
	for {
		p.mu.Lock()
		wanted, told := p.wanted, p.told
		p.mu.Unlock()
		var again <-chan time.Time
		// Before it is known what is wanted, nothing ends that a server before has served.
		if told && !p.set(ctx, wanted) {
			again = time.After(retryPorts)
		}
		select {
		case <-p.wake:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// set opens what is wanted and not open, and closes what is not wanted. It tells whether all are open that can be.
func (p *ports) set(ctx context.Context, wanted []proxy.Port) bool {
	keep := map[proxy.Port]bool{}
	for _, w := range wanted {
		keep[w] = true
	}
	var end []*nodens.Port
	for w, port := range p.open {
		if !keep[w] {
			end = append(end, port)
			delete(p.open, w)
		}
	}
	for w := range p.said {
		if !keep[w] {
			delete(p.said, w)
		}
	}
	all, results := true, make(map[proxy.Port]error, len(wanted))
	var new []proxy.Port
	var begin []nodens.PortConfig
	for _, w := range wanted {
		results[w] = nil
		if p.open[w] == nil {
			new, begin = append(new, w), append(begin, p.config(w))
		}
	}
	opened, errs := p.ns.ChangePorts(ctx, end, begin)
	for i, w := range new {
		err := errs[i]
		if err == nil {
			p.open[w] = opened[i]
			delete(p.said, w)
			continue
		}
		all, results[w] = false, err
		if !p.said[w] {
			p.log.Warn("a port of a Service cannot be served on this machine; it is tried again", "port", begin[i].Listen,
				"network", w.Network, "error", err)
			p.said[w] = true
		}
	}
	p.served(results)
	return all
}

// config leads clients to the Service's address, or to the namespace's own of their family. Where pods have addresses
// of the other family only, that is the other one.
func (p *ports) config(w proxy.Port) nodens.PortConfig {
	cfg := nodens.PortConfig{Network: w.Network, Listen: w.Listen, Arrival: w.Arrival}
	if !w.Listen.Addr().IsValid() {
		cfg.Listen = netip.AddrPortFrom(netip.IPv6Unspecified(), w.Listen.Port())
	}
	if w.Target.Addr().IsValid() {
		cfg.Targets = []netip.AddrPort{w.Target}
		return cfg
	}
	for _, r := range p.ranges {
		own, _ := nodens.NodeAddresses(r)
		cfg.Targets = append(cfg.Targets, netip.AddrPortFrom(own, w.Target.Port()))
	}
	return cfg
}

// close has the kernel alone lead clients, to those who serve the ports next.
func (p *ports) close() {
	for _, port := range p.open {
		port.Release()
	}
}
