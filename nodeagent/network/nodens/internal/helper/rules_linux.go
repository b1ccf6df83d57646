package helper

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/rules"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// afterDNAT is where our chain looks at what comes in: behind the translation of Services, so that it sees where a
// packet goes in the end.
const afterDNAT = -90

// beforeDNAT is where another looks at what is sent from here.
const beforeDNAT = -150

// afterPolicies is where connections are asked about: behind package policies, so that nobody is asked for what a pod
// must not reach. Their answers are looked at behind it.
const afterPolicies = 20

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
//	prerouting, behind the translation of Services
//	  from the machine, of a connection so marked               marked as led by the machine's kernel from now on
//	  answers to connections so marked                          delivered to their sockets
//	  what a transparent socket of this namespace waits for     delivered to it, if it is not led so
//	  from a pod, with an address that is not the pod's         dropped
//	  from a pod to pods, Services, the node                    on, as routes say
//	  from a pod to elsewhere, where the process is the way out to the process, or refused
//	input, behind policies
//	  a connection that begins, to the process                  to its queue; it goes on, or is marked
//	  so marked                                                 refused
//	forward
//	  to a Service that nobody has translated                   refused
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
	t := rules.Replace(conn, "monoplane", nftables.TableFamilyINet)
	output(t)
	prerouting(t, want)
	if ask != nil {
		input(t, ask)
	}
	forward(t)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("the rules of the node namespace were refused by nftables: %w", err)
	}
	return nil
}

// output marks connections that clients of the machine's ports have by way of a transparent socket. Their answers
// cannot be told by the socket alone: what a Service's address was translated to on the way there is translated back
// only when the answer is delivered.
func output(t *rules.Table) {
	add := t.Chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, beforeDNAT)
	add(rules.Compare(&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: true}, expr.CmpOpNeq,
		binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)),
		direction(original), setMark(mark))
	// Where rules of this namespace refuse such a connection, such as package policies', the kernel sends the refusal
	// from here, to the address of somebody else, from where it would not come back.
	add = t.Chain("refusals", nftables.ChainTypeRoute, nftables.ChainHookOutput, beforeDNAT)
	add(answers(), deliver())
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

func prerouting(t *rules.Table, want *wire.Setup) {
	accept := rules.Verdict(expr.VerdictAccept)
	add := t.Chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, afterDNAT)
	if want.Uplink != "" {
		// The process may still have the socket of a flow that the machine's kernel leads here by now.
		add(rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(want.Uplink+"\x00")), marked(expr.CmpOpEq, mark),
			direction(original), setMark(Led))
	}
	add(answers(), deliver())
	add(marked(expr.CmpOpNeq, Led), rules.Socket(expr.SocketKeyTransparent, 1), rules.Socket(expr.SocketKeyWildcard, 0),
		deliver())
	add(rules.Meta(expr.MetaKeyIIFNAME, expr.CmpOpNeq, []byte(PodPrefix)), accept)
	// What neighbours say to each other.
	for _, p := range []string{"fe80::/10", "ff02::/16", "::/128"} {
		add(rules.In(netip.MustParsePrefix(p), rules.Source), accept)
		add(rules.In(netip.MustParsePrefix(p), rules.Destination), accept)
	}
	// No route leads back to where the packet came from: its source is not the pod's.
	add(rules.Compare(&expr.Fib{Register: 1, ResultOIF: true, FlagSADDR: true, FlagIIF: true}, expr.CmpOpEq,
		make([]byte, 4)), rules.Verdict(expr.VerdictDrop))
	if !want.Process {
		return
	}
	for _, p := range append(append([]netip.Prefix{}, want.PodRanges...), want.ServiceRanges...) {
		add(rules.In(p, rules.Destination), accept)
	}
	add(rules.Compare(&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true}, expr.CmpOpEq,
		binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)), accept)
	for _, to := range want.TCP {
		add(rules.Meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{unix.IPPROTO_TCP}), rules.TProxy(to), deliver())
	}
	for _, to := range want.UDP {
		add(rules.Meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{unix.IPPROTO_UDP}), rules.TProxy(to), deliver())
	}
	rules.Refuse(add, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED)
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
	rules.Refuse(func(parts ...[]expr.Any) {
		add(append([][]expr.Any{rules.Meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, []byte("lo\x00"))}, parts...)...)
	}, unix.NFT_REJECT_ICMPX_PORT_UNREACH)
}
