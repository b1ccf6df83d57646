package policies

import (
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
)

// TableName is the name of the table, of family inet.
const TableName = "monoplane-policy"

// schema is changed with the fixed part of the table, so that a table of another version is made anew.
const schema = "1"

// The fixed chains. What is not settled by the chain of its hook is judged: first what its sender may send, then, in
// the chain receive, what its receiver may get.
const (
	chainForward = "forward"
	chainInput   = "input"
	chainOutput  = "output"
	chainJudge   = "judge"
	chainReceive = "receive"
	chainRefuse  = "refuse"
)

// afterOthers is where the hooks are: behind the node namespace's own, which refuse what goes nowhere.
const afterOthers = 10

// Bits of the state of a connection: NF_CT_STATE_BIT of IP_CT_ESTABLISHED and of IP_CT_RELATED.
const (
	established = 1 << 1
	related     = 1 << 2
)

// table makes the parts of the table.
type table struct {
	*nftables.Table

	lasting *nft.Table // what it has at any time
}

func newTable() *table {
	t := &table{Table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}}
	t.lasting = &nft.Table{Table: t.Table, Fixed: t.fixed, Version: schema}
	return t
}

// set returns a set of one family by its name.
func (t *table) set(name string) *nftables.Set {
	v6 := strings.HasSuffix(name, "6")
	s := &nftables.Set{Table: t.Table, Name: name, KeyType: nft.AddrType(v6)}
	switch {
	case strings.HasPrefix(name, portsPrefix):
		s.Concatenation = true
		s.KeyType = nftables.MustConcatSetType(nft.AddrType(v6), nftables.TypeInetProto, nftables.TypeInetService)
	case isMap(name):
		s.IsMap, s.DataType = true, nftables.TypeVerdict
	}
	return s
}

// isMap tells a map of the fixed part from sets.
func isMap(name string) bool { return !isOwn(name) && !strings.HasPrefix(name, nodeSet) }

// isOwn tells a set that policies need from those of the fixed part.
func isOwn(name string) bool {
	return strings.HasPrefix(name, peersPrefix) || strings.HasPrefix(name, portsPrefix)
}

// fixedSets are the names of the sets and maps of the fixed part.
func fixedSets() []string {
	var out []string
	for _, v6 := range []bool{false, true} {
		for _, name := range []string{nodeSet, Ingress.String(), Egress.String()} {
			out = append(out, fixedName(name, v6))
		}
	}
	return out
}

// fixed returns the chains of the fixed part with their rules, those first to which others lead.
func (t *table) fixed() []nft.FixedChain {
	chain := func(name string, rules ...[]expr.Any) nft.FixedChain {
		return nft.FixedChain{Chain: &nftables.Chain{Table: t.Table, Name: name}, Rules: rules}
	}
	hook := func(name string, at *nftables.ChainHook, rules ...[]expr.Any) nft.FixedChain {
		return nft.FixedChain{Chain: &nftables.Chain{
			Table: t.Table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: at,
			Priority: nftables.ChainPriorityRef(afterOthers),
		}, Rules: rules}
	}
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	goOn := nft.Join([]expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Register},
		&expr.Bitwise{
			SourceRegister: nft.Register, DestRegister: nft.Register, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(established | related), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: nft.Register, Data: make([]byte, 4)},
	}, accept)
	return []nft.FixedChain{
		chain(chainRefuse,
			[]expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Register},
				&expr.Cmp{Op: expr.CmpOpEq, Register: nft.Register, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
			},
			[]expr.Any{&expr.Reject{
				Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED,
			}}),
		chain(chainReceive, append(t.lookups(nft.Destination, Ingress.String()), accept)...),
		chain(chainJudge, append(append(append(
			t.lookups(nft.Source, nodeSet), t.lookups(nft.Destination, nodeSet)...), t.lookups(nft.Source, Egress.String())...),
			to(chainReceive))...),
		hook(chainForward, nftables.ChainHookForward, goOn, to(chainJudge)),
		// What pods send to the node itself, and its neighbours' talk. What the process carries out of the machine is going
		// to an address that is not the node's, and is judged.
		hook(chainInput, nftables.ChainHookInput, goOn,
			nft.Join(kind(expr.Fib{FlagDADDR: true}, unix.RTN_LOCAL), accept),
			nft.Join(kind(expr.Fib{FlagDADDR: true}, unix.RTN_MULTICAST), accept), to(chainJudge)),
		// What the node sends itself. Clients of ports of the machine have addresses of their own here.
		hook(chainOutput, nftables.ChainHookOutput, goOn,
			nft.Join(kind(expr.Fib{FlagSADDR: true}, unix.RTN_LOCAL), accept), to(chainJudge)),
	}
}

// kind matches packets by whose address one of theirs is.
func kind(of expr.Fib, number uint32) []expr.Any {
	of.Register, of.ResultADDRTYPE = nft.Register, true
	return []expr.Any{
		&of, &expr.Cmp{Op: expr.CmpOpEq, Register: nft.Register, Data: binaryutil.NativeEndian.PutUint32(number)},
	}
}

func to(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// lookups are the rules, one a family, that look an address up: in a map, which says where to go, or in a set, for
// which the packet is accepted.
func (t *table) lookups(side func(v6 bool, reg uint32) expr.Any, set string) [][]expr.Any {
	var out [][]expr.Any
	for _, v6 := range []bool{false, true} {
		name := fixedName(set, v6)
		look := []expr.Any{
			side(v6, nft.Register),
			&expr.Lookup{SourceRegister: nft.Register, SetName: name, IsDestRegSet: isMap(name)},
		}
		if !isMap(name) {
			look = append(look, &expr.Verdict{Kind: expr.VerdictAccept})
		}
		out = append(out, nft.Join(nft.OfFamily(v6), look))
	}
	return out
}

// chainRules makes the rules of a chain.
func (t *table) chainRules(c Chain) func(nft.NewSet) ([][]expr.Any, error) {
	return func(sets nft.NewSet) ([][]expr.Any, error) { return t.rules(c, sets) }
}

func (t *table) rules(c Chain, sets nft.NewSet) ([][]expr.Any, error) {
	if len(c.Policies) > 0 {
		var out [][]expr.Any
		for _, name := range c.Policies {
			out = append(out, []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: name}})
		}
		return append(out, to(chainRefuse)), nil
	}
	// What the sender may send still has to be judged for the receiver.
	allowed, side := to(chainReceive), nft.Destination
	if c.Direction == Ingress {
		allowed, side = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, nft.Source
	}
	var out [][]expr.Any
	for _, a := range c.Allow {
		// Unnamed sets are for one rule each, so the matches are made anew for every pair.
		for _, peer := range t.peerMatches(a, side) {
			for _, port := range t.portMatches(a) {
				p, err := port(sets)
				if err != nil {
					return nil, err
				}
				who, err := peer(sets)
				if err != nil {
					return nil, err
				}
				out = append(out, nft.Join(p, who, allowed))
			}
		}
	}
	return out, nil
}

// match makes a part of a rule.
type match func(nft.NewSet) ([]expr.Any, error)

// plain is a match without sets of its own.
func plain(parts ...expr.Any) match {
	return func(nft.NewSet) ([]expr.Any, error) { return parts, nil }
}

// within is a match of a packet of which what some expressions read is in an unnamed set.
func within(read []expr.Any, of nftables.Set, elements []nftables.SetElement) match {
	return func(sets nft.NewSet) ([]expr.Any, error) {
		s, err := sets(&of, elements)
		if err != nil {
			return nil, err
		}
		return nft.Join(read, []expr.Any{
			&expr.Lookup{SourceRegister: nft.Register, SetName: s.Name, SetID: s.ID},
		}), nil
	}
}

// peerMatches are the ways in which a packet's other end can be a peer.
func (t *table) peerMatches(a Allowance, side func(v6 bool, reg uint32) expr.Any) []match {
	if a.Anybody {
		return []match{plain()}
	}
	var out []match
	for _, v6 := range []bool{false, true} {
		read := nft.Join(nft.OfFamily(v6), []expr.Any{side(v6, nft.Register)})
		for _, name := range a.Peers {
			out = append(out, plain(nft.Join(read, []expr.Any{
				&expr.Lookup{SourceRegister: nft.Register, SetName: familyName(name, v6)},
			})...))
		}
		if elements := nft.Intervals(a.Blocks, v6); len(elements) > 0 {
			out = append(out, within(read, nftables.Set{KeyType: nft.AddrType(v6), Interval: true}, elements))
		}
	}
	return out
}

// portMatches are the ways in which a packet can be for a port.
func (t *table) portMatches(a Allowance) []match {
	if a.Anything {
		return []match{plain()}
	}
	var out []match
	var single []nftables.SetElement
	seen := map[Ports]bool{}
	for _, p := range a.Ports {
		number, _ := nft.Protocol(p.Protocol)
		if seen[p] {
			continue
		}
		seen[p] = true
		if p.First == p.Last {
			single = append(single, nftables.SetElement{
				Key: append([]byte{number, 0, 0, 0}, nft.PortBytes(p.First)...),
			})
			continue
		}
		is := []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: nft.Register, Data: []byte{number}},
		}
		if p.First > 0 || p.Last < 65535 {
			is = append(is, nft.DestinationPort(nft.Register),
				&expr.Cmp{Op: expr.CmpOpGte, Register: nft.Register, Data: binaryutil.BigEndian.PutUint16(p.First)},
				&expr.Cmp{Op: expr.CmpOpLte, Register: nft.Register, Data: binaryutil.BigEndian.PutUint16(p.Last)})
		}
		out = append(out, plain(is...))
	}
	if len(single) > 0 {
		out = append(out, within(
			[]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Quarter}, nft.DestinationPort(nft.Quarter + 1)},
			nftables.Set{
				Concatenation: true, KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
			}, single))
	}
	for _, name := range a.Named {
		for _, v6 := range []bool{false, true} {
			port := nft.Quarter + nft.Width(v6)
			out = append(out, plain(nft.Join(nft.OfFamily(v6), []expr.Any{
				nft.Destination(v6, nft.Quarter), &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: port},
				nft.DestinationPort(port + 1), &expr.Lookup{SourceRegister: nft.Register, SetName: familyName(name, v6)},
			})...))
		}
	}
	return out
}
