package services

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of ctnetlink, include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const (
	ctnlGet    = 1
	ctnlDelete = 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaID         = 12

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaIPv4Src    = 1
	ctaIPv4Dst    = 2
	ctaIPv6Src    = 3
	ctaIPv6Dst    = 4
	ctaProtoNum   = 1
	ctaSrcPort    = 2
	ctaDstPort    = 3
)

// tuple is one direction of a flow.
type tuple struct {
	protocol byte
	src, dst netip.AddrPort
}

// flow is a connection that is tracked. The raw attributes name it in a deletion.
type flow struct {
	family       byte
	orig, reply  tuple
	status       uint32
	rawOrig, rid []byte
}

// forgetFlows makes connection tracking forget UDP flows to entries that lead to endpoints where they no longer go, so
// that their next packet is looked at anew. TCP connections are left to their ends.
func (a *Applier) forgetFlows(entries map[Entry]bool) error {
	udp := map[Entry]map[netip.AddrPort]bool{}
	for e := range entries {
		if e.Protocol == "udp" {
			udp[e] = a.ledger.backends(e)
		}
	}
	if len(udp) == 0 {
		return nil
	}
	conn, err := a.cfg.Netfilter()
	if err != nil {
		return fmt.Errorf("opening a netfilter socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		flows, err := dumpFlows(conn, family)
		if err != nil {
			return err
		}
		for _, f := range flows {
			if !stale(f, udp) {
				continue
			}
			if err := deleteFlow(conn, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// stale says whether a flow went to one of the entries and ends where that does not lead.
func stale(f flow, entries map[Entry]map[netip.AddrPort]bool) bool {
	if f.orig.protocol != unix.IPPROTO_UDP {
		return false
	}
	v6 := f.family == unix.AF_INET6
	e := Entry{Protocol: "udp", V6: v6, Addr: f.orig.dst.Addr(), Port: f.orig.dst.Port()}
	if to, ok := entries[e]; ok {
		return !to[f.reply.src]
	}
	e.Addr = netip.Addr{}
	to, ok := entries[e] // a node port, of a flow that was led somewhere
	return ok && f.status&dnatted != 0 && !to[f.reply.src]
}

func dumpFlows(conn *netlink.Conn, family byte) ([]flow, error) {
	answer, err := conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type: ctType(ctnlGet), Flags: netlink.Request | netlink.Dump,
		},
		Data: []byte{family, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return nil, fmt.Errorf("listing tracked connections: %w", err)
	}
	var out []flow
	for _, m := range answer {
		if f, err := parseFlow(m.Data); err == nil {
			out = append(out, f)
		}
	}
	return out, nil
}

// deleteFlow forgets a flow; one that is gone is as good. The id keeps a newer flow with the same addresses alive.
func deleteFlow(conn *netlink.Conn, f flow) error {
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NLA_F_NESTED | ctaTupleOrig, Data: f.rawOrig}, {Type: ctaID, Data: f.rid},
	})
	if err != nil {
		return err
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: ctType(ctnlDelete), Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{f.family, unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("deleting a tracked connection: %w", err)
	}
	return nil
}

func ctType(message int) netlink.HeaderType {
	return netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | message)
}

// parseFlow reads a message of a dump.
func parseFlow(data []byte) (flow, error) {
	if len(data) < 4 {
		return flow{}, errors.New("a message of connection tracking is too short")
	}
	f := flow{family: data[0]}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return flow{}, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case ctaTupleOrig:
			f.rawOrig = d.Bytes()
			d.Do(func(b []byte) error { return f.orig.parse(b) })
		case ctaTupleReply:
			d.Do(func(b []byte) error { return f.reply.parse(b) })
		case ctaStatus:
			f.status = d.Uint32()
		case ctaID:
			f.rid = d.Bytes()
		}
	}
	return f, d.Err()
}

func (t *tuple) parse(data []byte) error {
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	var src, dst netip.Addr
	var from, to uint16
	for d.Next() {
		switch d.Type() {
		case ctaTupleIP:
			d.Nested(func(n *netlink.AttributeDecoder) error {
				for n.Next() {
					switch n.Type() {
					case ctaIPv4Src, ctaIPv6Src:
						src, _ = netip.AddrFromSlice(n.Bytes())
					case ctaIPv4Dst, ctaIPv6Dst:
						dst, _ = netip.AddrFromSlice(n.Bytes())
					}
				}
				return n.Err()
			})
		case ctaTupleProto:
			d.Nested(func(n *netlink.AttributeDecoder) error {
				n.ByteOrder = binary.BigEndian
				for n.Next() {
					switch n.Type() {
					case ctaProtoNum:
						t.protocol = n.Uint8()
					case ctaSrcPort:
						from = n.Uint16()
					case ctaDstPort:
						to = n.Uint16()
					}
				}
				return n.Err()
			})
		}
	}
	t.src, t.dst = netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to)
	return d.Err()
}
