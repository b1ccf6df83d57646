// Package ipam gives the pods of a node their addresses, out of the node's ranges.
//
// It is the register of who has which address, in one file, which is replaced as a whole and synchronised before an
// address is handed out: what was given once is not given again, whenever the process is killed, until it is released.
// A released address is reused as late as possible: first come those that nobody has had, then those that were
// released longest ago. Of a range of IPv6, which is never through, the last releases are known.
//
// Nothing is known here of pods and networks. After a crash, Retain releases what belongs to nobody any more, and
// Adopt enters what somebody has without being in the register, when the file was lost.
package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"os"
	"slices"
	"sync"

	"monoplane.dev/internal/datadir"
)

// ErrExhausted says that all addresses of a range are in use.
var ErrExhausted = errors.New("all addresses of the range are in use")

// reserved is how many of the first addresses of a range no pod is given: the network's, the node's, the machine's.
const reserved = 3

// remembered is how many releases are known, as many as the default range of a node has addresses. What was released
// before them comes before them.
const remembered = 1 << 8

// Register is the register of one node. Its methods may be called concurrently.
type Register struct {
	path   string
	ranges []netip.Prefix

	mu    sync.Mutex
	state state
}

// state is what the file holds.
type state struct {
	// Owners has the addresses of each owner, in the order of the ranges.
	Owners map[string][]netip.Addr
	// Next is the first address of each range, by the range, that nobody has had; the zero Addr when there is none left.
	Next map[netip.Prefix]netip.Addr
	// Released are addresses that are free again, those first that were released first.
	Released []netip.Addr
}

// Open reads the register in a file, which need not exist, for ranges of which each owner gets one address each.
// Addresses that are given stay so, also those of ranges that the node has no more.
func Open(path string, ranges []netip.Prefix) (*Register, error) {
	r := &Register{path: path, ranges: slices.Clone(ranges)}
	r.state = state{Owners: map[string][]netip.Addr{}, Next: map[netip.Prefix]netip.Addr{}}
	for _, p := range ranges {
		if p != p.Masked() || p.Addr().BitLen()-p.Bits() < 3 {
			return nil, fmt.Errorf("%s is no range that pods could have addresses from", p)
		}
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the register of the pods' addresses: %w", err)
	}
	if err := json.Unmarshal(b, &r.state); err != nil {
		return nil, fmt.Errorf("the register of the pods' addresses in %s cannot be read (without the file, it is made "+
			"anew of the pods that run): %w", path, err)
	}
	if r.state.Owners == nil {
		r.state.Owners = map[string][]netip.Addr{}
	}
	if r.state.Next == nil {
		r.state.Next = map[netip.Prefix]netip.Addr{}
	}
	return r, r.consistent()
}

// consistent checks that no address has two owners.
func (r *Register) consistent() error {
	owner := map[netip.Addr]string{}
	for o, all := range r.state.Owners {
		for _, a := range all {
			if other, taken := owner[a]; taken {
				return fmt.Errorf("the register of the pods' addresses in %s gives %s to both %s and %s", r.path, a, o, other)
			}
			owner[a] = o
		}
	}
	return nil
}

// Allocate returns the addresses of an owner, one of each range, which it gets if it has none. When a range has none
// left, it gets none at all, and the error is ErrExhausted.
func (r *Register) Allocate(owner string) ([]netip.Addr, error) {
	if owner == "" {
		return nil, errors.New("addresses are allocated to somebody")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.state.Owners[owner]; len(have) > 0 {
		return slices.Clone(have), nil
	}
	to := r.state.clone()
	taken := to.taken()
	var got []netip.Addr
	for _, p := range r.ranges {
		a, ok := to.take(p, taken)
		if !ok {
			return nil, fmt.Errorf("%s: %w", p, ErrExhausted)
		}
		got = append(got, a)
	}
	to.Owners[owner] = got
	if err := r.commit(to); err != nil {
		return nil, err
	}
	return slices.Clone(got), nil
}

// Release takes back what an owner has, if anything.
func (r *Register) Release(owner string) error {
	return r.Retain(func(o string) bool { return o != owner })
}

// Retain releases what belongs to owners of whom keep says no.
func (r *Register) Retain(keep func(owner string) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.state.clone()
	for _, owner := range slices.Sorted(maps.Keys(r.state.Owners)) {
		if !keep(owner) {
			to.Released = append(to.Released, to.Owners[owner]...)
			delete(to.Owners, owner)
		}
	}
	if len(to.Owners) == len(r.state.Owners) {
		return nil
	}
	to.Released = to.Released[max(0, len(to.Released)-remembered):]
	return r.commit(to)
}

// Adopt enters addresses that an owner has already, and fails if the register says something else of the owner or of
// them.
func (r *Register) Adopt(owner string, addresses []netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.state.Owners[owner]; len(have) > 0 {
		for _, a := range addresses {
			if !slices.Contains(have, a) {
				return fmt.Errorf("%s has the address %s, but is registered with %v", owner, a, have)
			}
		}
		return nil
	}
	taken := r.state.taken()
	for _, a := range addresses {
		if other, is := taken[a]; is {
			return fmt.Errorf("%s has the address %s, which is registered as %s's", owner, a, other)
		}
	}
	to := r.state.clone()
	to.Owners[owner] = slices.Clone(addresses)
	to.Released = slices.DeleteFunc(to.Released, func(a netip.Addr) bool { return slices.Contains(addresses, a) })
	return r.commit(to)
}

// Owners returns who has which addresses.
func (r *Register) Owners() map[string][]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.clone().Owners
}

func (s *state) clone() state {
	to := state{Owners: make(map[string][]netip.Addr, len(s.Owners)), Next: maps.Clone(s.Next),
		Released: slices.Clone(s.Released)}
	for o, a := range s.Owners {
		to.Owners[o] = slices.Clone(a)
	}
	return to
}

// taken returns who has each address that is in use.
func (s *state) taken() map[netip.Addr]string {
	taken := map[netip.Addr]string{}
	for o, all := range s.Owners {
		for _, a := range all {
			taken[a] = o
		}
	}
	return taken
}

// take returns an address of a range that is in nobody's use, and counts it as had.
func (s *state) take(p netip.Prefix, taken map[netip.Addr]string) (netip.Addr, bool) {
	from, begun := s.Next[p]
	if !begun {
		from = first(p)
	}
	released := make(map[netip.Addr]bool, len(s.Released))
	for _, a := range s.Released {
		released[a] = true
	}
	end := last(p)
	// After the end those come again of whose release nothing is known any more.
	for _, from := range []netip.Addr{from, first(p)} {
		for a := from; a.IsValid() && a.Compare(end) <= 0; a = a.Next() {
			// An adopted address, or one of a range that this one overlaps.
			if _, is := taken[a]; !is && !released[a] {
				s.Next[p] = a.Next()
				return a, true
			}
		}
	}
	s.Next[p] = end.Next()
	for i, a := range s.Released {
		if _, is := taken[a]; p.Contains(a) && !is {
			s.Released = slices.Delete(s.Released, i, i+1)
			return a, true
		}
	}
	return netip.Addr{}, false
}

// first returns the first address of a range that a pod can have.
func first(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr()
	for range reserved {
		a = a.Next()
	}
	return a
}

// last returns the last one: that of IPv4 before the address of all.
func last(p netip.Prefix) netip.Addr {
	size := new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))
	end := new(big.Int).SetBytes(p.Masked().Addr().AsSlice())
	end.Add(end, size).Sub(end, big.NewInt(1))
	if p.Addr().Is4() {
		end.Sub(end, big.NewInt(1))
	}
	a, _ := netip.AddrFromSlice(end.FillBytes(make([]byte, p.Addr().BitLen()/8)))
	return a
}

// commit writes a state, and makes it the register's once it is on the disk.
func (r *Register) commit(to state) error {
	b, err := json.Marshal(to)
	if err != nil {
		return err
	}
	if err := datadir.Keep(r.path, datadir.Flushed, b); err != nil {
		return fmt.Errorf("the register of the pods' addresses: %w", err)
	}
	r.state = to
	return nil
}
