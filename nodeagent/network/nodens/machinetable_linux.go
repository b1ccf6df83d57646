package nodens

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens/internal/rules"
)

// beforeTracking is where packets are looked at before connection tracking knows them.
const beforeTracking = -300

// loopback4 are the addresses of the machine's loopback that its programs use towards each other.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

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
// kernel. The process has the ports as well, and serves all whom the kernel does not lead: pods where no insideTable
// leads them, who do not come over those links, and strangers, whom nobody inside could answer or who claim to be
// somebody inside. The set links is the gate: it is empty while the kernel must not lead anybody; the machine's
// loopback among them stands for its own programs.
type machineTable struct{ portTable }

func newMachineTable(cfg *Config) *machineTable { return machineTableOf(cfg, hostTable(cfg.Cluster)) }

func machineTableOf(cfg *Config, name string) *machineTable {
	t := &machineTable{}
	t.portTable = newPortTable(cfg, place{
		table: &nftables.Table{Name: name, Family: nftables.TableFamilyINet}, title: "the machine's table " + name,
		nftables: func() (*nftables.Conn, error) {
			conn, err := nftables.New()
			if err != nil {
				return nil, fmt.Errorf("nftables of the machine: %w", err)
			}
			return conn, nil
		},
		netfilter: dialNetfilter,
		gateName:  "links", gateType: func(bool) nftables.SetDatatype { return nftables.TypeIFIndex },
		// Of IPv6, nothing of the loopback goes over a link.
		strangers: slices.Concat(cfg.PodRanges, cfg.ServiceRanges, []netip.Prefix{
			netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::1/128")}),
		write: t.chains,
		// Whoever else leads to pods, such as a cluster before, leads to none of ours.
		through: func(f conntrack.Flow) bool { return inRange(cfg, f.Reply.Src.Addr()) },
	})
	return t
}

func dialNetfilter() (*mdlayher.Conn, error) { return mdlayher.Dial(unix.NETLINK_NETFILTER, nil) }

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
		from := slices.Concat(nft.OfFamily(s.v6), inSet(s.gate, true, &expr.Meta{Key: link, Register: nft.Register}),
			inSet(s.strangers, false, nft.Source(s.v6, nft.Register)))
		add(from, s.lead(s.addressPorts))
		add(from, rules.Compare(&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true}, expr.CmpOpEq,
			binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)), s.lead(s.ports))
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

// leadFrom has the kernel lead clients that come over links, of each family, and no others. All are the links that
// there are.
func (t *machineTable) leadFrom(links [2][]uint32, all []uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gate [2][]string
	for i := range links {
		gate[i] = linkKeys(links[i])
	}
	there := linkKeys(all)
	// What came over a link that is there still would be lost on its way from now on.
	for _, links := range t.open(gate) {
		if slices.ContainsFunc(links, func(l string) bool { return slices.Contains(there, l) }) {
			t.forget(t.ports)
			return
		}
	}
}

func linkKeys(links []uint32) (keys []string) {
	for _, index := range links {
		keys = append(keys, string(binaryutil.NativeEndian.PutUint32(index)))
	}
	return keys
}
