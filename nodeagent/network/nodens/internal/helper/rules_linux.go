package helper

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens/internal/rules"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// tableName is the name of the table.
const tableName = "monoplane"

// afterDNAT is where our chain looks at what comes in: behind the translation of Services, so that it sees where a
// packet goes in the end.
const afterDNAT = -90

// beforeDNAT is where another looks at what is sent from here.
const beforeDNAT = -150

// beforeMasquerade is where we give what leaves another source: before Services do so to what leads back to where it
// comes from.
const beforeMasquerade = 99

// afterPolicies is where connections are asked about: behind package policies, so that nobody is asked for what a pod
// must not reach. Their answers are looked at behind it.
const afterPolicies = 20

// dnatted is in the status of a connection that was led elsewhere: IPS_DST_NAT.
const dnatted = 1 << 5

// Directions of a connection's packets: IP_CT_DIR_ORIGINAL, IP_CT_DIR_REPLY.
const (
	original = 0
	replies  = 1
)

// setRules replaces the table "monoplane" of the node namespace, in one transaction:
//
//	output
//	  what a socket sends with an address of somebody else      its connection marked
//	  what refuses a connection so marked                       delivered to its socket
//	  of a Service, to elsewhere, where the process is the way  back into prerouting
//	prerouting, behind the translation of Services
//	  of a connection between pods, from a source of the set    on
//	  from the machine, of a connection so marked               marked as led by the machine's kernel from now on
//	  answers to connections so marked                          delivered to their sockets
//	  what a transparent socket of this namespace waits for     delivered to it, if it is not led so
//	  of a Service, to elsewhere, where the process is the way  to the process, whoever sends it
//	  from a pod, with an address that is not the pod's         dropped
//	  of a connection between pods                              its source put into the set
//	  from a pod to pods, Services, the node                    on, as routes say
//	  from a pod to elsewhere, where the process is the way out to the process, or refused
//	input, behind policies
//	  a connection that begins, to the process                  to its queue; it goes on, or is marked
//	  so marked                                                 refused
//	forward
//	  of a connection between pods                              on
//	  to a Service that nobody has translated                   refused
//	  from a pod to a pod                                       its connection marked as one between pods
//	postrouting
//	  of a Service, to the machine, not from a pod              with an address of the node
//
// A Service may lead out of the namespace: to a program of the machine, a pod with hostNetwork, or elsewhere. Whoever
// has come in over the link to the machine would be answered past this namespace, which alone knows what was
// translated, or not at all: the machine takes nothing over a link that has one of its own addresses.
//
// What pods send each other is thus looked at by a few rules from the third packet of a connection on. The sets
// sources4 and sources6 are what the look at the source has found, for a minute: links, and the addresses that lead to
// them.
func setRules(want *wire.Setup) error {
	ways := [][]expr.Any{nil}
	if want.Process && want.Queue != 0 {
		// Kernels have one of the two, or neither: then connections are not asked about.
		ways = [][]expr.Any{rules.Queue(want.Queue), rules.QueueTarget(want.Queue), nil}
	}
	return writeFirst(want, ways)
}

// writeFirst writes the rules with the first of the ways of asking the process that the kernel has.
func writeFirst(want *wire.Setup, ways [][]expr.Any) (err error) {
	for _, ask := range ways {
		if err = writeRules(want, ask); err == nil {
			return nil
		}
	}
	return err
}

// writeRules does so; ask hands a packet to the queue, unless it is nil.
func writeRules(want *wire.Setup, ask []expr.Any) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables of the node namespace: %w", err)
	}
	t := rules.Replace(conn, tableName, nftables.TableFamilyINet)
	sources, err := sourcesOf(t)
	if err != nil {
		return err
	}
	output(t, want)
	prerouting(t, want, sources)
	if ask != nil {
		input(t, ask)
	}
	forward(t)
	postrouting(t, want)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("the rules of the node namespace were refused by nftables: %w", err)
	}
	return nil
}

// output marks connections that clients of the machine's ports have by way of a transparent socket. Their answers
// cannot be told by the socket alone: what a Service's address was translated to on the way there is translated back
// only when the answer is delivered.
func output(t *rules.Table, want *wire.Setup) {
	add := t.Chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, beforeDNAT)
	add(rules.Compare(&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: true}, expr.CmpOpNeq,
		binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)),
		direction(original), setMark(mark))
	// Where rules of this namespace refuse such a connection, such as package policies', the kernel sends the refusal
	// from here, to the address of somebody else, from where it would not come back.
	add = t.Chain("refusals", nftables.ChainTypeRoute, nftables.ChainHookOutput, beforeDNAT)
	add(answers(), deliver())
	if want.Process {
		add = t.Chain("around", nftables.ChainTypeRoute, nftables.ChainHookOutput, afterDNAT)
		leave(add, want, translated())
		add(translated(), direction(original), deliver())
	}
}

// leave leaves to routes what is for pods, Services and this namespace, of what matches.
func leave(add rules.Add, want *wire.Setup, match ...[]expr.Any) {
	accept := rules.Verdict(expr.VerdictAccept)
	for _, p := range slices.Concat(want.PodRanges, want.ServiceRanges) {
		add(slices.Concat(match...), rules.In(p, rules.Destination), accept)
	}
	add(slices.Concat(match...), rules.Compare(&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
		expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)), accept)
}

// toProcess hands the rest of what matches to the process.
func toProcess(add rules.Add, want *wire.Setup, match ...[]expr.Any) {
	leave(add, want, match...)
	for _, to := range want.TCP {
		add(slices.Concat(match...), rules.Meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{unix.IPPROTO_TCP}),
			rules.TProxy(to), deliver())
	}
	for _, to := range want.UDP {
		add(slices.Concat(match...), rules.Meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{unix.IPPROTO_UDP}),
			rules.TProxy(to), deliver())
	}
}

// translated matches connections that are led to another destination than they were made to.
func translated() []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(dnatted),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)}}
}

// answers matches what answers connections that output has marked.
func answers() []expr.Any {
	return append(marked(expr.CmpOpEq, mark), direction(replies)...)
}

// marked compares the mark of a packet's connection.
func marked(op expr.CmpOp, with uint32) []expr.Any {
	return rules.Compare(&expr.Ct{Key: expr.CtKeyMARK, Register: 1}, op, binaryutil.NativeEndian.PutUint32(with))
}

// setMark marks the connection of a packet.
func setMark(to uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(to)},
		&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1},
	}
}

func direction(of byte) []expr.Any {
	return rules.Compare(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, expr.CmpOpEq, []byte{of})
}

// deliver marks a packet, so that it is routed to a socket of this namespace.
func deliver() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// sources is a set of the links and addresses of pods that packets have come from.
type sources struct {
	v6  bool
	set *nftables.Set
}

const (
	// sourcesTime is for how long a source is known. It bounds how many of pods that are gone are in a set.
	sourcesTime = time.Minute
	// mostSources is more than the pods of a node have addresses.
	mostSources = 1 << 14
)

func sourcesOf(t *rules.Table) (all []sources, err error) {
	for i, v6 := range []bool{false, true} {
		s := sourcesSet(v6)
		s.ID = uint32(i + 1)
		set, err := t.Set(s)
		if err != nil {
			return nil, fmt.Errorf("the set %s of the node namespace: %w", s.Name, err)
		}
		all = append(all, sources{v6: v6, set: set})
	}
	return all, nil
}

func sourcesSet(v6 bool) nftables.Set {
	name := "sources4"
	if v6 {
		name = "sources6"
	}
	return nftables.Set{Name: name, Concatenation: true, Dynamic: true, HasTimeout: true, Timeout: sourcesTime,
		KeyType: nftables.MustConcatSetType(nftables.TypeIFIndex, nft.AddrType(v6)), Size: mostSources}
}

// of puts the link and the source of a packet into nft.Register.
func (s sources) of() []expr.Any {
	return append(nft.OfFamily(s.v6), &expr.Meta{Key: expr.MetaKeyIIF, Register: nft.Quarter},
		nft.Source(s.v6, nft.Quarter+1))
}

// have matches packets whose source is in the set.
func (s sources) have() []expr.Any {
	return append(s.of(), &expr.Lookup{SourceRegister: nft.Register, SetName: s.set.Name, SetID: s.set.ID})
}

// learn puts the source of a packet into the set.
func (s sources) learn() []expr.Any {
	return append(s.of(), &expr.Dynset{SrcRegKey: nft.Register, SetName: s.set.Name, SetID: s.set.ID,
		Operation: unix.NFT_DYNSET_OP_ADD})
}

// forgetSources has the rules look at the sources of packets anew, after a pod has lost an address that it had.
func forgetSources() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables of the node namespace: %w", err)
	}
	for _, v6 := range []bool{false, true} {
		s := sourcesSet(v6)
		s.Table = &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
		conn.FlushSet(&s)
	}
	// Somebody may have taken the table away, until it is put right.
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the sources of packets that the node namespace knows cannot be forgotten: %w", err)
	}
	return nil
}

func prerouting(t *rules.Table, want *wire.Setup, known []sources) {
	accept := rules.Verdict(expr.VerdictAccept)
	add := t.Chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, afterDNAT)
	for _, s := range known {
		add(marked(expr.CmpOpEq, betweenPods), s.have(), accept)
	}
	if want.Uplink != "" {
		// The process may still have the socket of a flow that the machine's kernel leads here by now.
		add(rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(want.Uplink+"\x00")), marked(expr.CmpOpEq, mark),
			direction(original), setMark(Led))
	}
	add(answers(), deliver())
	add(marked(expr.CmpOpNeq, Led), rules.Socket(expr.SocketKeyTransparent, 1), rules.Socket(expr.SocketKeyWildcard, 0),
		deliver())
	noPod := rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpNeq, []byte(PodPrefix))
	if want.Process {
		toProcess(add, want, noPod, translated(), direction(original))
	}
	add(noPod, accept)
	// What neighbours say to each other.
	for _, p := range []string{"fe80::/10", "ff02::/16", "::/128"} {
		add(rules.In(netip.MustParsePrefix(p), rules.Source), accept)
		add(rules.In(netip.MustParsePrefix(p), rules.Destination), accept)
	}
	// No route leads back to where the packet came from: its source is not the pod's.
	add(rules.Compare(&expr.Fib{Register: 1, ResultOIF: true, FlagSADDR: true, FlagIIF: true}, expr.CmpOpEq,
		make([]byte, 4)), rules.Verdict(expr.VerdictDrop))
	for _, s := range known {
		add(marked(expr.CmpOpEq, betweenPods), s.learn())
	}
	if !want.Process {
		return
	}
	toProcess(add, want)
	rules.Refuse(add, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED)
}

// postrouting gives what Services lead to the machine an address that is answered to this namespace, and taken by the
// machine. Pods have one.
func postrouting(t *rules.Table, want *wire.Setup) {
	if want.Uplink == "" {
		return
	}
	add := t.Chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, beforeMasquerade)
	leaves := slices.Concat(rules.Meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, []byte(want.Uplink+"\x00")), translated())
	for _, r := range want.PodRanges {
		node := r.Masked().Addr().Next()
		as := []expr.Any{&expr.Immediate{Register: 1, Data: node.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: familyOf(node), RegAddrMin: 1}}
		for _, machine := range want.Machine {
			if machine.Is4() == node.Is4() {
				add(leaves, rules.In(single(machine), rules.Source), as)
			}
		}
		add(leaves, rules.In(r, rules.Source), rules.Verdict(expr.VerdictAccept))
		add(leaves, rules.Family(node), as)
	}
}

func familyOf(a netip.Addr) uint32 {
	if a.Is6() {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// input has the process asked about connections of pods to elsewhere before they are answered. Without the process,
// they go on, to a listener that is not there.
func input(t *rules.Table, ask []expr.Any) {
	add := t.Chain("ask", nftables.ChainTypeFilter, nftables.ChainHookInput, afterPolicies)
	carries := func(with uint32) []expr.Any {
		return rules.Meta(expr.MetaKeyMARK, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(with))
	}
	add(carries(mark), rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(PodPrefix)), rules.Begins(), ask)
	add = t.Chain("answer", nftables.ChainTypeFilter, nftables.ChainHookInput, afterPolicies+1)
	add(carries(wire.Refused), rules.One(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}))
}

func forward(t *rules.Table) {
	add := t.Chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, 0)
	add(marked(expr.CmpOpEq, betweenPods), rules.Verdict(expr.VerdictAccept))
	rules.Refuse(func(parts ...[]expr.Any) {
		add(append([][]expr.Any{rules.Meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, []byte("lo\x00"))}, parts...)...)
	}, unix.NFT_REJECT_ICMPX_PORT_UNREACH)
	pod := []byte(PodPrefix)
	add(rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, pod), rules.Meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, pod),
		marked(expr.CmpOpEq, 0), setMark(betweenPods))
}
