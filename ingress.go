package monoplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"monoplane.dev/controllers/controller"
	"monoplane.dev/nodeagent/hostinfo"
)

// IngressConfig says where requests for Ingresses arrive. Without an address none is served; see docs/ingress.md.
type IngressConfig struct {
	// HTTP and HTTPS are addresses of this machine, such as "127.0.0.1:8080"; port 0 picks a free one. Each may be empty.
	HTTP, HTTPS string
}

func (i IngressConfig) on() bool { return i.HTTP != "" || i.HTTPS != "" }

// checkIngress says what is wrong with serving Ingresses. The controllers are those that were chosen.
func (cfg *Config) checkIngress() error {
	if !cfg.Ingress.on() || slices.ContainsFunc(cfg.controllers, func(d controller.Declaration) bool {
		return d.Name == ingressController
	}) {
		return nil
	}
	return fmt.Errorf("to serve Ingresses needs the controller %q, which is not among those that run", ingressController)
}

// ingressController is the name of the controller that serves Ingresses.
const ingressController = "ingress"

// listenIngress opens the listeners for requests, which the controller closes, and Stop.
func (c *Cluster) listenIngress(ctx context.Context) error {
	var addresses []netip.Addr
	for _, l := range []struct {
		what, address string
		listener      *net.Listener
	}{{"HTTP", c.cfg.Ingress.HTTP, &c.ingress.HTTP}, {"HTTPS", c.cfg.Ingress.HTTPS, &c.ingress.HTTPS}} {
		if l.address == "" {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", l.address)
		if err != nil {
			return fmt.Errorf("%s for Ingresses: %w", l.what, err)
		}
		c.onStop(func(context.Context) error {
			if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		*l.listener = listener
		addresses = append(addresses, reachable(listener.Addr())...)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	c.ingress.Addresses, c.ingress.Dial = slices.Compact(addresses), dialPod(c.cfg.Runtime)
	return nil
}

// reachable returns where a listener is reached: at its own address, or, where that is every one, at the first of the
// machine.
func reachable(a net.Addr) []netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return nil
	}
	addr := at.Addr().Unmap().WithZone("")
	if !addr.IsUnspecified() {
		return []netip.Addr{addr}
	}
	for _, text := range hostinfo.Addresses() {
		if addr, err := netip.ParseAddr(text); err == nil {
			return []netip.Addr{addr}
		}
	}
	return nil
}

// dialPod returns what connects to pods' addresses.
func dialPod(r Runtime) func(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error) {
	dial := new(net.Dialer).DialContext
	if n, ok := r.(Networked); ok {
		dial = n.DialPod
	}
	return func(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error) {
		return dial(ctx, network, at.String())
	}
}

// IngressAddresses returns where requests for Ingresses arrive, each empty where there is no such listener.
func (c *Cluster) IngressAddresses() (http, https string) {
	if c.ingress.HTTP != nil {
		http = c.ingress.HTTP.Addr().String()
	}
	if c.ingress.HTTPS != nil {
		https = c.ingress.HTTPS.Addr().String()
	}
	return http, https
}
