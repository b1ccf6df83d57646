package conntrack

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
	ctaMark       = 8
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

	dnatted = 1 << 5 // IPS_DST_NAT in the status of a flow
)

// Tuple is one direction of a flow.
type Tuple struct {
	Protocol byte
	Src, Dst netip.AddrPort
}

// Flow is a connection that is tracked. The raw attributes name it in a deletion.
type Flow struct {
	Family      byte
	Orig, Reply Tuple
	Mark        uint32
	status      uint32

	rawOrig, id []byte
}

// Translated says whether the flow was led to another destination than its first packet had.
func (f Flow) Translated() bool { return f.status&dnatted != 0 }

// Flows returns the flows of a family: unix.AF_INET or unix.AF_INET6.
func Flows(conn *netlink.Conn, family byte) ([]Flow, error) {
	answer, err := conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type: ctType(ctnlGet), Flags: netlink.Request | netlink.Dump,
		},
		Data: []byte{family, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return nil, fmt.Errorf("listing tracked connections: %w", err)
	}
	var out []Flow
	for _, m := range answer {
		if f, err := parseFlow(m.Data); err == nil {
			out = append(out, f)
		}
	}
	return out, nil
}

// Forget has the kernel forget a flow, so that its next packet is looked at as the first of another; one that is gone
// is as good. The id keeps a newer flow with the same addresses alive.
func Forget(conn *netlink.Conn, f Flow) error {
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NLA_F_NESTED | ctaTupleOrig, Data: f.rawOrig}, {Type: ctaID, Data: f.id},
	})
	if err != nil {
		return err
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: ctType(ctnlDelete), Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{f.Family, unix.NFNETLINK_V0, 0, 0}, attrs...),
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
func parseFlow(data []byte) (Flow, error) {
	if len(data) < 4 {
		return Flow{}, errors.New("a message of connection tracking is too short")
	}
	f := Flow{Family: data[0]}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return Flow{}, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case ctaTupleOrig:
			f.rawOrig = d.Bytes()
			d.Do(func(b []byte) error { return f.Orig.parse(b) })
		case ctaTupleReply:
			d.Do(func(b []byte) error { return f.Reply.parse(b) })
		case ctaStatus:
			f.status = d.Uint32()
		case ctaMark:
			f.Mark = d.Uint32()
		case ctaID:
			f.id = d.Bytes()
		}
	}
	return f, d.Err()
}

func (t *Tuple) parse(data []byte) error {
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
						t.Protocol = n.Uint8()
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
	t.Src, t.Dst = netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to)
	return d.Err()
}
