package ocinode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/share"
	"monoplane.dev/nodeagent/network"
	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/proxy"
)

const (
	dnsPort = 53
	// mostConns bounds the connections of pods to the API, whose buffers of copySize take memory: 64 MiB in all.
	mostConns = 2048
	copySize  = 16 << 10
)

// session is what goes on in a node namespace while that is the node's.
type session struct {
	node network.Node
	log  *slog.Logger
}

// run serves Services, names and the API in a node namespace until ctx ends.
func (s *session) run(ctx context.Context, ns *nodens.Namespace, ranges []netip.Prefix) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Without root that is so everywhere: Limits says it.
	if status := ns.Status(); status.Why != "" && !status.Rootless && s.node.Warn != nil {
		s.node.Warn("NotForwarded", "Pods reach out through this process, because "+status.Why+
			". They cannot ping what is outside, nor send it anything but TCP and UDP.")
	}
	group, ctx := errgroup.WithContext(ctx)
	cfg := proxy.Config{
		Client: s.node.Client, NodeName: s.node.Name, ClusterDomain: s.node.ClusterDomain, DNSService: s.node.DNS,
		NFTables: ns.NFTables, Netfilter: ns.Netfilter, PodRanges: ranges, Own: ns.LeadPods, Logger: s.log,
		HealthListener: func(ctx context.Context, port uint16) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprint(":", port))
		},
	}
	room := share.NewRoom[netip.Addr](connsOfPods())
	defer func() {
		for _, p := range cfg.Packets {
			_ = p.Close()
		}
		for _, l := range cfg.Listeners {
			_ = l.Close()
		}
	}()
	for _, r := range ranges {
		if !ns.Status().Rootless {
			cfg.Arrivals = append(cfg.Arrivals, nodens.ArrivalAddress(r))
		}
		own, _ := nodens.NodeAddresses(r)
		packets, err := ns.ListenPacket(ctx, netip.AddrPortFrom(own, dnsPort))
		if err != nil {
			return fmt.Errorf("names cannot be answered on %s: %w", own, err)
		}
		cfg.Packets = append(cfg.Packets, packets)
		listener, err := ns.Listen(ctx, netip.AddrPortFrom(own, dnsPort))
		if err != nil {
			return fmt.Errorf("names cannot be answered on %s: %w", own, err)
		}
		cfg.Listeners = append(cfg.Listeners, listener)
		if !s.node.API.IsValid() {
			continue
		}
		// In each family: the Service kubernetes has one of them, whatever the order is of the pods' ranges.
		api, err := listenForAPI(ctx, ns, netip.AddrPortFrom(own, s.node.API.Port()))
		if err != nil {
			return fmt.Errorf("the API cannot be reached from pods: %w", err)
		}
		cfg.API = append(cfg.API, api.Addr().(*net.TCPAddr).AddrPort())
		group.Go(func() error { return forward(ctx, api, room, s.node.API) })
	}
	if len(cfg.API) > 0 {
		s.node.Reached(cfg.API)
	}
	ports := newPorts(ns, ranges, s.log)
	defer ports.close()
	cfg.Ports = ports.want
	p, err := proxy.New(cfg)
	if err == nil {
		ports.served = p.Served
		group.Go(func() error { return p.Run(ctx) })
		group.Go(func() error { return ports.run(ctx) })
		err = group.Wait()
	}
	return err
}

// listener is what listenForAPI needs of a node namespace.
type listener interface {
	Listen(ctx context.Context, address netip.AddrPort) (net.Listener, error)
}

// listenForAPI listens on the API's port, or on another where the kernel has given that one to the pods' way out.
func listenForAPI(ctx context.Context, ns listener, address netip.AddrPort) (net.Listener, error) {
	l, err := ns.Listen(ctx, address)
	if errors.Is(err, unix.EADDRINUSE) {
		l, err = ns.Listen(ctx, netip.AddrPortFrom(address.Addr(), 0))
	}
	return l, err
}

// descriptorsOfConn is how many descriptors a connection to the API takes here, its two sockets.
const descriptorsOfConn = 2

// connsOfPods is how many connections to the API pods may have: their half of what pods may hold of their node's
// services, and of the server's listener, to which all of them come from one address, half.
func connsOfPods() int {
	return min(mostConns, descriptors.Services.Count()/2/descriptorsOfConn, descriptors.Listener.Count()/2)
}

// forward passes connections on to an address of the machine, until ctx ends or the listener is closed. The clients
// share room.
func forward(ctx context.Context, from net.Listener, room *share.Room[netip.Addr], to netip.AddrPort) error {
	from = share.Listen(from, room, share.Address)
	defer from.Close()
	stop := context.AfterFunc(ctx, func() { _ = from.Close() })
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		in, err := from.Accept()
		if err != nil {
			return ctx.Err() // It was closed: no other error comes here.
		}
		open.Go(func() { pass(ctx, in, to) })
	}
}

// pass copies both ways until both sides have said all, or ctx ends. It does so without splice, whose pipes a
// connection would have as well, and Go would keep them when it has ended.
func pass(ctx context.Context, in net.Conn, to netip.AddrPort) {
	defer in.Close()
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.CopyBuffer(struct{ io.Writer }{way[1]}, struct{ io.Reader }{way[0]}, make([]byte, copySize))
			if half, ok := way[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
