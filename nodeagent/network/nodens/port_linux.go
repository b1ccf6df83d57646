package nodens

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/share"
)

// PortConfig says what is served on a port of the machine.
type PortConfig struct {
	// Network is "tcp" or "udp".
	Network string
	// Listen is the machine's address and port. An unspecified address stands for all of the machine's: ":: " for those
	// of both families.
	Listen netip.AddrPort
	// Targets are where clients are led in the node namespace, such as to a pod's or a Service's address: one of each
	// family at most. A client is led to that of its own family, and to the first where there is none.
	Targets []netip.AddrPort
	// Arrival is where the node namespace takes what is for the target, if that is no address of the pods' ranges: see
	// ArrivalAddress. Without one, the kernel cannot lead clients to such a target.
	Arrival netip.AddrPort
}

// target returns where a client is led.
func (cfg *PortConfig) target(client netip.Addr) (netip.AddrPort, error) {
	if len(cfg.Targets) == 0 {
		return netip.AddrPort{}, fmt.Errorf("the port %s leads nowhere", cfg.Listen)
	}
	for _, t := range cfg.Targets {
		if t.Addr().Is4() == client.Is4() {
			return t, nil
		}
	}
	return cfg.Targets[0], nil
}

// Port is a port of the machine that is served.
type Port struct {
	n    *Namespace
	cfg  PortConfig
	addr netip.AddrPort
	// led is what the kernel leads of the port.
	led  map[hostPort]lead
	stop context.CancelFunc
	once sync.Once

	tcp  *relay
	udp  *net.UDPConn
	done sync.WaitGroup
	*flows
	binding sync.Mutex // While the listening socket admits others beside it.

	// loopback is the same port of the machine's loopback in the family that pods have no addresses of; or nil.
	loopback *Port
}

// ServePort serves a port of the machine (a node port, a host port) until the context or the Port ends. Connections
// are led to their target with the client's address as their source: policies know clients by it, those outside and
// pods. Only who is the machine itself, by loopback or an address of the node namespace, comes with the node's
// address, which policies always allow. Nobody else is led to a target of another family, nor by an address that
// cannot be answered from inside, which is link-local or of the service ranges: that one is reset. Where pods have
// addresses of one family only, all of the machine's addresses are those of that family, and loopback. It fails if
// the port is taken.
//
// Clients outside are led by the kernel where it can: see machineTable. This process serves the others. Where the
// context ends, the kernel goes on, as after Release.
func (n *Namespace) ServePort(ctx context.Context, cfg PortConfig) (*Port, error) {
	ports, errs := n.ChangePorts(ctx, nil, []PortConfig{cfg})
	return ports[0], errs[0]
}

// ChangePorts ends ports and then serves others, in one change of the kernel's rules. Of each that is begun it returns
// the Port or the error. With this, ports end also which a server before has served in this way, unless they are among
// those that begin.
func (n *Namespace) ChangePorts(ctx context.Context, end []*Port, begin []PortConfig) ([]*Port, []error) {
	return n.changePorts(ctx, "", end, begin)
}

// exhausted are the errors of a process, or a machine, that has come to its bounds.
var exhausted = []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}

// changePorts does so for the ports of one owner: a sandbox, or nobody.
func (n *Namespace) changePorts(ctx context.Context, owner string, end []*Port, begin []PortConfig) (
	[]*Port, []error,
) {
	ended, begun := map[hostPort]lead{}, map[hostPort]lead{}
	// Ports that cannot be served: because somebody else has them, say, or because this process lacks something for now.
	taken, lacking := map[hostPort]lead{}, map[hostPort]lead{}
	for _, p := range end {
		maps.Copy(ended, p.led)
		p.stopServing()
	}
	ports, errs := make([]*Port, len(begin)), make([]error, len(begin))
	for i, cfg := range begin {
		led := n.leads(owner, &cfg)
		ports[i], errs[i] = n.bind(ctx, cfg)
		switch {
		case errs[i] == nil:
		case slices.ContainsFunc(exhausted, func(e error) bool { return errors.Is(errs[i], e) }):
			maps.Copy(lacking, led)
			continue
		default:
			maps.Copy(taken, led)
			continue
		}
		ports[i].led = led
		maps.Copy(begun, led)
	}
	for _, t := range n.portTables(owner != "") {
		t.change(ended, begun, func(k hostPort, l lead) bool {
			if _, is := taken[k]; is {
				return true
			}
			return l.owner == owner && lacking[k] != l
		})
	}
	return ports, errs
}

// bind serves a port, without the kernel's help.
func (n *Namespace) bind(ctx context.Context, cfg PortConfig) (*Port, error) {
	if cfg.Listen.Addr() != netip.IPv6Unspecified() {
		return n.servePort(ctx, cfg, cfg.Listen.String())
	}
	at := strconv.Itoa(int(cfg.Listen.Port()))
	if len(n.cfg.PodRanges) == 0 || n.hasBoth() {
		return n.servePort(ctx, cfg, ":"+at) // Of both families, or of IPv4 where there is no IPv6.
	}
	family, other, loopback := "4", "6", "[::1]:"
	if !n.cfg.PodRanges[0].Addr().Is4() {
		family, other, loopback = "6", "4", "127.0.0.1:"
	}
	one := cfg
	one.Network += family
	p, err := n.servePort(ctx, one, ":"+at)
	if err != nil {
		return nil, err
	}
	one.Network = cfg.Network + other
	p.loopback, err = n.servePort(ctx, one, loopback+strconv.Itoa(int(p.addr.Port())))
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EAFNOSUPPORT) { // There is no IPv6.
		p.stopServing()
		return nil, err
	}
	return p, nil
}

// hasBoth tells whether pods have addresses of both families.
func (n *Namespace) hasBoth() bool {
	return slices.ContainsFunc(n.cfg.PodRanges, func(r netip.Prefix) bool {
		return r.Addr().Is4() != n.cfg.PodRanges[0].Addr().Is4()
	})
}

// servePort listens at an address by a network of package net.
func (n *Namespace) servePort(ctx context.Context, cfg PortConfig, at string) (*Port, error) {
	if !n.passage.ports.TryAcquire(1) {
		return nil, fmt.Errorf("the port %s of the machine cannot be served beside so many others: %w", cfg.Listen,
			unix.EMFILE)
	}
	work, stop := context.WithCancel(ctx)
	context.AfterFunc(n.work, stop)
	p := &Port{n: n, cfg: cfg, stop: stop, flows: newFlows(n.passage)}
	p.cfg.Network = strings.TrimRight(cfg.Network, "46") // Targets have their own family.
	var err error
	switch p.cfg.Network {
	case "tcp":
		var l net.Listener
		var lc net.ListenConfig
		if l, err = lc.Listen(ctx, cfg.Network, at); err == nil {
			p.addr = l.Addr().(*net.TCPAddr).AddrPort()
			p.tcp = newRelay(work, l, n.passage, share.Network, p.dial)
		}
	case "udp":
		lc := net.ListenConfig{Control: packetInfo}
		var c net.PacketConn
		if c, err = lc.ListenPacket(ctx, cfg.Network, at); err == nil {
			p.udp = c.(*net.UDPConn)
			p.addr = p.udp.LocalAddr().(*net.UDPAddr).AddrPort()
			p.done.Go(func() { p.servePackets(work) })
		}
	default:
		err = fmt.Errorf(`the network is %q, not "tcp" or "udp"`, cfg.Network)
	}
	if err != nil {
		stop()
		n.passage.ports.Release(1)
		if errors.Is(err, unix.EACCES) {
			err = fmt.Errorf("%w (without root, ports below net.ipv4.ip_unprivileged_port_start cannot be had)", err)
		}
		return nil, fmt.Errorf("the port %s of the machine cannot be served: %w", cfg.Listen, err)
	}
	return p, nil
}

// Close ends the port and its connections, and waits for them to have ended.
func (p *Port) Close() error {
	p.stopServing()
	for _, t := range p.n.portTables(false) {
		t.change(p.led, nil, none)
	}
	return nil
}

// Release ends what this process does for the port, as the process' own end would: the kernel goes on leading clients
// outside, until somebody serves the port again, or others of the same owner without it.
func (p *Port) Release() {
	p.stopServing()
	for _, t := range p.n.portTables(false) {
		t.leave(p.led)
	}
}

// RetainPorts ends ports of sandboxes that are no more, which a server before has served.
func (n *Namespace) RetainPorts(exists func(sandbox string) bool) {
	for _, t := range n.portTables(true) {
		t.change(nil, nil, func(_ hostPort, l lead) bool { return l.owner != "" && !exists(l.owner) })
	}
}

// stopServing ends what this process does for the port, and waits for its connections to have ended.
func (p *Port) stopServing() {
	p.once.Do(func() {
		p.stop()
		if p.tcp != nil {
			p.tcp.close()
		}
		if p.udp != nil {
			p.udp.Close()
			p.done.Wait()
			p.end()
		}
		p.n.passage.ports.Release(1)
		if p.loopback != nil {
			p.loopback.stopServing()
		}
	})
}

// Addr is where the machine listens.
func (p *Port) Addr() netip.AddrPort { return p.addr }

func (p *Port) dial(ctx context.Context, from net.Conn) (net.Conn, error) {
	client := unmap(from.RemoteAddr().(*net.TCPAddr).AddrPort())
	return p.lead(ctx, client)
}

// lead connects to a client's target, as the client.
func (p *Port) lead(ctx context.Context, client netip.AddrPort) (net.Conn, error) {
	target, err := p.cfg.target(client.Addr())
	if err != nil {
		return nil, err
	}
	if p.n.cfg.Rootless && p.n.inPodRange(client.Addr()) { // Nobody on the machine has such an address.
		return nil, fmt.Errorf("the client %s has a forged address", client)
	}
	if p.n.isMachine(client.Addr()) {
		return p.n.Dial(ctx, p.cfg.Network, netip.AddrPort{}, target)
	}
	if !p.n.answers(client.Addr()) || client.Addr().Is4() != target.Addr().Is4() {
		return nil, fmt.Errorf("the client %s cannot be led to %s with its own address", client, target)
	}
	conn, err := p.n.Dial(ctx, p.cfg.Network, client, target)
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL) {
		// The client's port is still taken by its connection before this one, or by one through another port.
		return p.n.Dial(ctx, p.cfg.Network, netip.AddrPortFrom(client.Addr(), 0), target)
	}
	return conn, err
}

// isMachine tells whether only the machine itself has an address.
func (n *Namespace) isMachine(a netip.Addr) bool {
	return a.IsLoopback() || slices.ContainsFunc(n.cfg.PodRanges, func(r netip.Prefix) bool {
		node, machine := NodeAddresses(r)
		return a == node || a == machine
	})
}

// answers tells whether what is sent from the node namespace as a would be answered to it.
func (n *Namespace) answers(a netip.Addr) bool {
	return !a.IsLinkLocalUnicast() && !slices.ContainsFunc(n.cfg.ServiceRanges, func(r netip.Prefix) bool {
		return r.Contains(a)
	})
}

func (p *Port) servePackets(ctx context.Context) {
	local := func(oob []byte) (netip.AddrPort, bool) { return arrival(oob, p.addr.Port()) }
	receivePackets(ctx, p.udp, local, func(client, at netip.AddrPort, packet []byte) {
		p.send(ctx, flow{client: client, target: at}, packet, func(ctx context.Context) (near, far net.Conn, err error) {
			if far, err = p.lead(ctx, client); err != nil {
				return nil, nil, err
			}
			if near, err = p.beside(ctx, at, client); err != nil {
				far.Close()
				return nil, nil, err
			}
			return near, far, nil
		})
	})
}

// beside opens a socket of the machine for one client, which has the address of the listening one: the client's
// packets come to it from now on, and it answers from the address that the client knows.
func (p *Port) beside(ctx context.Context, at, client netip.AddrPort) (net.Conn, error) {
	p.binding.Lock()
	defer p.binding.Unlock()
	raw, err := p.udp.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Only as long as it takes: whoever could share the port could take packets of others.
	share := func(on int) (err error) {
		cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, on) })
		return errors.Join(cerr, err)
	}
	if err := share(1); err != nil {
		return nil, err
	}
	defer func() { _ = share(0) }()
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(at), Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(cerr, err)
	}}
	return d.DialContext(ctx, "udp", client.String())
}

// packetInfo has the kernel say to which of the machine's addresses a packet came.
func packetInfo(network, _ string, c syscall.RawConn) (err error) {
	cerr := c.Control(func(fd uintptr) {
		if network == "udp6" {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
			if err != nil {
				return
			}
		}
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)
	})
	return errors.Join(cerr, err)
}

// arrival reads to which of the machine's addresses a packet came.
func arrival(oob []byte, port uint16) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			// After the number of the link comes the address that the answer should have, then the packet's own.
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Data[4:8])), port), true
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(m.Data[:16])).Unmap(), port), true
		}
	}
	return netip.AddrPort{}, false
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// hostPorts are the ports of one sandbox.
type hostPorts struct {
	wanted []HostPort
	to     []netip.Addr
	served []*Port
}

// serveHostPorts serves the ports of a sandbox, and no others that it had.
func (n *Namespace) serveHostPorts(sandbox string, cfg AttachConfig) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	had := n.ports[sandbox]
	if slices.Equal(had.wanted, cfg.HostPorts) && slices.Equal(had.to, cfg.Addresses) {
		return nil // With their connections.
	}
	var begin []PortConfig
	for _, h := range cfg.HostPorts {
		port := PortConfig{Network: h.Network, Listen: h.Host}
		for _, a := range cfg.Addresses {
			port.Targets = append(port.Targets, netip.AddrPortFrom(a, h.Port))
		}
		begin = append(begin, port)
	}
	delete(n.ports, sandbox)
	ports, errs := n.changePorts(n.work, sandbox, had.served, begin)
	for i, err := range errs {
		if err == nil {
			continue
		}
		n.changePorts(n.work, sandbox, slices.DeleteFunc(ports, func(p *Port) bool { return p == nil }), nil)
		return fmt.Errorf("the host port %d: %w", cfg.HostPorts[i].Host.Port(), err)
	}
	if len(ports) > 0 {
		n.ports[sandbox] = hostPorts{wanted: slices.Clone(cfg.HostPorts), to: slices.Clone(cfg.Addresses), served: ports}
	}
	return nil
}

// closeHostPorts ends the ports of a sandbox, those also that a server before has served. It fails while the kernel
// may lead clients there still.
func (n *Namespace) closeHostPorts(sandbox string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changePorts(n.work, sandbox, n.ports[sandbox].served, nil)
	delete(n.ports, sandbox)
	for _, t := range n.portTables(true) {
		// Without the node namespace there are no rules either.
		if err := t.settle(); err != nil && !errors.Is(err, errNoHelper) {
			return err
		}
	}
	return nil
}
