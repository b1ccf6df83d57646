// Package share divides room among those who ask for it, so that nobody keeps the others out, however much he asks
// for: who has as much as is left for all others gets no more. One who takes all he can has half of the room, each of
// two a third, and there is always as much again for somebody new.
//
// Room counts. Listen has the clients of a listener share one, and ends at no error but that of a closed listener: a
// lack of descriptors passes.
package share

import (
	"net"
	"net/netip"
	"sync"
)

// Room is divided among owners. It is safe for concurrent use. Use NewRoom.
type Room[K comparable] struct {
	most int

	mu    sync.Mutex
	taken int
	// of has what each owner has taken. Invariant: no zero entries.
	of map[K]int
}

// NewRoom returns room for as many, and for one at least.
func NewRoom[K comparable](most int) *Room[K] { return &Room[K]{most: max(1, most), of: map[K]int{}} }

// Most is how many there may be.
func (r *Room[K]) Most() int { return r.most }

// Take takes n for an owner, if he may have as many more. They are given back once.
func (r *Room[K]) Take(owner K, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[owner]+n > r.most-r.taken {
		return false
	}
	r.taken += n
	r.of[owner] += n
	return true
}

// Give gives n back.
func (r *Room[K]) Give(owner K, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= n
	if r.of[owner] -= n; r.of[owner] <= 0 {
		delete(r.of, owner)
	}
}

// Empty says whether nobody has anything.
func (r *Room[K]) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken == 0
}

// Address is the address of a client of TCP or UDP, which stands for it where nobody has more than one: pods. It is
// the zero address for a client without any.
func Address(a net.Addr) netip.Addr {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		at = a.AddrPort()
	case *net.UDPAddr:
		at = a.AddrPort()
	}
	return at.Addr().Unmap().WithZone("")
}

// Network is the address of a client, or in IPv6, where everybody outside has many, the network of one.
func Network(a net.Addr) netip.Addr {
	ip := Address(a)
	if ip.Is6() {
		network, _ := ip.Prefix(64) // It is no error for IPv6.
		return network.Addr()
	}
	return ip
}
