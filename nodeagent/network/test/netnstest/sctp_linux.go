package netnstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// SCTP sends and gets whole packets of SCTP at an address of a namespace. The kernel need not have SCTP itself.
type SCTP struct {
	ns *NS
	fd int
	v6 bool
}

// initChunk is the kind of chunk that begins an association.
const initChunk = 1

// SCTP opens a socket at an address. It gets what comes within patience, and lives until the test ends.
func (ns *NS) SCTP(at netip.Addr, patience time.Duration) *SCTP {
	ns.t.Helper()
	s := &SCTP{ns: ns, v6: at.Is6()}
	ns.Do(func() (err error) {
		family := unix.AF_INET
		if s.v6 {
			family = unix.AF_INET6
		}
		if s.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
			return err
		}
		tv := unix.NsecToTimeval(patience.Nanoseconds())
		return errors.Join(unix.Bind(s.fd, sockaddr(at)),
			unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	})
	ns.t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16()}
	}
	return &unix.SockaddrInet4{Addr: a.As4()}
}

// Begin begins an association.
func (s *SCTP) Begin(from uint16, to netip.AddrPort) {
	s.ns.t.Helper()
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = append(b, make([]byte, 8)...) // no tag yet, and the sum
	b = append(b, initChunk, 0, 0, 20)
	b = binary.BigEndian.AppendUint32(b, 0x01020304) // the client's tag
	b = binary.BigEndian.AppendUint32(b, 65536)
	b = append(b, 0, 1, 0, 1) // a stream each way
	b = binary.BigEndian.AppendUint32(b, 1)
	binary.LittleEndian.PutUint32(b[8:], sum(b))
	if err := unix.Sendto(s.fd, b, 0, sockaddr(to.Addr())); err != nil {
		s.ns.t.Fatal(err)
	}
}

// sum is the sum that a packet should have.
func sum(packet []byte) uint32 {
	b := append([]byte(nil), packet...)
	copy(b[8:], make([]byte, 4))
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
}

// Begun returns from where an association is begun, and for which port.
func (s *SCTP) Begun() (from netip.Addr, port uint16, err error) {
	b := make([]byte, 1500)
	n, sender, err := unix.Recvfrom(s.fd, b, 0)
	if err != nil {
		return from, 0, err
	}
	switch sender := sender.(type) {
	case *unix.SockaddrInet4:
		from, b = netip.AddrFrom4(sender.Addr), b[20:n]
	case *unix.SockaddrInet6:
		from, b = netip.AddrFrom16(sender.Addr), b[:n]
	}
	if len(b) < 13 || b[12] != initChunk || binary.LittleEndian.Uint32(b[8:]) != sum(b) {
		return from, 0, fmt.Errorf("%x is not the beginning of an association", b)
	}
	return from, binary.BigEndian.Uint16(b[2:]), nil
}
