package services

import (
	"encoding/binary"
	"net/netip"

	"monoplane.dev/nodeagent/network/nft"
)

// backendBytes returns an address and a port as maps hold them: each padded to 4 bytes.
func backendBytes(b netip.AddrPort) []byte {
	return append(b.Addr().AsSlice(), nft.PortBytes(b.Port())...)
}

// key returns an entry's key in its map; ok is false for a protocol that there is not.
func (e Entry) key() (key []byte, ok bool) {
	n, ok := nft.Protocol(e.Protocol)
	key = []byte{n, 0, 0, 0}
	if e.Addr.IsValid() {
		key = append(key, e.Addr.AsSlice()...)
	}
	return append(key, nft.PortBytes(e.Port)...), ok
}

// entryOf reads a key of a map.
func entryOf(key []byte, v6, nodePort bool) (Entry, bool) {
	size := 4 * int(nft.Width(v6))
	if nodePort {
		size = 0
	}
	if len(key) != 8+size {
		return Entry{}, false
	}
	e := Entry{Protocol: nft.ProtocolName(key[0]), V6: v6, Port: binary.BigEndian.Uint16(key[4+size:])}
	if !nodePort {
		e.Addr, _ = netip.AddrFromSlice(key[4 : 4+size])
	}
	return e, e.Protocol != ""
}
