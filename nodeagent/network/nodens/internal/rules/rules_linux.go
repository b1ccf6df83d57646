package rules

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// Table is a table that is being written.
type Table struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// Add adds a rule, made of parts, to a chain.
type Add func(parts ...[]expr.Any)

// Replace begins a table that replaces the one of the same name when the connection is flushed.
func Replace(conn *nftables.Conn, name string, family nftables.TableFamily) *Table {
	t := &nftables.Table{Name: name, Family: family}
	conn.AddTable(t) // A table that is not there cannot be deleted.
	conn.DelTable(t)
	return &Table{conn: conn, table: conn.AddTable(t)}
}

// Chain adds a chain at a hook, and returns how to add rules to it.
func (t *Table) Chain(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority int32) Add {
	at := nftables.ChainPriority(priority)
	chain := t.conn.AddChain(&nftables.Chain{Name: name, Table: t.table, Type: kind, Hooknum: hook, Priority: &at})
	return func(parts ...[]expr.Any) {
		rule := &nftables.Rule{Table: t.table, Chain: chain}
		for _, p := range parts {
			rule.Exprs = append(rule.Exprs, p...)
		}
		t.conn.AddRule(rule)
	}
}

// Set adds a set to the table. Names and IDs of sets are unique within it.
func (t *Table) Set(s nftables.Set) (*nftables.Set, error) {
	s.Table = t.table
	return &s, t.conn.AddSet(&s, nil)
}

// Refuse tells the sender at once that its packet goes nowhere: by a reset, or by ICMP with the code.
func Refuse(add Add, code uint8) {
	add(Meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{unix.IPPROTO_TCP}),
		One(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}))
	add(One(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: code}))
}

// One is a part of one expression.
func One(e expr.Any) []expr.Any { return []expr.Any{e} }

// Verdict ends a rule.
func Verdict(kind expr.VerdictKind) []expr.Any { return One(&expr.Verdict{Kind: kind}) }

// Compare compares what an expression has put into register 1.
func Compare(e expr.Any, op expr.CmpOp, data []byte) []expr.Any {
	return []expr.Any{e, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

// Meta compares what the kernel knows of a packet. A name without its end stands for all that begin so.
func Meta(key expr.MetaKey, op expr.CmpOp, data []byte) []expr.Any {
	return Compare(&expr.Meta{Key: key, Register: 1}, op, data)
}

// Socket compares what is known of the socket of this namespace that waits for a packet; without one, it does not
// match.
func Socket(key expr.SocketKey, value byte) []expr.Any {
	return Compare(&expr.Socket{Key: key, Register: 1}, expr.CmpOpEq, []byte{value})
}

// Family matches packets of an address's family.
func Family(a netip.Addr) []expr.Any {
	return Meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{nfproto(a)})
}

func nfproto(a netip.Addr) byte {
	if a.Is6() {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// Side is one of the two addresses of a packet.
type Side int

// The sides.
const (
	Source Side = iota
	Destination
)

// In matches packets of which one side is in a range.
func In(p netip.Prefix, side Side) []expr.Any {
	p = p.Masked()
	size := uint32(p.Addr().BitLen() / 8)
	first := uint32(12) // Where a header of IPv4 has its source; the destination follows it.
	if p.Addr().Is6() {
		first = 8
	}
	return append(Family(p.Addr()),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: first + uint32(side)*size, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
			Xor: bytes.Repeat([]byte{0}, int(size))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Addr().AsSlice()})
}

// TProxy hands a packet to a listener of this namespace. Without the listener, the rule does not match.
func TProxy(to netip.AddrPort) []expr.Any {
	return append(Family(to.Addr()),
		&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.TProxy{Family: nfproto(to.Addr()), TableFamily: unix.NFPROTO_INET, RegAddr: 1, RegPort: 2})
}

// Bits of the flags of TCP, which are at byte 13 of its header.
const fin, syn, rst, ack = 1, 2, 4, 16

// Begins matches the first packet of a connection of TCP.
func Begins() []expr.Any {
	return append(Meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{unix.IPPROTO_TCP}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}})
}

// Queue hands a packet to the process that has the queue of the number, and lets it pass while nobody has.
func Queue(number uint16) []expr.Any {
	return One(&expr.Queue{Num: number, Total: 1, Flag: expr.QueueFlagBypass})
}

// QueueTarget does so by the means of iptables, for kernels without nft_queue.
func QueueTarget(number uint16) []expr.Any {
	const bypass = 1 // NFQ_FLAG_BYPASS.
	// struct xt_NFQ_info_v3: the number, how many queues there are, flags.
	info := xt.Unknown{7: 0}
	for i, v := range []uint16{number, 1, bypass} {
		binary.NativeEndian.PutUint16(info[2*i:], v)
	}
	return One(&expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info})
}
