package nft

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Register is the first register of 16 bytes. Its four quarters, Quarter and those that follow it, hold 4 bytes each.
const (
	Register = unix.NFT_REG_1
	Quarter  = unix.NFT_REG32_00
)

// Join makes one rule of parts.
func Join(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// OfFamily matches packets of a family. It uses Register.
func OfFamily(v6 bool) []expr.Any {
	proto := byte(unix.NFPROTO_IPV4)
	if v6 {
		proto = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: Register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: Register, Data: []byte{proto}},
	}
}

// Source reads the address that a packet comes from.
func Source(v6 bool, reg uint32) expr.Any {
	if v6 {
		return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: 8, Len: 16}
	}
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
}

// Destination reads the address that a packet goes to.
func Destination(v6 bool, reg uint32) expr.Any {
	if v6 {
		return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16}
	}
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
}

// DestinationPort reads the port that a packet goes to, of each of the protocols that Protocol knows.
func DestinationPort(reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// AddrType is the type of a family's addresses in sets.
func AddrType(v6 bool) nftables.SetDatatype {
	if v6 {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// Width is how many quarters of a register an address takes.
func Width(v6 bool) uint32 {
	if v6 {
		return 4
	}
	return 1
}

// Index is the place of a family in a pair: IPv4 first.
func Index(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// Protocol returns the number of a protocol that has ports: tcp, udp or sctp.
func Protocol(name string) (byte, bool) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, true
	case "udp":
		return unix.IPPROTO_UDP, true
	case "sctp":
		return unix.IPPROTO_SCTP, true
	default:
		return 0, false
	}
}

// ProtocolName is the reverse of Protocol; empty for others.
func ProtocolName(number byte) string {
	for _, name := range []string{"tcp", "udp", "sctp"} {
		if n, _ := Protocol(name); n == number {
			return name
		}
	}
	return ""
}

// PortBytes returns a port as keys of several fields hold it: padded to 4 bytes.
func PortBytes(port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(nil, port), 0, 0)
}
