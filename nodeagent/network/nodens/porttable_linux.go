package nodens

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens/internal/rules"
)

// behindOthers is where the chains of a portTable look at what comes to the machine's ports: who else translates
// addresses goes before us, as before the sockets of this process. In the node namespace those are Services.
const behindOthers = -99

// mostElements bounds the elements of one message: it has room for 64 KiB.
const mostElements = 200

// portTable keeps a table of nftables by which the kernel leads clients of the machine's ports to their targets, also
// while no server runs. There are two: machineTable, and insideTable for pods. Of each family a table has
//
//	a gate               who is led: links, or addresses of the machine
//	ports, addressports  maps from ports, at all addresses of the machine or at one, to targets
//
// Rules decide about first packets. What is led stays so until the port ends, or the gate is closed: then connection
// tracking forgets it, and its next packets are for the process or refused.
type portTable struct {
	cfg *Config
	place

	mu     sync.Mutex
	closed bool
	// ports are what the kernel leads or would lead. Of those that are left, this process has not begun them: a server
	// before did, or a session that has ended.
	ports map[hostPort]lead
	left  map[hostPort]bool
	// gate has the keys of the set, sorted.
	gate [2][]string
	// text is the rules that were written, by the kernel's numbers; empty while that is not known. generation is the
	// kernel's number of what it has, and counts our own changes; others counts the times that somebody else's were seen.
	text       string
	generation uint32
	others     int
	// stale says that connection tracking may know what has come through ports that have ended: a server before was
	// killed before it was told, or it could not be told.
	stale bool
}

// place is what the tables do not have in common.
type place struct {
	table *nftables.Table
	// title is how errors call the table.
	title     string
	nftables  func() (*nftables.Conn, error)
	netfilter func() (*mdlayher.Conn, error)
	// gateName and gateType are those of the gate's set in a family.
	gateName string
	gateType func(v6 bool) nftables.SetDatatype
	// strangers are ranges whose clients are led nowhere. Without any, there is no set of them.
	strangers []netip.Prefix
	// hairpins says that targets are clients, too: there is a set of them, each twice, for what leads back to where it
	// comes from.
	hairpins bool
	// write writes the rules.
	write func(r *rules.Table, all []tableSets)
	// through tells of a flow that is translated whether that can be by a port of the table. Where it is through none
	// that there is, it is stale.
	through func(conntrack.Flow) bool
}

// hostPort is a port of the machine: at one of its addresses, or at all of a family, which the unspecified one stands
// for.
type hostPort struct {
	network string // "tcp" or "udp"
	at      netip.AddrPort
}

// everywhere is the same port at all addresses of the family.
func (k hostPort) everywhere() hostPort {
	at := netip.IPv4Unspecified()
	if k.at.Addr().Is6() {
		at = netip.IPv6Unspecified()
	}
	return hostPort{k.network, netip.AddrPortFrom(at, k.at.Port())}
}

// none lapses.
func none(hostPort, lead) bool { return false }

// lead says where a port leads, and whose it is: a sandbox's, or nobody's.
type lead struct {
	to    netip.AddrPort
	owner string
}

func newPortTable(cfg *Config, at place) portTable {
	return portTable{cfg: cfg, place: at, ports: map[hostPort]lead{}, left: map[hostPort]bool{}, stale: true}
}

// portTables are the tables that ports are in: those of sandboxes, or others, to which rules of Services lead pods.
func (n *Namespace) portTables(ofSandboxes bool) (all []*portTable) {
	if n.machine != nil {
		all = append(all, &n.machine.portTable)
	}
	if ofSandboxes {
		all = append(all, &n.inside.portTable)
	}
	return all
}

// leads returns what of a port the kernel can lead.
func (n *Namespace) leads(owner string, cfg *PortConfig) map[hostPort]lead {
	at := cfg.Listen.Addr().Unmap()
	if at.IsLoopback() || at.IsLinkLocalUnicast() || cfg.Listen.Port() == 0 {
		return nil
	}
	led := map[hostPort]lead{}
	for _, to := range append([]netip.AddrPort{cfg.Arrival}, cfg.Targets...) {
		own := at
		if at == netip.IPv6Unspecified() && to.Addr().Is4() {
			own = netip.IPv4Unspecified()
		}
		k := hostPort{cfg.Network, netip.AddrPortFrom(own, cfg.Listen.Port())}
		if _, is := led[k]; !is && to.IsValid() && own.Is4() == to.Addr().Is4() && n.inPodRange(to.Addr()) {
			led[k] = lead{to: to, owner: owner}
		}
	}
	return led
}

// tableSets are the sets of one family. Those that a table does not have are nil.
type tableSets struct {
	v6 bool
	// ports are those at all addresses, addressPorts those at one.
	gate, strangers, hairpins, ports, addressPorts *nftables.Set
}

// all are those that the table has.
func (s *tableSets) all() []*nftables.Set {
	return slices.DeleteFunc([]*nftables.Set{s.gate, s.strangers, s.hairpins, s.ports, s.addressPorts},
		func(set *nftables.Set) bool { return set == nil })
}

// inSet matches packets of which that which e puts into nft.Register is in a set, or is not.
func inSet(set *nftables.Set, is bool, e ...expr.Any) []expr.Any {
	return append(e, &expr.Lookup{SourceRegister: nft.Register, SetName: set.Name, SetID: set.ID, Invert: !is})
}

// lead ends a rule: it leads what is for a port that is in a map, after it has done more.
func (s *tableSets) lead(in *nftables.Set, more ...expr.Any) []expr.Any {
	key, next := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Quarter}}, uint32(nft.Quarter+1)
	if in == s.addressPorts {
		key, next = append(key, nft.Destination(s.v6, next)), next+nft.Width(s.v6)
	}
	family := uint32(unix.NFPROTO_IPV4)
	if s.v6 {
		family = unix.NFPROTO_IPV6
	}
	return slices.Concat(key, []expr.Any{
		nft.DestinationPort(next),
		&expr.Lookup{SourceRegister: nft.Register, DestRegister: nft.Register, IsDestRegSet: true, SetName: in.Name,
			SetID: in.ID},
	}, more, []expr.Any{
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: nft.Register,
			RegProtoMin: nft.Quarter + nft.Width(s.v6)},
	})
}

// sets are those of the families that pods have.
func (t *portTable) sets() []tableSets {
	var all []tableSets
	id := uint32(0)
	add := func(s nftables.Set) *nftables.Set {
		id++
		s.Table, s.ID = t.table, id
		return &s
	}
	for _, r := range t.cfg.PodRanges {
		v, v6 := "4", r.Addr().Is6()
		if v6 {
			v = "6"
		}
		addr := nft.AddrType(v6)
		to := nftables.MustConcatSetType(addr, nftables.TypeInetService)
		s := tableSets{
			v6:   v6,
			gate: add(nftables.Set{Name: t.gateName + v, KeyType: t.gateType(v6)}),
			ports: add(nftables.Set{Name: "ports" + v, IsMap: true, Concatenation: true, DataType: to,
				KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)}),
			addressPorts: add(nftables.Set{Name: "addressports" + v, IsMap: true, Concatenation: true, DataType: to,
				KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, addr, nftables.TypeInetService)}),
		}
		if len(t.strangers) > 0 {
			s.strangers = add(nftables.Set{Name: "strangers" + v, KeyType: addr, Interval: true})
		}
		if t.hairpins {
			s.hairpins = add(nftables.Set{Name: "hairpins" + v, Concatenation: true,
				KeyType: nftables.MustConcatSetType(addr, addr)})
		}
		all = append(all, s)
	}
	return all
}

// adopt takes over what a server before had the kernel lead, so that clients find it until it is known what is wanted.
func (t *portTable) adopt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, err := t.read()
	if err != nil {
		t.cfg.Log.Warn("clients of the machine's ports are refused until all is served again", "table", t.title,
			"error", err)
		return
	}
	t.ports, t.gate = found.ports, found.gate
	for k := range t.ports {
		t.left[k] = true
	}
}

// content is what the table has.
type content struct {
	ports map[hostPort]lead
	gate  [2][]string
	text  string // The rules.
	whole bool   // All sets are there, and have what they need beside.
}

// read reads the table. What of it is not there, or not ours, is left out.
func (t *portTable) read() (content, error) {
	c := content{ports: map[hostPort]lead{}, whole: true}
	conn, err := t.nftables()
	if err != nil {
		return c, err
	}
	if c.text, err = rulesIn(conn, t.table.Name); err != nil || c.text == "" {
		return c, err
	}
	there, err := conn.GetSets(t.table)
	if err != nil {
		return c, fmt.Errorf("the sets of %s: %w", t.title, err)
	}
	hairpins := map[netip.Addr]bool{}
	for _, s := range t.sets() {
		for _, set := range s.all() {
			if !slices.ContainsFunc(there, func(is *nftables.Set) bool { return is.Name == set.Name }) {
				c.whole = false
				continue
			}
			elements, err := conn.GetSetElements(set)
			if err != nil {
				return c, fmt.Errorf("the set %s of %s: %w", set.Name, t.title, err)
			}
			if set == s.strangers {
				c.whole = c.whole && nft.SameIntervals(elements, nft.Intervals(nft.Ranges(t.strangers), s.v6))
				continue
			}
			for _, e := range elements {
				switch set {
				case s.gate:
					i := nft.Index(s.v6)
					c.gate[i] = append(c.gate[i], string(e.Key))
				case s.hairpins:
					a, _ := netip.AddrFromSlice(e.Key[:len(e.Key)/2])
					hairpins[a] = true
				default:
					if k, l, ok := entryOf(e, s.v6, set == s.addressPorts); ok {
						c.ports[k] = l
					}
				}
			}
		}
	}
	slices.Sort(c.gate[0])
	slices.Sort(c.gate[1])
	c.whole = c.whole && (!t.hairpins || maps.Equal(hairpins, targets(c.ports)))
	return c, nil
}

// replace writes the table anew, in place of any that is there, in one transaction unless it is too large.
func (t *portTable) replace() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writeAll()
}

// writeAll does so. It needs the lock.
func (t *portTable) writeAll() error {
	if t.closed {
		return nil
	}
	t.text = ""
	err := t.batch(func(b *nft.Batch) error {
		r := rules.Replace(b.Conn, t.table.Name, t.table.Family)
		all := t.sets()
		for _, s := range all {
			for _, set := range s.all() {
				if err := b.Conn.AddSet(set, nil); err != nil {
					return err
				}
			}
			if err := addElements(b, s.gate, gateElements(t.gate[nft.Index(s.v6)])); err != nil {
				return err
			}
			if s.strangers == nil {
				continue
			}
			if err := addElements(b, s.strangers, nft.Intervals(nft.Ranges(t.strangers), s.v6)); err != nil {
				return err
			}
		}
		t.write(r, all)
		// In as few transactions as there may be, and behind the rules that need them.
		return t.put(b, all, t.ports, targets(t.ports), addElements)
	})
	if err != nil {
		return fmt.Errorf("%s is refused by its nftables: %w", t.title, err)
	}
	t.forgetStale()
	conn, err := t.nftables()
	if err != nil {
		return err
	}
	if t.generation, err = nft.Generation(t.netfilter); err != nil {
		return err
	}
	t.others++
	t.text, err = rulesIn(conn, t.table.Name)
	return err
}

// batch makes one change. It needs the lock.
func (t *portTable) batch(f func(*nft.Batch) error) error {
	b, err := nft.NewBatch(t.netfilter, nft.MostBytes)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := f(b); err != nil {
		return err
	}
	if err := b.End(); err != nil {
		return err
	}
	transactions, err := b.Commit()
	t.generation += transactions
	return err
}

// targets are where ports lead.
func targets(ports map[hostPort]lead) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, l := range ports {
		all[l.to.Addr()] = true
	}
	return all
}

// put puts ports and hairpins into the sets, or takes them out, by f.
func (t *portTable) put(b *nft.Batch, all []tableSets, ports map[hostPort]lead, hairpins map[netip.Addr]bool,
	f func(*nft.Batch, *nftables.Set, []nftables.SetElement) error,
) error {
	for _, s := range all {
		var everywhere, one, back []nftables.SetElement
		for k, l := range ports {
			if k.at.Addr().Is6() != s.v6 {
				continue
			}
			protocol, _ := nft.Protocol(k.network)
			key := []byte{protocol, 0, 0, 0}
			e := nftables.SetElement{Val: append(l.to.Addr().AsSlice(), nft.PortBytes(l.to.Port())...), Comment: l.owner}
			if k.at.Addr().IsUnspecified() {
				e.Key = append(key, nft.PortBytes(k.at.Port())...)
				everywhere = append(everywhere, e)
			} else {
				e.Key = slices.Concat(key, k.at.Addr().AsSlice(), nft.PortBytes(k.at.Port()))
				one = append(one, e)
			}
		}
		for a := range hairpins {
			if s.hairpins != nil && a.Is6() == s.v6 {
				back = append(back, nftables.SetElement{Key: slices.Concat(a.AsSlice(), a.AsSlice())})
			}
		}
		if err := errors.Join(f(b, s.ports, everywhere), f(b, s.addressPorts, one), f(b, s.hairpins, back)); err != nil {
			return err
		}
	}
	return nil
}

func addElements(b *nft.Batch, s *nftables.Set, elements []nftables.SetElement) error {
	return inParts(b, elements, func(part []nftables.SetElement) error { return b.Conn.SetAddElements(s, part) })
}

func deleteElements(b *nft.Batch, s *nftables.Set, elements []nftables.SetElement) error {
	return inParts(b, elements, func(part []nftables.SetElement) error { return b.Conn.SetDeleteElements(s, part) })
}

func inParts(b *nft.Batch, elements []nftables.SetElement, f func([]nftables.SetElement) error) error {
	for part := range slices.Chunk(elements, mostElements) {
		if err := errors.Join(f(part), b.Cut()); err != nil {
			return err
		}
	}
	return nil
}

func gateElements(keys []string) (elements []nftables.SetElement) {
	for _, k := range keys {
		elements = append(elements, nftables.SetElement{Key: []byte(k)})
	}
	return elements
}

// entryOf reads an element of a map.
func entryOf(e nftables.SetElement, v6, hasAddress bool) (hostPort, lead, bool) {
	size := 4 * int(nft.Width(v6))
	at, want := netip.IPv4Unspecified(), 8
	if v6 {
		at = netip.IPv6Unspecified()
	}
	if hasAddress {
		want += size
	}
	if len(e.Key) != want || len(e.Val) != size+4 {
		return hostPort{}, lead{}, false
	}
	if hasAddress {
		at, _ = netip.AddrFromSlice(e.Key[4 : 4+size])
	}
	to, _ := netip.AddrFromSlice(e.Val[:size])
	port := func(b []byte) uint16 { return binaryutil.BigEndian.Uint16(b) }
	return hostPort{nft.ProtocolName(e.Key[0]), netip.AddrPortFrom(at, port(e.Key[want-4:]))},
		lead{netip.AddrPortFrom(to, port(e.Val[size:])), e.Comment}, true
}

// leave has the kernel go on leading what this process no longer serves.
func (t *portTable) leave(led map[hostPort]lead) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, l := range led {
		if t.ports[k] == l {
			t.left[k] = true
		}
	}
}

// change ends ports and begins others. Of those that are left it ends also the ones of which lapsed says so, and those
// at one address of a port that begins at all. Where the kernel refuses that, the next Verify writes the table anew;
// until then the process serves what has begun.
func (t *portTable) change(end, begin map[hostPort]lead, lapsed func(hostPort, lead) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone, come := map[hostPort]lead{}, map[hostPort]lead{}
	for k, l := range end {
		if t.ports[k] == l && begin[k] != l {
			gone[k] = l
		}
	}
	for k := range t.left {
		l := t.ports[k]
		if _, is := begin[k.everywhere()]; (is || lapsed(k, l)) && begin[k] != l {
			gone[k] = l
		}
	}
	for k, l := range begin {
		if had, is := t.ports[k]; !is {
			come[k] = l
		} else if had != l {
			gone[k], come[k] = had, l
		}
		delete(t.left, k)
	}
	if len(gone)+len(come) == 0 || t.closed {
		return
	}
	had := targets(t.ports)
	for k := range gone {
		delete(t.ports, k)
		delete(t.left, k)
	}
	maps.Copy(t.ports, come)
	now := targets(t.ports)
	for a := range had {
		if now[a] {
			delete(had, a)
			delete(now, a)
		}
	}
	t.carryOut(func(b *nft.Batch) error {
		all := t.sets()
		return errors.Join(t.put(b, all, gone, had, deleteElements), t.put(b, all, come, now, addElements))
	})
	t.forget(gone)
}

// carryOut makes a change, or writes all anew where that is refused: somebody may have taken the table away. It needs
// the lock.
func (t *portTable) carryOut(change func(*nft.Batch) error) {
	err := t.batch(change)
	if err != nil {
		err = t.writeAll()
	}
	if err != nil {
		t.text, t.stale = "", true
		t.cfg.Log.Warn("the kernel does not lead clients of the machine's ports as it should; it is tried again", "table",
			t.title, "error", err)
	}
}

// open makes the gate of each family what it says, and returns what of it is closed by that. It needs the lock.
func (t *portTable) open(gate [2][]string) (shut [2][]string) {
	for i := range gate {
		slices.Sort(gate[i])
	}
	had := t.gate
	if t.closed || slices.Equal(gate[0], had[0]) && slices.Equal(gate[1], had[1]) {
		return shut
	}
	t.gate = gate
	for i := range gate {
		shut[i] = without(had[i], gate[i])
	}
	t.carryOut(func(b *nft.Batch) error {
		for _, s := range t.sets() {
			i := nft.Index(s.v6)
			if err := errors.Join(deleteElements(b, s.gate, gateElements(shut[i])),
				addElements(b, s.gate, gateElements(without(gate[i], had[i])))); err != nil {
				return err
			}
		}
		return nil
	})
	return shut
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(k string) bool { return slices.Contains(b, k) })
}

// settle writes the table anew unless the last change is known to have been made.
func (t *portTable) settle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" {
		return nil
	}
	return t.writeAll()
}

// leadOf returns where ports lead what comes as a flow does.
func leadOf(ports map[hostPort]lead, f conntrack.Flow) netip.AddrPort {
	k := hostPort{nft.ProtocolName(f.Orig.Protocol), f.Orig.Dst}
	if l, is := ports[k]; is {
		return l.to
	}
	return ports[k.everywhere()].to
}

// forget has connection tracking forget what was led by ports.
func (t *portTable) forget(ports map[hostPort]lead) {
	if len(ports) > 0 {
		t.forgetFlows(func(f conntrack.Flow) bool { return f.Reply.Src == leadOf(ports, f) })
	}
}

// forgetStale has connection tracking forget what is led by no port that there is. It needs the lock.
func (t *portTable) forgetStale() {
	if !t.stale {
		return
	}
	t.stale = false
	t.forgetFlows(func(f conntrack.Flow) bool { return f.Reply.Src != leadOf(t.ports, f) && t.through(f) })
}

// forgetFlows has connection tracking forget those of the flows that were led elsewhere of which ended says so.
func (t *portTable) forgetFlows(ended func(conntrack.Flow) bool) {
	families := map[byte]bool{}
	for _, r := range t.cfg.PodRanges {
		families[familyOf(r.Addr())] = true
	}
	err := forget(t.netfilter, families, func(f conntrack.Flow) bool { return f.Translated() && ended(f) })
	if err != nil {
		t.stale, t.text = true, "" // When the table is written anew, it is tried again.
		t.cfg.Log.Warn("connections through ports of the machine that have ended may go on", "error", err)
	}
}

// forget has connection tracking forget flows of families.
func forget(
	netfilter func() (*mdlayher.Conn, error), families map[byte]bool, which func(conntrack.Flow) bool,
) error {
	conn, err := netfilter()
	if err != nil {
		return err
	}
	defer conn.Close()
	for family := range families {
		flows, err := conntrack.Flows(conn, family)
		if err != nil {
			return err
		}
		for _, f := range flows {
			if !which(f) {
				continue
			}
			if err := conntrack.Forget(conn, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func familyOf(a netip.Addr) byte {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// intact tells whether the table is as it was written. Where nobody else has changed anything, that costs nothing.
// Others says how often somebody has, with ours.
func (t *portTable) intact() (ok bool, others int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// First, so that a change meanwhile is seen by the next look.
	generation, err := nft.Generation(t.netfilter)
	if err != nil {
		return false, t.others, err
	}
	if generation == t.generation {
		return t.text != "", t.others, nil
	}
	t.others++
	now, err := t.read()
	if err != nil {
		return false, t.others, err
	}
	ok = t.text != "" && now.text == t.text && now.whole && maps.Equal(now.ports, t.ports) &&
		slices.Equal(now.gate[0], t.gate[0]) && slices.Equal(now.gate[1], t.gate[1])
	if ok {
		t.generation = generation
	}
	return ok, t.others, nil
}

// close has nothing changed any more.
func (t *portTable) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}
