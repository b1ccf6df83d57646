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

// behindOthers is where our chain looks at what comes to the machine's ports: who else translates addresses goes
// before us, as before the sockets of this process.
const behindOthers = -99

// beforeTracking is where packets are looked at before connection tracking knows them.
const beforeTracking = -300

// loopback4 are the addresses of the machine's loopback that its programs use towards each other.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// mostElements bounds the elements of one message: it has room for 64 KiB.
const mostElements = 200

// machineTable keeps the table of nftables that the machine has for a cluster:
//
//	guard
//	  over other links than ours, with an address of the pods' ranges   dropped: policies know pods by their addresses
//	prerouting, output
//	  over a link of the set links, of no address of the set strangers, for a port of a map
//	                                                                    to its target, over our link
//	postrouting
//	  what pods send out over other links                               with an address of the machine (masquerading)
//	  what the machine's loopback sends over our link                   the same
//
// So clients outside of the machine, and its own programs, are led to the targets of node ports and host ports by the
// kernel, also while no server runs. The process has the ports as well, and serves all whom the kernel does not lead:
// pods, who do not come over those links, and strangers, whom nobody inside could answer or who claim to be somebody
// inside. The set links is empty while the kernel must not lead anybody; the machine's loopback among them stands for
// its own programs.
//
// Rules decide about first packets. What is led stays so until the port ends, or the kernel no longer leads: then
// connection tracking forgets it, and its next packets are for the process or refused.
type machineTable struct {
	cfg *Config

	mu     sync.Mutex
	closed bool
	// ports are what the kernel leads or would lead. Of those that are left, this process has not begun them: a server
	// before did, or a session that has ended.
	ports map[hostPort]lead
	left  map[hostPort]bool
	links [2][]uint32 // Of each family.
	// text is the rules that were written, by the kernel's numbers; empty while that is not known. generation is the
	// kernel's number of what it has, and counts our own changes; others counts the times that somebody else's were seen.
	text       string
	generation uint32
	others     int
	// stale says that connection tracking may know what has come through ports that have ended: a server before was
	// killed before it was told, or it could not be told.
	stale bool
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

func newMachineTable(cfg *Config) *machineTable {
	return &machineTable{cfg: cfg, ports: map[hostPort]lead{}, left: map[hostPort]bool{}, stale: true}
}

// leads returns what of a port the kernel can lead.
func (n *Namespace) leads(owner string, cfg *PortConfig) map[hostPort]lead {
	at := cfg.Listen.Addr().Unmap()
	if n.machine == nil || at.IsLoopback() || at.IsLinkLocalUnicast() || cfg.Listen.Port() == 0 {
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

// tableSets are the sets of one family.
type tableSets struct {
	v6 bool
	// ports are those at all addresses, addressPorts those at one.
	links, strangers, ports, addressPorts *nftables.Set
}

func (t *machineTable) table() *nftables.Table {
	return &nftables.Table{Name: hostTable(t.cfg.Cluster), Family: nftables.TableFamilyINet}
}

// sets are those of the families that pods have.
func (t *machineTable) sets() []tableSets {
	var all []tableSets
	table, id := t.table(), uint32(0)
	add := func(s nftables.Set) *nftables.Set {
		id++
		s.Table, s.ID = table, id
		return &s
	}
	for _, r := range t.cfg.PodRanges {
		v, v6 := "4", r.Addr().Is6()
		if v6 {
			v = "6"
		}
		addr := nft.AddrType(v6)
		to := nftables.MustConcatSetType(addr, nftables.TypeInetService)
		all = append(all, tableSets{
			v6:        v6,
			links:     add(nftables.Set{Name: "links" + v, KeyType: nftables.TypeIFIndex}),
			strangers: add(nftables.Set{Name: "strangers" + v, KeyType: addr, Interval: true}),
			ports: add(nftables.Set{Name: "ports" + v, IsMap: true, Concatenation: true, DataType: to,
				KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)}),
			addressPorts: add(nftables.Set{Name: "addressports" + v, IsMap: true, Concatenation: true, DataType: to,
				KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, addr, nftables.TypeInetService)}),
		})
	}
	return all
}

// strangers are the ranges whose clients the kernel leads nowhere. Of IPv6, nothing of the loopback goes over a link.
func (t *machineTable) strangers() []nft.Range {
	return nft.Ranges(slices.Concat(t.cfg.PodRanges, t.cfg.ServiceRanges, []netip.Prefix{
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::1/128")}))
}

// adopt takes over what a server before had the kernel lead, so that clients find it until it is known what is wanted.
func (t *machineTable) adopt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, err := t.read()
	if err != nil {
		t.cfg.Log.Warn("clients of the machine's ports are refused until all is served again", "error", err)
		return
	}
	t.ports, t.links = found.ports, found.links
	for k := range t.ports {
		t.left[k] = true
	}
}

// content is what the table has.
type content struct {
	ports map[hostPort]lead
	links [2][]uint32
	text  string // The rules.
	whole bool   // All sets are there.
}

// read reads the table. What of it is not there, or not ours, is left out.
func (t *machineTable) read() (content, error) {
	c := content{ports: map[hostPort]lead{}, whole: true}
	conn, err := nftables.New()
	if err != nil {
		return c, fmt.Errorf("nftables of the machine: %w", err)
	}
	if c.text, err = rulesIn(conn, hostTable(t.cfg.Cluster)); err != nil || c.text == "" {
		return c, err
	}
	there, err := conn.GetSets(t.table())
	if err != nil {
		return c, fmt.Errorf("the sets of the machine's table %s: %w", hostTable(t.cfg.Cluster), err)
	}
	for _, s := range t.sets() {
		for _, set := range []*nftables.Set{s.links, s.strangers, s.ports, s.addressPorts} {
			if !slices.ContainsFunc(there, func(is *nftables.Set) bool { return is.Name == set.Name }) {
				c.whole = false
				continue
			}
			elements, err := conn.GetSetElements(set)
			if err != nil {
				return c, fmt.Errorf("the set %s of the machine's table %s: %w", set.Name, set.Table.Name, err)
			}
			switch set {
			case s.strangers:
				c.whole = c.whole && nft.SameIntervals(elements, nft.Intervals(t.strangers(), s.v6))
				continue
			case s.links:
				i := nft.Index(s.v6)
				for _, e := range elements {
					c.links[i] = append(c.links[i], binaryutil.NativeEndian.Uint32(e.Key))
				}
				slices.Sort(c.links[i])
				continue
			}
			for _, e := range elements {
				if k, l, ok := entryOf(e, s.v6, set == s.addressPorts); ok {
					c.ports[k] = l
				}
			}
		}
	}
	return c, nil
}

// replace writes the table anew, in place of any that is there, in one transaction unless it is too large.
func (t *machineTable) replace() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.write()
}

// write does so. It needs the lock.
func (t *machineTable) write() error {
	if t.closed {
		return nil
	}
	t.text = ""
	err := t.batch(func(b *nft.Batch) error {
		r := rules.Replace(b.Conn, hostTable(t.cfg.Cluster), nftables.TableFamilyINet)
		all := t.sets()
		for _, s := range all {
			for _, set := range []*nftables.Set{s.links, s.strangers, s.ports, s.addressPorts} {
				if err := b.Conn.AddSet(set, nil); err != nil {
					return err
				}
			}
			links := linkElements(t.links[nft.Index(s.v6)])
			if err := errors.Join(addElements(b, s.strangers, nft.Intervals(t.strangers(), s.v6)),
				addElements(b, s.links, links)); err != nil {
				return err
			}
		}
		t.chains(r, all)
		// In as few transactions as there may be, and behind the rules that need them.
		return t.put(b, all, t.ports, addElements)
	})
	if err != nil {
		return fmt.Errorf("the machine's table %s is refused by its nftables: %w", hostTable(t.cfg.Cluster), err)
	}
	t.forgetStale()
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables of the machine: %w", err)
	}
	if t.generation, err = nft.Generation(dialNetfilter); err != nil {
		return err
	}
	t.others++
	t.text, err = rulesIn(conn, hostTable(t.cfg.Cluster))
	return err
}

// chains writes the rules.
func (t *machineTable) chains(r *rules.Table, all []tableSets) {
	add := r.Chain("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, beforeTracking)
	for _, p := range t.cfg.PodRanges {
		add(rules.In(p, rules.Source), over(expr.CmpOpNeq, "lo"), over(expr.CmpOpNeq, hostLink(t.cfg.Cluster)),
			rules.Verdict(expr.VerdictDrop))
	}
	t.leading(r.Chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, behindOthers), all,
		expr.MetaKeyIIF)
	t.leading(r.Chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, behindOthers), all, expr.MetaKeyOIF)
	add = r.Chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, 100)
	for _, p := range t.cfg.PodRanges {
		add(rules.In(p, rules.Source), outOver(expr.CmpOpNeq, hostLink(t.cfg.Cluster)), rules.One(&expr.Masq{}))
	}
	add(rules.In(loopback4, rules.Source), outOver(expr.CmpOpEq, hostLink(t.cfg.Cluster)), rules.One(&expr.Masq{}))
}

// leading writes the rules of a chain that leads what goes over a link: that over which it comes, or leaves.
func (t *machineTable) leading(add rules.Add, all []tableSets, link expr.MetaKey) {
	for _, s := range all {
		family := byte(unix.NFPROTO_IPV4)
		if s.v6 {
			family = unix.NFPROTO_IPV6
		}
		from := slices.Concat(nft.OfFamily(s.v6), []expr.Any{
			&expr.Meta{Key: link, Register: nft.Register},
			&expr.Lookup{SourceRegister: nft.Register, SetName: s.links.Name, SetID: s.links.ID},
			nft.Source(s.v6, nft.Register),
			&expr.Lookup{SourceRegister: nft.Register, SetName: s.strangers.Name, SetID: s.strangers.ID, Invert: true},
		})
		leads := func(in *nftables.Set) []expr.Any {
			return []expr.Any{
				&expr.Lookup{SourceRegister: nft.Register, DestRegister: nft.Register, IsDestRegSet: true, SetName: in.Name,
					SetID: in.ID},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: nft.Register,
					RegProtoMin: nft.Quarter + nft.Width(s.v6)},
			}
		}
		add(from, []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Quarter}, nft.Destination(s.v6, nft.Quarter+1),
			nft.DestinationPort(nft.Quarter + 1 + nft.Width(s.v6)),
		}, leads(s.addressPorts))
		add(from, rules.Compare(&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true}, expr.CmpOpEq,
			binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Quarter}, nft.DestinationPort(nft.Quarter + 1),
		}, leads(s.ports))
	}
}

// over compares the link that a packet has come over.
func over(op expr.CmpOp, link string) []expr.Any {
	return rules.Meta(expr.MetaKeyIIFNAME, op, []byte(link+"\x00"))
}

// outOver compares the link that a packet leaves by.
func outOver(op expr.CmpOp, link string) []expr.Any {
	return rules.Meta(expr.MetaKeyOIFNAME, op, []byte(link+"\x00"))
}

// batch makes one change. It needs the lock.
func (t *machineTable) batch(f func(*nft.Batch) error) error {
	b, err := nft.NewBatch(dialNetfilter, nft.MostBytes)
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

func dialNetfilter() (*mdlayher.Conn, error) { return mdlayher.Dial(unix.NETLINK_NETFILTER, nil) }

// put puts ports into the maps, or takes them out, by f.
func (t *machineTable) put(b *nft.Batch, all []tableSets, ports map[hostPort]lead,
	f func(*nft.Batch, *nftables.Set, []nftables.SetElement) error,
) error {
	for _, s := range all {
		var everywhere, one []nftables.SetElement
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
		if err := errors.Join(f(b, s.ports, everywhere), f(b, s.addressPorts, one)); err != nil {
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

func linkElements(links []uint32) (elements []nftables.SetElement) {
	for _, index := range links {
		elements = append(elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(index)})
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
func (t *machineTable) leave(led map[hostPort]lead) {
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
func (t *machineTable) change(end, begin map[hostPort]lead, lapsed func(hostPort, lead) bool) {
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
	for k := range gone {
		delete(t.ports, k)
		delete(t.left, k)
	}
	maps.Copy(t.ports, come)
	t.carryOut(func(b *nft.Batch) error {
		all := t.sets()
		return errors.Join(t.put(b, all, gone, deleteElements), t.put(b, all, come, addElements))
	})
	t.forget(gone)
}

// carryOut makes a change, or writes all anew where that is refused: somebody may have taken the table away. It needs
// the lock.
func (t *machineTable) carryOut(change func(*nft.Batch) error) {
	err := t.batch(change)
	if err != nil {
		err = t.write()
	}
	if err != nil {
		t.text, t.stale = "", true
		t.cfg.Log.Warn("the kernel does not lead clients of the machine's ports as it should; it is tried again", "error",
			err)
	}
}

// leadFrom has the kernel lead clients that come over links, of each family, and no others. All are the links that
// there are.
func (t *machineTable) leadFrom(links [2][]uint32, all []uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range links {
		slices.Sort(links[i])
	}
	if t.closed || slices.Equal(links[0], t.links[0]) && slices.Equal(links[1], t.links[1]) {
		return
	}
	had := t.links
	t.links = links
	t.carryOut(func(b *nft.Batch) error {
		for _, s := range t.sets() {
			i := nft.Index(s.v6)
			if err := errors.Join(deleteElements(b, s.links, linkElements(without(had[i], links[i]))),
				addElements(b, s.links, linkElements(without(links[i], had[i])))); err != nil {
				return err
			}
		}
		return nil
	})
	// What came over a link that is there still would be lost on its way from now on.
	for i := range links {
		if slices.ContainsFunc(without(had[i], links[i]), func(l uint32) bool { return slices.Contains(all, l) }) {
			t.forget(t.ports)
			return
		}
	}
}

// without returns what is in a and not in b.
func without(a, b []uint32) []uint32 {
	return slices.DeleteFunc(slices.Clone(a), func(l uint32) bool { return slices.Contains(b, l) })
}

// settle writes the table anew unless the last change is known to have been made.
func (t *machineTable) settle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" {
		return nil
	}
	return t.write()
}

// through returns where ports lead what comes as a flow does.
func through(ports map[hostPort]lead, f conntrack.Flow) netip.AddrPort {
	k := hostPort{nft.ProtocolName(f.Orig.Protocol), f.Orig.Dst}
	if l, is := ports[k]; is {
		return l.to
	}
	return ports[k.everywhere()].to
}

// forget has connection tracking forget what was led by ports.
func (t *machineTable) forget(ports map[hostPort]lead) {
	if len(ports) > 0 {
		t.forgetFlows(func(f conntrack.Flow) bool { return f.Reply.Src == through(ports, f) })
	}
}

// forgetStale has connection tracking forget what is led to pods by no port that there is. It needs the lock.
func (t *machineTable) forgetStale() {
	if !t.stale {
		return
	}
	t.stale = false
	t.forgetFlows(func(f conntrack.Flow) bool {
		return f.Reply.Src != through(t.ports, f) && slices.ContainsFunc(t.cfg.PodRanges, func(r netip.Prefix) bool {
			return r.Contains(f.Reply.Src.Addr())
		})
	})
}

// forgetFlows has connection tracking forget those of the flows that were led elsewhere of which ended says so.
func (t *machineTable) forgetFlows(ended func(conntrack.Flow) bool) {
	err := func() error {
		conn, err := dialNetfilter()
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, s := range t.sets() {
			family := byte(unix.AF_INET)
			if s.v6 {
				family = unix.AF_INET6
			}
			flows, err := conntrack.Flows(conn, family)
			if err != nil {
				return err
			}
			for _, f := range flows {
				if !f.Translated() || !ended(f) {
					continue
				}
				if err := conntrack.Forget(conn, f); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	if err != nil {
		t.stale, t.text = true, "" // When the table is written anew, it is tried again.
		t.cfg.Log.Warn("connections through ports of the machine that have ended may go on", "error", err)
	}
}

// intact tells whether the table is as it was written. Where nobody else has changed anything, that costs nothing.
// Others says how often somebody has, with ours.
func (t *machineTable) intact() (ok bool, others int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// First, so that a change meanwhile is seen by the next look.
	generation, err := nft.Generation(dialNetfilter)
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
		slices.Equal(now.links[0], t.links[0]) && slices.Equal(now.links[1], t.links[1])
	if ok {
		t.generation = generation
	}
	return ok, t.others, nil
}

// close has nothing changed any more.
func (t *machineTable) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}
