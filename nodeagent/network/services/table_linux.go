package services

import (
	"crypto/sha256"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
)

// TableName is the name of the table, of family inet.
const TableName = "monoplane-services"

// schema is changed with the fixed part of the table, so that a table of another version is made anew.
const schema = "1"

// The fixed chains; Reject and Drop are chains too.
const (
	chainServices    = "services"
	chainPrerouting  = "prerouting"
	chainOutput      = "output"
	chainPostrouting = "postrouting"
)

// Registers. Each of the first is 16 bytes and four of the small ones; an IPv6 endpoint with its port takes the second
// and the first quarter of the third.
const (
	regKey     = unix.NFT_REG_1
	regBackend = unix.NFT_REG_2
	reg32Key   = unix.NFT_REG32_00
	reg32End   = unix.NFT_REG32_04
)

const (
	dnatted   = 1 << 5 // IPS_DST_NAT in the status of a connection
	dynUpdate = 1      // NFT_DYNSET_OP_UPDATE
	dynDelete = 2      // NFT_DYNSET_OP_DELETE

	// mostRemembered bounds the clients that an affinity map remembers. Further ones are served without.
	mostRemembered = 65536
	// mostBackends bounds the endpoints of a chain to what one message of netlink can carry.
	mostBackends = 1024
)

// table has the sets and maps of the fixed part. Those of a family are at 0 for IPv4, at 1 for IPv6.
type table struct {
	*nftables.Table

	lasting                                           *nft.Table // what it has at any time
	services, nodePorts, hairpins, clusterIPs, inside [2]*nftables.Set
	// ranges are what the sets inside have.
	ranges []netip.Prefix
}

func newTable(inside []netip.Prefix) *table {
	t := &table{Table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}, ranges: inside}
	for i, addr := range [2]nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeIP6Addr} {
		v := "4"
		if i == 1 {
			v = "6"
		}
		t.services[i] = &nftables.Set{
			Table: t.Table, Name: "services" + v, IsMap: true, Concatenation: true, DataType: nftables.TypeVerdict,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, addr, nftables.TypeInetService),
		}
		t.nodePorts[i] = &nftables.Set{
			Table: t.Table, Name: "nodeports" + v, IsMap: true, Concatenation: true, DataType: nftables.TypeVerdict,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
		}
		t.hairpins[i] = &nftables.Set{
			Table: t.Table, Name: "hairpins" + v, Concatenation: true, KeyType: nftables.MustConcatSetType(addr, addr),
		}
		t.clusterIPs[i] = &nftables.Set{Table: t.Table, Name: "clusterips" + v, KeyType: addr}
		t.inside[i] = &nftables.Set{Table: t.Table, Name: "inside" + v, KeyType: addr, Interval: true}
	}
	sum := sha256.Sum256(fmt.Append(nil, inside))
	t.lasting = &nft.Table{Table: t.Table, Fixed: t.fixed, Version: fmt.Sprintf("%s/%x", schema, sum[:4])}
	return t
}

func (t *table) sets() []*nftables.Set {
	var out []*nftables.Set
	for i := range 2 {
		out = append(out, t.services[i], t.nodePorts[i], t.hairpins[i], t.clusterIPs[i], t.inside[i])
	}
	return out
}

// fixed returns the chains of the fixed part with their rules, those first to which others lead.
func (t *table) fixed() []nft.FixedChain {
	nat := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{
			Table: t.Table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority,
		}
	}
	jump := [][]expr.Any{{&expr.Verdict{Kind: expr.VerdictJump, Chain: chainServices}}}
	return []nft.FixedChain{
		{Chain: &nftables.Chain{Table: t.Table, Name: Reject}, Rules: [][]expr.Any{
			{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regKey},
				&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
			},
			{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}},
		}},
		{Chain: &nftables.Chain{Table: t.Table, Name: Drop}, Rules: [][]expr.Any{{&expr.Verdict{Kind: expr.VerdictDrop}}}},
		{Chain: &nftables.Chain{Table: t.Table, Name: chainServices}, Rules: t.dispatch()},
		{Chain: nat(chainPrerouting, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest), Rules: jump},
		{Chain: nat(chainOutput, nftables.ChainHookOutput, nftables.ChainPriorityNATDest), Rules: jump},
		{
			Chain: nat(chainPostrouting, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
			Rules: t.masquerade(),
		},
	}
}

// dispatch are the rules that find the chain of a packet.
func (t *table) dispatch() [][]expr.Any {
	var rules [][]expr.Any
	for i, v6 := range []bool{false, true} {
		size := uint32(1)
		if v6 {
			size = 4
		}
		rules = append(rules,
			nft.Join(nft.OfFamily(v6), []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg32Key},
				nft.Destination(v6, reg32Key+1), nft.DestinationPort(reg32Key + 1 + size),
				&expr.Lookup{
					SourceRegister: regKey, SetName: t.services[i].Name, IsDestRegSet: true,
				},
			}),
			nft.Join(nft.OfFamily(v6), []expr.Any{
				nft.Destination(v6, regKey),
				&expr.Lookup{SourceRegister: regKey, SetName: t.clusterIPs[i].Name},
				&expr.Verdict{Kind: expr.VerdictGoto, Chain: Reject},
			}),
			nft.Join(nft.OfFamily(v6), notLoopback(v6), []expr.Any{
				&expr.Fib{Register: regKey, FlagDADDR: true, ResultADDRTYPE: true},
				&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg32Key}, nft.DestinationPort(reg32Key + 1),
				&expr.Lookup{SourceRegister: regKey, SetName: t.nodePorts[i].Name, IsDestRegSet: true},
			}),
		)
	}
	return rules
}

// masquerade are the rules that give a connection of an endpoint to itself another source address.
func (t *table) masquerade() [][]expr.Any {
	var rules [][]expr.Any
	for i, v6 := range []bool{false, true} {
		size := uint32(1)
		if v6 {
			size = 4
		}
		rules = append(rules, nft.Join(nft.OfFamily(v6), []expr.Any{
			&expr.Ct{Key: expr.CtKeySTATUS, Register: regKey},
			&expr.Bitwise{
				SourceRegister: regKey, DestRegister: regKey, Len: 4,
				Mask: binaryutil.NativeEndian.PutUint32(dnatted), Xor: make([]byte, 4),
			},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: regKey, Data: make([]byte, 4)},
			nft.Source(v6, reg32Key), nft.Destination(v6, reg32Key+size),
			&expr.Lookup{SourceRegister: regKey, SetName: t.hairpins[i].Name},
			&expr.Masq{},
		}))
	}
	return rules
}

// chainRules makes the rules of a Service's chain.
func (t *table) chainRules(c Chain) func(nft.NewSet) ([][]expr.Any, error) {
	return func(sets nft.NewSet) ([][]expr.Any, error) { return t.rules(c, sets) }
}

func (t *table) rules(c Chain, sets nft.NewSet) ([][]expr.Any, error) {
	var rules [][]expr.Any
	if c.Inside != "" {
		// Pods and the node itself are inside. A client outside keeps its address on its way here.
		rules = append(rules,
			[]expr.Any{
				nft.Source(c.V6, regKey), &expr.Lookup{SourceRegister: regKey, SetName: t.inside[nft.Index(c.V6)].Name},
				&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Inside},
			},
			[]expr.Any{
				&expr.Fib{Register: regKey, FlagSADDR: true, ResultADDRTYPE: true},
				&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
				&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Inside},
			})
	}
	if c.Inside != "" && len(c.Own) > 0 {
		var elements []nftables.SetElement
		for _, a := range c.Own {
			elements = append(elements, nftables.SetElement{Key: a.AsSlice()})
		}
		set, err := sets(&nftables.Set{KeyType: nft.AddrType(c.V6)}, elements)
		if err != nil {
			return nil, err
		}
		rules = append(rules, []expr.Any{
			nft.Source(c.V6, regKey), &expr.Lookup{SourceRegister: regKey, SetName: set.Name, SetID: set.ID},
			&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Inside},
		})
	}
	switch {
	case c.Next != "":
		if elements := nft.Intervals(nft.Ranges(c.Sources), c.V6); len(elements) > 0 {
			set, err := sets(&nftables.Set{Interval: true, KeyType: nft.AddrType(c.V6)}, elements)
			if err != nil {
				return nil, err
			}
			rules = append(rules, []expr.Any{
				nft.Source(c.V6, regKey), &expr.Lookup{SourceRegister: regKey, SetName: set.Name, SetID: set.ID},
				&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Next},
			})
		}
		fallthrough
	case len(c.Backends) == 0:
		return append(rules, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}), nil
	}
	more, err := t.balance(c, sets)
	return append(rules, more...), err
}

// balance are the rules that lead to one of the backends, for a client that is remembered to that which it had.
func (t *table) balance(c Chain, sets nft.NewSet) ([][]expr.Any, error) {
	to := c.Backends[:min(len(c.Backends), mostBackends)]
	backendType := nftables.MustConcatSetType(nft.AddrType(c.V6), nftables.TypeInetService)
	var numbered, known []nftables.SetElement
	for i, b := range to {
		numbered = append(numbered, nftables.SetElement{
			Key: binaryutil.NativeEndian.PutUint32(uint32(i)), Val: backendBytes(b), //nolint:gosec // bounded
		})
		known = append(known, nftables.SetElement{Key: backendBytes(b)})
	}
	dnat := &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: regBackend,
		RegProtoMin: reg32End + nft.Width(c.V6),
	}
	if c.V6 {
		dnat.Family = unix.NFPROTO_IPV6
	}
	pickOne := func() ([]expr.Any, error) {
		set, err := sets(&nftables.Set{
			IsMap: true, KeyType: nftables.TypeInteger, DataType: backendType, KeyByteOrder: binaryutil.NativeEndian,
		}, numbered)
		if err != nil {
			return nil, err
		}
		return []expr.Any{
			&expr.Numgen{Register: regBackend, Type: unix.NFT_NG_RANDOM, Modulus: uint32(len(to))}, //nolint:gosec // bounded
			&expr.Lookup{
				SourceRegister: regBackend, DestRegister: regBackend, IsDestRegSet: true, SetName: set.Name, SetID: set.ID,
			},
		}, nil
	}
	random, err := pickOne()
	if err != nil || c.Affinity == "" {
		return [][]expr.Any{nft.Join(random, []expr.Any{dnat})}, err
	}
	valid, err := sets(&nftables.Set{KeyType: backendType, Concatenation: true}, known)
	if err != nil {
		return nil, err
	}
	again, err := pickOne()
	if err != nil {
		return nil, err
	}
	remember := &expr.Dynset{
		SrcRegKey: regKey, SrcRegData: regBackend, SetName: c.Affinity, Operation: dynUpdate, Timeout: c.Timeout,
	}
	forget := &expr.Dynset{SrcRegKey: regKey, SrcRegData: regBackend, SetName: c.Affinity, Operation: dynDelete}
	return [][]expr.Any{
		{ // the backend that the client had, if it still is one
			nft.Source(c.V6, regKey),
			&expr.Lookup{SourceRegister: regKey, DestRegister: regBackend, IsDestRegSet: true, SetName: c.Affinity},
			&expr.Lookup{SourceRegister: regBackend, SetName: valid.Name, SetID: valid.ID},
			remember, dnat,
		},
		// Remembering does not overwrite, and a rule ends where the map is full: then the last rule serves.
		nft.Join([]expr.Any{nft.Source(c.V6, regKey)}, random, []expr.Any{forget, remember, dnat}),
		nft.Join(again, []expr.Any{dnat}),
	}, nil
}

// affinitySet returns the map that remembers clients.
func (t *table) affinitySet(a Affinity) *nftables.Set {
	return t.lasting.Number(&nftables.Set{
		Table: t.Table, Name: a.Name, IsMap: true, Dynamic: true, HasTimeout: true, Timeout: defaultAffinity,
		Size: mostRemembered, KeyType: nft.AddrType(a.V6), Concatenation: false,
		DataType: nftables.MustConcatSetType(nft.AddrType(a.V6), nftables.TypeInetService),
	})
}

// notLoopback leaves out loopback addresses: the answer to a rewritten packet would not get out of the machine.
func notLoopback(v6 bool) []expr.Any {
	if v6 {
		return []expr.Any{
			nft.Destination(v6, regKey),
			&expr.Cmp{Op: expr.CmpOpNeq, Register: regKey, Data: netip.IPv6Loopback().AsSlice()},
		}
	}
	first := &expr.Payload{
		DestRegister: regKey, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1,
	}
	return []expr.Any{first, &expr.Cmp{Op: expr.CmpOpNeq, Register: regKey, Data: []byte{127}}}
}
