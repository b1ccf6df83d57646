package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of the kernel's that package unix does not have.
const (
	getGeneration   = 16 // NFT_MSG_GETGEN
	generationID    = 1  // NFTA_GEN_ID
	batchGeneration = 1  // NFNL_BATCH_GENID
)

// Target reads the data of an element of a verdict map: goto a chain.
func Target(data []byte) (chain string, ok bool) {
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return "", false
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_VERDICT_CODE:
			code := int32(d.Uint32()) //nolint:gosec // the kernel's codes are negative
			ok = code == unix.NFT_GOTO
		case unix.NFTA_VERDICT_CHAIN:
			chain = d.String()
		}
	}
	return chain, ok && chain != "" && d.Err() == nil
}

// Generation returns the number that the kernel counts up with each transaction of nftables in the namespace. It opens
// a netfilter socket there with dial.
func Generation(dial func() (*netlink.Conn, error)) (uint32, error) {
	conn, err := dial()
	if err != nil {
		return 0, fmt.Errorf("opening a netfilter socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | getGeneration), Flags: netlink.Request,
		},
		Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, fmt.Errorf("reading the generation of the nftables ruleset: %w", err)
	}
	for _, m := range answer {
		if len(m.Data) < 4 {
			continue
		}
		d, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, err
		}
		d.ByteOrder = binary.BigEndian
		for d.Next() {
			if d.Type() == generationID {
				return d.Uint32(), nil
			}
		}
	}
	return 0, errors.New("the kernel does not say the generation of the nftables ruleset")
}
