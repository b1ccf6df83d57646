package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// turns is how many turns the addresses share, and the ports: they come and go, turns stay. Servers of one etcd must
// agree on it, and on how turnOf spreads them.
const turns = 256

// turnOf is the name of the turn of an address or port.
func turnOf(claim string) string {
	return fmt.Sprintf("services/%02x", crc32.ChecksumIEEE([]byte(claim))%turns)
}

// allot gives a Service the addresses and ports that it asks for, and those that it needs and does not name. It
// changes next. Live is the Service as it is, nil for a new one. The guards fail when somebody else has taken one.
func (s Services) allot(ctx context.Context, next, live *corev1.Service) ([]store.Guard, error) {
	asked := next.Spec
	chosen := map[string]string{}
	held := map[string]store.Guard{}
	for {
		next.Spec = object.Clone(asked)
		claims, err := s.Give(next, live, chosen, func() (*Taken, error) { return s.takenByOthers(ctx, next) })
		if err != nil {
			return nil, err
		}
		var guards []store.Guard
		complete := true
		for name := range turnsOf(claims) {
			if _, ok := held[name]; !ok {
				turn, err := s.deps.Store.Turn(ctx, name)
				if err != nil {
					return nil, err
				}
				held[name] = turn
				complete = false // what was read may be older than the turn
			}
			guards = append(guards, held[name])
		}
		if complete {
			return guards, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// Give gives next what it needs while others have what is taken, and returns which addresses and ports those are. What
// was chosen for it is kept in chosen, for another attempt.
func (s Services) Give(next, live *corev1.Service, chosen map[string]string, others func() (*Taken, error)) (
	claims map[string]bool, err error,
) {
	if err := s.families(next, live); err != nil {
		return nil, err
	}
	a := &allotment{
		Services: s, next: next, live: live, others: others, chosen: chosen, claims: map[string]bool{},
	}
	return a.claims, a.run()
}

func turnsOf(claims map[string]bool) map[string]bool {
	names := make(map[string]bool, len(claims))
	for claim := range claims {
		names[turnOf(claim)] = true
	}
	return names
}

// Taken is what Services have. The zero value is nothing.
type Taken struct {
	addresses map[netip.Addr]bool
	ports     map[int32]bool
}

// takenByOthers returns what all Services have but the one that is written.
func (s Services) takenByOthers(ctx context.Context, o *corev1.Service) (*Taken, error) {
	all, err := s.deps.Store.List(ctx, corev1.ServiceKind, store.ListOptions{})
	if err != nil {
		return nil, err
	}
	t := &Taken{}
	m := o.GetMetadata()
	for _, other := range all.Objects {
		if om := other.GetMetadata(); om.GetNamespace() != m.GetNamespace() || om.GetName() != m.GetName() {
			t.Add(other.(*corev1.Service))
		}
	}
	return t, nil
}

// Add takes what a Service has.
func (t *Taken) Add(o *corev1.Service) {
	if t.addresses == nil {
		t.addresses, t.ports = map[netip.Addr]bool{}, map[int32]bool{}
	}
	s := specOf(o)
	for _, text := range s.GetClusterIPs() {
		if addr, err := netip.ParseAddr(text); err == nil && addressed(s) {
			t.addresses[addr] = true
		}
	}
	for _, p := range s.GetPorts() {
		if p.GetNodePort() != 0 {
			t.ports[p.GetNodePort()] = true
		}
	}
	if healthChecked(s) && s.GetHealthCheckNodePort() != 0 {
		t.ports[s.GetHealthCheckNodePort()] = true
	}
}

// allotment is one attempt to give a Service what it needs.
type allotment struct {
	Services
	next, live *corev1.Service
	// others reads what other Services have, once, when it is asked for at all.
	others func() (*Taken, error)
	read   *Taken
	// chosen is what an earlier attempt has chosen, by what it is for: it is chosen again while nobody else has it.
	chosen map[string]string
	// claims are the addresses and ports that live has not.
	claims map[string]bool
}

func (a *allotment) run() error {
	if err := a.addresses(); err != nil {
		return err
	}
	if err := a.ports(); err != nil {
		return err
	}
	return a.healthPort()
}

// used returns what other Services have.
func (a *allotment) used() (*Taken, error) {
	if a.read == nil {
		var err error
		if a.read, err = a.others(); err != nil {
			return nil, err
		}
	}
	return a.read, nil
}

// addresses gives the Service an address of each family from the first one on that it has none of.
func (a *allotment) addresses() error {
	next, live := a.next.Spec, a.live.GetSpec()
	from := 0
	if a.live != nil && live.GetType() != ExternalName {
		// What a Service has stays: at most a second family is added.
		if headless(live) || len(live.GetIpFamilies()) != 1 || len(next.IpFamilies) != 2 {
			return nil
		}
		from = 1
	}
	none := len(next.ClusterIPs) > 0 && next.ClusterIPs[0] == None
	if !addressed(next) || from == 0 && none || keepsPreference(next, live) {
		return nil
	}
	for len(next.ClusterIPs) < len(next.IpFamilies) {
		next.ClusterIPs = append(next.ClusterIPs, "")
	}
	for i := from; i < len(next.IpFamilies); i++ {
		if err := a.address(i); err != nil {
			return err
		}
	}
	next.ClusterIP = next.ClusterIPs[0]
	return nil
}

func (a *allotment) address(i int) error {
	next := a.next.Spec
	at := a.rangeOf(next.IpFamilies[i])
	if at < 0 {
		// The other family of a Service that is to become headless without a selector: whoever makes its endpoints may
		// make them of both, but that it has an address does not change.
		return a.available(a.next)
	}
	from := a.ranges.Addresses[at]
	used, err := a.used()
	if err != nil {
		return err
	}
	text := next.ClusterIPs[i]
	if text == "" {
		slot := next.IpFamilies[i]
		addr, err := netip.ParseAddr(a.chosen[slot])
		if err != nil || used.addresses[addr] {
			var ok bool
			addr, ok = from.Pick(a.random, func(addr netip.Addr) bool { return used.addresses[addr] })
			if !ok {
				return full("failed to allocate a serviceIP for Service %q", a.next.GetMetadata().GetName())
			}
		}
		next.ClusterIPs[i] = addr.String()
		a.chosen[slot] = addr.String()
		a.claims["address "+addr.String()] = true
		return nil
	}
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil || !from.Contains(addr):
		return a.refused(text, "the provided network does not match the current range")
	case used.addresses[addr]:
		return a.refused(text, "provided IP is already allocated")
	}
	a.claims["address "+addr.String()] = true
	return nil
}

func (a *allotment) refused(ip, why string) error {
	f := &validation.Faults{}
	for f.Pass() {
		f.InvalidValue(f.Root("spec").Child("clusterIPs"), a.next.Spec.ClusterIPs, "failed to allocate IP "+ip+": "+why)
	}
	return invalid(a.next, f)
}

// ports gives the Service node ports. Ports of one number but different protocols share theirs, where it is given out
// to a new Service.
func (a *allotment) ports() error {
	next := a.next.Spec
	if !nodePorts(next) {
		return nil
	}
	had := map[int32]bool{}
	for _, p := range a.live.GetSpec().GetPorts() {
		had[p.GetNodePort()] = true
	}
	own := map[int32]bool{}
	shared := map[int32]int32{}
	for i, p := range next.Ports {
		if p.NodePort == 0 && !givenPorts(next) {
			continue
		}
		wanted := p.NodePort
		if a.live == nil {
			if shared[p.Port] == 0 {
				wanted = asked(next.Ports, p.Port)
			} else if wanted == 0 || wanted == shared[p.Port] {
				p.NodePort = shared[p.Port]
				continue
			}
		} else if wanted != 0 && (had[wanted] || own[wanted]) {
			continue
		}
		port, err := a.port("port/"+strconv.Itoa(i), wanted, own)
		if err != nil {
			return a.refusedPort(err, i, wanted)
		}
		own[port] = true
		p.NodePort = port
		if shared[p.Port] == 0 {
			shared[p.Port] = port
		}
	}
	return nil
}

// asked returns the node port that is asked for by a port of that number, whatever its protocol.
func asked(ports []*corev1.ServicePort, number int32) int32 {
	for _, p := range ports {
		if p.Port == number && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// healthPort gives the Service the port at which nodes say whether pods of it are on them.
func (a *allotment) healthPort() error {
	next := a.next.Spec
	if !healthChecked(next) || a.live != nil && healthChecked(specOf(a.live)) {
		return nil
	}
	own := map[int32]bool{}
	for _, p := range next.Ports {
		own[p.NodePort] = true
	}
	wanted := next.HealthCheckNodePort
	port, err := a.port("health", wanted, own)
	var no *noPort
	switch {
	case err == nil:
		next.HealthCheckNodePort = port
		return nil
	case !errors.As(err, &no):
		return err
	case wanted == 0:
		return full("failed to allocate a HealthCheck NodePort 0")
	default:
		return internal("failed to allocate requested HealthCheck NodePort %d: %s", wanted, no.why)
	}
}

// noPort says why a port cannot be had.
type noPort struct{ why string }

func (e *noPort) Error() string { return e.why }

// port returns the port that is wanted, or any when that is 0. own are those that the Service itself has.
func (a *allotment) port(slot string, wanted int32, own map[int32]bool) (int32, error) {
	used, err := a.used()
	if err != nil {
		return 0, err
	}
	gone := func(n int32) bool { return used.ports[n] || own[n] }
	free := func(n int32) bool { return !gone(n) && !a.asksFor(n) }
	port := wanted
	switch {
	case wanted == 0:
		earlier, _ := strconv.Atoi(a.chosen[slot])
		if port = int32(earlier); port == 0 || !free(port) {
			var ok bool
			if port, ok = a.ranges.Ports.Pick(a.random, func(n int32) bool { return !free(n) }); !ok {
				return 0, &noPort{"range is full"}
			}
		}
		a.chosen[slot] = strconv.Itoa(int(port))
	case !a.ranges.Ports.Contains(wanted):
		return 0, &noPort{"provided port is not in the valid range. The range of valid ports is " + a.ranges.Ports.String()}
	case gone(wanted):
		return 0, &noPort{"provided port is already allocated"}
	}
	a.claims["port "+strconv.Itoa(int(port))] = true
	return port, nil
}

// asksFor says whether a port of the Service names that node port.
func (a *allotment) asksFor(n int32) bool {
	return slices.ContainsFunc(a.next.Spec.Ports, func(p *corev1.ServicePort) bool { return p.NodePort == n })
}

func (a *allotment) refusedPort(err error, i int, wanted int32) error {
	var no *noPort
	switch {
	case !errors.As(err, &no):
		return err
	case wanted == 0:
		return full("failed to allocate a nodePort")
	}
	f := &validation.Faults{}
	for f.Pass() {
		f.InvalidValue(f.Root("spec").Child("ports").Index(i).Child("nodePort"), wanted, no.why)
	}
	return invalid(a.next, f)
}

// full says that nothing is left to be given out.
func full(format string, args ...any) error {
	return internal("%s: range is full", fmt.Sprintf(format, args...))
}

// internal is an error that the client is told: it can do something about it.
func internal(format string, args ...any) error {
	return apierrors.New(apierrors.InternalError, "Internal error occurred: "+format, args...)
}

// random returns a number below n.
func (s Services) random(n uint64) uint64 {
	var b [8]byte
	if _, err := io.ReadFull(s.deps.Rand, b[:]); err != nil {
		return 0 // the search begins at the first then
	}
	x := binary.BigEndian.Uint64(b[:])
	if n == math.MaxUint64 {
		return x
	}
	return x % n
}
