package nodens

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens/internal/helper"
	"monoplane.dev/nodeagent/network/nodens/internal/rules"
)

// insideName is the name of the table.
const insideName = "monoplane-hostports"

// insideTable keeps the table of nftables that the node namespace has for pods that use host ports:
//
//	prerouting, behind Services
//	  from a pod, to an address of the set own, for a port of a map     marked as led by the kernel, to its target
//	postrouting
//	  from a pod to itself, of the set hairpins                         with an address of the node, or the answer would
//	                                                                    not come back this way
//
// The set own is the gate: addresses of the machine.
type insideTable struct{ portTable }

func newInsideTable(n *Namespace) *insideTable {
	t := &insideTable{}
	t.portTable = newPortTable(&n.cfg, place{
		table: &nftables.Table{Name: insideName, Family: nftables.TableFamilyINet},
		title: "the table " + insideName + " of the node namespace", nftables: n.NFTables, netfilter: n.Netfilter,
		gateName: "own", gateType: nft.AddrType, hairpins: true, write: t.chains,
		// Services translate, too. What of that has the mark has come from the machine to an address of the namespace.
		through: func(f conntrack.Flow) bool {
			return f.Mark == helper.Led && !inRange(&n.cfg, f.Orig.Dst.Addr())
		},
	})
	return t
}

// chains writes the rules.
func (t *insideTable) chains(r *rules.Table, all []tableSets) {
	add := r.Chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, behindOthers)
	// The process may still have the transparent socket of a connection of before, which would take the answers.
	mark := []expr.Any{
		&expr.Immediate{Register: unix.NFT_REG_4, Data: binaryutil.NativeEndian.PutUint32(helper.Led)},
		&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: unix.NFT_REG_4},
	}
	for _, s := range all {
		from := slices.Concat(rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(helper.PodPrefix)),
			nft.OfFamily(s.v6), inSet(s.gate, true, nft.Destination(s.v6, nft.Register)))
		add(from, s.lead(s.addressPorts, mark...))
		add(from, s.lead(s.ports, mark...))
	}
	add = r.Chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, 100)
	for _, s := range all {
		add(nft.OfFamily(s.v6), inSet(s.hairpins, true, nft.Source(s.v6, nft.Quarter),
			nft.Destination(s.v6, nft.Quarter+nft.Width(s.v6))), rules.One(&expr.Masq{}))
	}
}

// LeadPods has the kernel lead pods to host ports at these addresses of the machine, as far as the ports have them.
// At others they come out of the namespace, to this process. Until it is called, the addresses are those that a server
// before has said.
func (n *Namespace) LeadPods(own []netip.Addr) { n.inside.leadAt(own) }

func (t *insideTable) leadAt(own []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gate [2][]string
	for _, a := range own {
		if inRange(t.cfg, a) || !slices.ContainsFunc(t.cfg.PodRanges, func(r netip.Prefix) bool {
			return r.Addr().Is4() == a.Is4()
		}) {
			continue
		}
		i := nft.Index(a.Is6())
		gate[i] = append(gate[i], string(a.AsSlice()))
	}
	shut := t.open(gate)
	if len(shut[0])+len(shut[1]) == 0 {
		return
	}
	t.forgetFlows(func(f conntrack.Flow) bool {
		at := f.Orig.Dst.Addr()
		return slices.Contains(shut[nft.Index(at.Is6())], string(at.AsSlice())) && f.Reply.Src == leadOf(t.ports, f)
	})
}
