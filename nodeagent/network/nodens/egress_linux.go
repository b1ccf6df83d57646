package nodens

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/share"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// egress is the way out through this process. The rules of the node namespace hand it what pods send elsewhere, with
// the addresses that the pod wrote on it.
type egress struct {
	tcp   []*relay
	udp   []*net.UDPConn
	asked *questions // Nil where the kernel cannot ask.
	done  sync.WaitGroup
	*flows
	stop context.CancelFunc
}

// serveEgress listens for what pods send out, and writes into setup where.
func (n *Namespace) serveEgress(ctx context.Context, setup *wire.Setup) (_ *egress, err error) {
	work, stop := context.WithCancel(n.work)
	e := &egress{stop: stop, flows: newFlows(n.passage)}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.asked, err = n.askFirst(ctx, work, n.dialOut); err != nil {
		n.cfg.Log.Info("connections of pods to elsewhere are accepted before they are made", "error", err)
	} else {
		setup.Queue = e.asked.number
	}
	for _, r := range n.cfg.PodRanges {
		// An address of the node's own, so that only what is handed on by the rules is taken for what they hand on.
		node, _ := NodeAddresses(r)
		own := netip.AddrPortFrom(node, 0)
		l, err := n.listen(ctx, own, true)
		if err != nil {
			return nil, fmt.Errorf("the way out of the pods: %w", err)
		}
		dial := func(ctx context.Context, from net.Conn) (net.Conn, error) {
			f := flow{
				client: from.RemoteAddr().(*net.TCPAddr).AddrPort(), target: from.LocalAddr().(*net.TCPAddr).AddrPort(),
			}
			if to := e.asked.take(f); to != nil {
				return to, nil
			}
			return n.dialOut(ctx, f.target)
		}
		e.tcp = append(e.tcp, newRelay(work, l, n.passage, share.Address, dial))
		packets, err := n.listenPacket(ctx, wire.Socket{Bind: own, Transparent: true, Original: true})
		if err != nil {
			return nil, fmt.Errorf("the way out of the pods: %w", err)
		}
		e.udp = append(e.udp, packets)
		setup.TCP = append(setup.TCP, l.Addr().(*net.TCPAddr).AddrPort())
		setup.UDP = append(setup.UDP, packets.LocalAddr().(*net.UDPAddr).AddrPort())
		e.done.Go(func() { n.forwardPackets(work, e, packets) })
	}
	return e, nil
}

// dialOut connects to where a pod wants to go.
func (n *Namespace) dialOut(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	for _, r := range n.cfg.PodRanges {
		if node, _ := NodeAddresses(r); to.Addr() == node {
			return nil, fmt.Errorf("nobody but pods' way out is at %s: %w", to, unix.ECONNREFUSED)
		}
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

func (e *egress) close() {
	e.stop()
	e.asked.close()
	for _, r := range e.tcp {
		r.close()
	}
	for _, c := range e.udp {
		c.Close()
	}
	e.done.Wait()
	e.end()
}

// forwardPackets begins flows. Once a flow has sockets of its own, its packets come to those.
func (n *Namespace) forwardPackets(ctx context.Context, e *egress, packets *net.UDPConn) {
	own := packets.LocalAddr().(*net.UDPAddr).AddrPort()
	receivePackets(ctx, packets, originalTarget, func(client, target netip.AddrPort, packet []byte) {
		if target == own {
			return
		}
		e.send(ctx, flow{client: client, target: target}, packet, func(ctx context.Context) (near, far net.Conn, err error) {
			var d net.Dialer
			if far, err = d.DialContext(ctx, "udp", target.String()); err != nil {
				return nil, nil, err
			}
			if near, err = n.Dial(ctx, "udp", target, client); err != nil {
				far.Close()
				return nil, nil, err
			}
			return near, far, nil
		})
	})
}

// receivePackets calls f with each packet, until the context ends.
func receivePackets(ctx context.Context, packets *net.UDPConn, target func(oob []byte) (netip.AddrPort, bool),
	f func(client, target netip.AddrPort, packet []byte)) {
	stop := context.AfterFunc(ctx, func() { packets.Close() })
	defer stop()
	buf, oob := make([]byte, mostPacket), make([]byte, 128)
	for {
		n, oobn, _, client, err := packets.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // What came back to a socket that sends nothing itself.
		}
		if to, ok := target(oob[:oobn]); ok {
			f(netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), to, buf[:n])
		}
	}
}

// originalTarget reads where a packet was going.
func originalTarget(oob []byte) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range messages {
		sa, err := unix.ParseOrigDstAddr(&m)
		if err != nil {
			continue
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
		case *unix.SockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), true
		}
	}
	return netip.AddrPort{}, false
}
