package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/endpoint"
)

const (
	loadBalancer = "LoadBalancer"
	// balanced is the condition of Services whose load balancer the machine is. It tells addresses that were given here
	// from those that somebody else's load balancer has written.
	balanced = "monoplane.dev/LoadBalancer"
	// tryPortsAgain is how long a port that could not be served is left alone: meanwhile the Service has no rules for it,
	// so that pods reach whoever has it on the machine. What is forbidden is not tried again.
	tryPortsAgain = time.Minute
	// tellAgain is the wait after statuses that could not be written.
	tellAgain = 10 * time.Second
)

// lot is what a Service of type LoadBalancer gets of this machine.
//
//	wanted ──▶ rules ──▶ ports are served ──▶ in the Service's status
//	   ▲                        │
//	   └────── a minute ◀── a port is not: no addresses, and why
//
// Invariant: no rules lead to a port that is known not to be served, and no address is told before it answers.
type lot struct {
	// addresses are the machine's; none where why says why.
	addresses []netip.Addr
	why       string
	// ports are what has to be served before the addresses are told.
	ports []Port
	// past says that the Service wants no load balancer any more.
	past bool
}

func (l lot) equal(other lot) bool {
	return slices.Equal(l.addresses, other.addresses) && l.why == other.why && slices.Equal(l.ports, other.ports) &&
		l.past == other.past
}

// failure is a port that could not be served.
type failure struct {
	err error
	// till is when it is tried again; zero for never.
	till time.Time
}

// Served is told what became of the ports that Config.Ports was told last: nil for those that are served.
func (p *Proxy) Served(results map[Port]error) {
	p.mu.Lock()
	p.served = results
	failed := false
	for port, err := range results {
		if _, known := p.failed[port]; err != nil && !known && port.Listen.Addr().IsValid() {
			f := failure{err: err}
			if !errors.Is(err, fs.ErrPermission) {
				f.till = time.Now().Add(tryPortsAgain)
			}
			p.failed[port], failed = f, true
		}
	}
	p.mu.Unlock()
	if failed {
		p.signal() // The rules go first.
	}
	p.tellSoon()
}

func (p *Proxy) tellSoon() {
	select {
	case p.told <- struct{}{}:
	default:
	}
}

// draw says what each Service of type LoadBalancer gets, and notes as changed those that get something else than
// before. Of two that want the same port the one has it that has the address already, then the older one.
func (p *Proxy) draw() map[cache.Key]lot {
	n, ok := p.nodes.Get("", p.cfg.NodeName)
	if !ok {
		return p.lots // The addresses are not known yet, and what has been told may be right.
	}
	own, lots := p.ownAddresses(n), map[cache.Key]lot{}
	var wanting, others []*corev1.Service
	for _, s := range p.servicesOnMachine() {
		switch {
		case p.isMine(s):
			wanting = append(wanting, s)
			continue
		case s.GetSpec().GetType() != loadBalancer && condition(s) != nil:
			lots[cache.KeyOf(s)] = lot{past: true}
		}
		others = append(others, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrivals = arrivals(own, p.cfg.Arrivals)
	for port, f := range p.failed {
		if !f.till.IsZero() && time.Now().After(f.till) {
			delete(p.failed, port)
		}
	}
	if len(wanting) > 0 {
		slices.SortFunc(wanting, before)
		taken := map[Port]string{}
		for _, port := range slices.Concat(ports(others, nil), ports(onlyNodePorts(wanting), nil)) {
			port.Target = netip.AddrPort{}
			taken[port] = "another Service"
		}
		for _, s := range wanting {
			lots[cache.KeyOf(s)] = p.lotOf(s, own, taken)
		}
	}
	for key, l := range lots {
		p.noteIf(key, !l.equal(p.lots[key]))
	}
	for key := range p.lots {
		_, still := lots[key]
		p.noteIf(key, !still)
	}
	p.lots = lots
	return lots
}

// noteIf notes a Service as changed. The caller holds the lock.
func (p *Proxy) noteIf(key cache.Key, changed bool) {
	if changed {
		p.dirty[key] = true
	}
}

// concernsMachine says whether a Service may ask for ports of the machine, or has a status that says what became of
// them.
func concernsMachine(s *corev1.Service) bool {
	return s.GetSpec().GetType() == loadBalancer || len(s.GetSpec().GetExternalIPs()) > 0 ||
		len(s.GetStatus().GetLoadBalancer().GetIngress()) > 0 || condition(s) != nil ||
		slices.ContainsFunc(s.GetSpec().GetPorts(), func(p *corev1.ServicePort) bool { return p.GetNodePort() != 0 })
}

// isMine says whether this machine is to be the load balancer of a Service: no class asks for another, and neither has
// another given it an address, nor another node.
func (p *Proxy) isMine(s *corev1.Service) bool {
	_, other := s.GetMetadata().GetLabels()[otherProxy]
	if other || s.GetSpec().GetType() != loadBalancer || s.GetSpec().GetLoadBalancerClass() != "" ||
		!endpoint.HasAddress(s) {
		return false
	}
	return len(s.GetStatus().GetLoadBalancer().GetIngress()) == 0 || condition(s).GetMessage() == p.saysServed()
}

func (p *Proxy) saysServed() string { return "its ports are served on node " + p.cfg.NodeName }

// condition returns what was said here of a Service; nil if nothing was.
func condition(s *corev1.Service) *metav1.Condition {
	for _, c := range s.GetStatus().GetConditions() {
		if c.GetType() == balanced {
			return c
		}
	}
	return nil
}

// before orders Services by who has the first claim.
func before(a, b *corev1.Service) int {
	has := func(s *corev1.Service) int { return min(1, len(s.GetStatus().GetLoadBalancer().GetIngress())) }
	x, y := a.GetMetadata(), b.GetMetadata()
	return cmp.Or(has(b)-has(a),
		cmp.Compare(x.GetCreationTimestamp().GetSeconds(), y.GetCreationTimestamp().GetSeconds()),
		strings.Compare(x.GetNamespace(), y.GetNamespace()), strings.Compare(x.GetName(), y.GetName()))
}

// onlyNodePorts returns the Services without the addresses of their load balancers.
func onlyNodePorts(all []*corev1.Service) []*corev1.Service {
	out := make([]*corev1.Service, len(all))
	for i, s := range all {
		out[i] = &corev1.Service{Spec: s.GetSpec()}
	}
	return out
}

// lotOf returns what a Service gets, and notes its ports as taken. The caller holds the lock.
func (p *Proxy) lotOf(s *corev1.Service, own []netip.Addr, taken map[Port]string) lot {
	var l lot
	for _, a := range own {
		sameFamily := func(ip string) bool {
			is, err := netip.ParseAddr(ip)
			return err == nil && is.Is4() == a.Is4()
		}
		if slices.ContainsFunc(s.GetSpec().GetClusterIPs(), sameFamily) {
			l.addresses = append(l.addresses, a)
		}
	}
	if len(l.addresses) == 0 {
		return lot{why: "the machine has no address of the Service's families, but its loopback's"}
	}
	l.ports = ports([]*corev1.Service{{Spec: &corev1.ServiceSpec{
		ClusterIP: s.GetSpec().GetClusterIP(), ExternalIPs: texts(l.addresses), Ports: withoutNodePorts(s),
	}}}, p.arrivals)
	for _, port := range s.GetSpec().GetPorts() {
		if port.GetProtocol() == "SCTP" {
			return lot{why: fmt.Sprintf("port %d is of SCTP, which is not carried from the machine's ports", port.GetPort())}
		}
	}
	for _, port := range l.ports {
		bare, everywhere := Port{Network: port.Network, Listen: port.Listen}, Port{Network: port.Network,
			Listen: netip.AddrPortFrom(netip.Addr{}, port.Listen.Port())}
		if who := cmp.Or(taken[bare], taken[everywhere]); who != "" {
			return lot{why: fmt.Sprintf("port %d of %s is used by %s", port.Listen.Port(), port.Network, who)}
		}
		if f, ok := p.failed[port]; ok {
			return lot{why: f.err.Error()}
		}
	}
	for _, port := range l.ports {
		taken[Port{Network: port.Network, Listen: port.Listen}] = "Service " + cache.KeyOf(s).String()
	}
	return l
}

func withoutNodePorts(s *corev1.Service) []*corev1.ServicePort {
	var out []*corev1.ServicePort
	for _, port := range s.GetSpec().GetPorts() {
		out = append(out, &corev1.ServicePort{Protocol: port.GetProtocol(), Port: port.GetPort()})
	}
	return out
}

func texts(all []netip.Addr) []string {
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = a.String()
	}
	return out
}

// drawn returns a Service with the addresses that it gets, so that rules and ports are made for them.
func drawn(s *corev1.Service, lots map[cache.Key]lot) *corev1.Service {
	l, ok := lots[cache.KeyOf(s)]
	if !ok || l.past {
		return s
	}
	s = object.Clone(s)
	if s.Status == nil {
		s.Status = &corev1.ServiceStatus{}
	}
	s.Status.LoadBalancer = &corev1.LoadBalancerStatus{Ingress: ingress(l.addresses)}
	return s
}

func drawnAll(all []*corev1.Service, lots map[cache.Key]lot) []*corev1.Service {
	out := slices.Clone(all)
	for i, s := range out {
		out[i] = drawn(s, lots)
	}
	return out
}

func ingress(addresses []netip.Addr) []*corev1.LoadBalancerIngress {
	var out []*corev1.LoadBalancerIngress
	mode := "VIP"
	for _, a := range addresses {
		out = append(out, &corev1.LoadBalancerIngress{Ip: a.String(), IpMode: &mode})
	}
	return out
}

// tell writes statuses and events until ctx ends.
func (p *Proxy) tell(ctx context.Context) error {
	for {
		p.tellPorts()
		var again <-chan time.Time
		if !p.writeStatuses(ctx) {
			again = time.After(tellAgain)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.told:
		case <-again:
		}
	}
}

// writeStatuses writes the statuses that are not what they should be, and tells whether all could be written.
func (p *Proxy) writeStatuses(ctx context.Context) bool {
	p.mu.Lock()
	lots, served := p.lots, p.served
	p.mu.Unlock()
	all := true
	for key, l := range lots {
		s, ok := p.services.Get(key.Namespace, key.Name)
		if !ok {
			continue
		}
		next := p.statusOf(s, l, served)
		if next == nil {
			continue
		}
		_, err := p.cfg.Client.Services.UpdateStatus(ctx, &corev1rpc.UpdateServiceRequest{
			Namespace: key.Namespace, Name: key.Name, Object: next,
		})
		switch {
		case err == nil && l.why != "":
			p.events.Event(next, record.Warning, "LoadBalancerPortsError", "Balancing", l.why)
		case err != nil && !apierrors.Is(err, apierrors.NotFound) && ctx.Err() == nil:
			all = false
			if !apierrors.Is(err, apierrors.Conflict) {
				p.cfg.Logger.Error("The addresses of a Service's load balancer could not be written; it is tried again",
					"service", key, "err", err)
			}
		}
	}
	return all
}

// statusOf returns a Service with the status that it should have; nil if it has that, or if that is not known yet.
func (p *Proxy) statusOf(s *corev1.Service, l lot, served map[Port]error) *corev1.Service {
	status, reason, message := "True", "Served", p.saysServed()
	if l.why != "" {
		status, reason, message = "False", "NotServed", l.why
	} else if !l.past {
		if !p.isMine(s) {
			return nil
		}
		for _, port := range l.ports {
			if err, known := served[port]; err != nil || !known {
				return nil
			}
		}
	}
	has := condition(s)
	same := func(a, b *corev1.LoadBalancerIngress) bool { return a.GetIp() == b.GetIp() }
	if !l.past && has.GetStatus() == status && has.GetMessage() == message &&
		slices.EqualFunc(s.GetStatus().GetLoadBalancer().GetIngress(), ingress(l.addresses), same) {
		return nil
	}
	next := object.Clone(s)
	if next.Status == nil {
		next.Status = &corev1.ServiceStatus{}
	}
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(c *metav1.Condition) bool {
		return c.GetType() == balanced
	})
	if l.past {
		return next
	}
	next.Status.LoadBalancer = &corev1.LoadBalancerStatus{Ingress: ingress(l.addresses)}
	now := &metav1.Condition{Type: balanced, Status: status, Reason: reason, Message: message,
		LastTransitionTime: value.Time(time.Now()), ObservedGeneration: s.GetMetadata().GetGeneration()}
	if has.GetStatus() == status {
		now.LastTransitionTime = has.GetLastTransitionTime()
	}
	next.Status.Conditions = append(next.Status.Conditions, now)
	return next
}

// ownAddresses are the machine's, as its Node has them: neither its loopback's nor those of the pods' network.
func (p *Proxy) ownAddresses(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, at := range n.GetStatus().GetAddresses() {
		a, err := netip.ParseAddr(at.GetAddress())
		if err != nil || at.GetType() != "InternalIP" || a.IsLoopback() || a.IsLinkLocalUnicast() ||
			slices.ContainsFunc(p.cfg.PodRanges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// arrivals gives each address of the node namespace for arrivals to the first of the machine's of its family.
func arrivals(own, at []netip.Addr) map[netip.Addr]netip.Addr {
	out := map[netip.Addr]netip.Addr{}
	for _, a := range at {
		if i := slices.IndexFunc(own, func(o netip.Addr) bool { return o.Is4() == a.Is4() }); i >= 0 {
			out[own[i]] = a
		}
	}
	return out
}
