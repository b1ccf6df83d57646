package ocinode

import (
	"context"
	"errors"
	"fmt"
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
	p.wanted = all
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
		wanted := p.wanted
		p.mu.Unlock()
		var again <-chan time.Time
		if !p.set(ctx, wanted) {
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
	for w, port := range p.open {
		if !keep[w] {
			_ = port.Close()
			delete(p.open, w)
		}
	}
	for w := range p.said {
		if !keep[w] {
			delete(p.said, w)
		}
	}
	all, results := true, make(map[proxy.Port]error, len(wanted))
	for _, w := range wanted {
		results[w] = nil
		if p.open[w] != nil {
			continue
		}
		listen := w.Listen
		if !listen.Addr().IsValid() {
			listen = netip.AddrPortFrom(netip.IPv6Unspecified(), listen.Port())
		}
		port, err := p.ns.ServePort(ctx, nodens.PortConfig{Network: w.Network, Listen: listen, Target: p.target(w.Target)})
		if err == nil {
			p.open[w] = port
			delete(p.said, w)
			continue
		}
		all, results[w] = false, err
		if !p.said[w] {
			p.log.Warn("a port of a Service cannot be served on this machine; it is tried again", "port", listen,
				"network", w.Network, "error", err)
			p.said[w] = true
		}
	}
	p.served(results)
	return all
}

// target leads clients to the Service's address, or to the namespace's own of the client's family.
func (p *ports) target(to netip.AddrPort) func(netip.AddrPort) (netip.AddrPort, error) {
	return func(client netip.AddrPort) (netip.AddrPort, error) {
		if to.Addr().IsValid() {
			return to, nil
		}
		for _, r := range p.ranges {
			if own, _ := nodens.NodeAddresses(r); own.Is4() == client.Addr().Unmap().Is4() {
				return netip.AddrPortFrom(own, to.Port()), nil
			}
		}
		if len(p.ranges) == 0 {
			return netip.AddrPort{}, errors.New("the node has no range of addresses")
		}
		// Pods have addresses of the other family only: the client is led there by one of the namespace's.
		own, _ := nodens.NodeAddresses(p.ranges[0])
		return netip.AddrPortFrom(own, to.Port()), nil
	}
}

func (p *ports) close() {
	for _, port := range p.open {
		if err := port.Close(); err != nil {
			p.log.Warn("a port of a Service cannot be closed", "error", fmt.Errorf("%v: %w", port.Addr(), err))
		}
	}
}
