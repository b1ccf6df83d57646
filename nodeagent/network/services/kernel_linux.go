package services

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"

	"monoplane.dev/nodeagent/network/nft"
)

// kernel is what the table in the kernel has, as far as it was read or written by an Applier.
type kernel struct {
	// fixed says that the fixed part is there and as it should be.
	fixed bool
	// exists says that there is a table of the name.
	exists bool

	chains, affinities    map[string]bool
	entries               map[Entry]string
	endpoints, clusterIPs map[netip.Addr]bool
}

func newKernel() *kernel {
	return &kernel{
		chains: map[string]bool{}, affinities: map[string]bool{}, entries: map[Entry]string{},
		endpoints: map[netip.Addr]bool{}, clusterIPs: map[netip.Addr]bool{},
	}
}

// everything touches all that is in the table.
func (k *kernel) everything(t *touched) {
	for name := range k.chains {
		t.chains[name] = true
	}
	for name := range k.affinities {
		t.affinities[name] = true
	}
	for e := range k.entries {
		t.entries[e] = true
	}
	for a := range k.endpoints {
		t.endpoints[a] = true
	}
	for a := range k.clusterIPs {
		t.clusterIPs[a] = true
	}
}

// readKernel reads the table. A chain whose rules are not those that were put there counts as nft.ErrForeign, as does
// any damage to the fixed part; wanted tells how many rules a chain should have.
func readKernel(conn *nftables.Conn, t *table, wanted map[string]int) (*kernel, error) {
	k := newKernel()
	var err error
	if k.exists, err = t.lasting.Exists(conn); err != nil || !k.exists {
		return k, err
	}
	if k.chains, err = t.lasting.Chains(conn, wanted); err != nil {
		return k, err
	}
	if err := k.readSets(conn, t); err != nil {
		return k, err
	}
	k.fixed = true
	return k, nil
}

func (k *kernel) readSets(conn *nftables.Conn, t *table) error {
	sets, err := conn.GetSets(t.Table)
	if err != nil {
		return fmt.Errorf("listing nftables sets: %w", err)
	}
	have := map[string]bool{}
	for _, s := range sets {
		have[s.Name] = true
		if strings.HasPrefix(s.Name, "affinity/") {
			k.affinities[s.Name] = true
		}
	}
	for _, s := range t.sets() {
		if !have[s.Name] {
			return fmt.Errorf("set %s is missing: %w", s.Name, nft.ErrForeign)
		}
	}
	for i, v6 := range []bool{false, true} {
		for _, m := range []*nftables.Set{t.services[i], t.nodePorts[i]} {
			elements, err := conn.GetSetElements(m)
			if err != nil {
				return fmt.Errorf("reading map %s: %w", m.Name, err)
			}
			for _, e := range elements {
				entry, ok := entryOf(e.Key, v6, m == t.nodePorts[i])
				chain, known := nft.Target(e.Val)
				if !ok || !known {
					return fmt.Errorf("an element of map %s: %w", m.Name, nft.ErrForeign)
				}
				k.entries[entry] = chain
			}
		}
		if err := readAddresses(conn, t.hairpins[i], k.endpoints); err != nil {
			return err
		}
		if err := readAddresses(conn, t.clusterIPs[i], k.clusterIPs); err != nil {
			return err
		}
		inside, err := conn.GetSetElements(t.inside[i])
		if err != nil {
			return fmt.Errorf("reading set %s: %w", t.inside[i].Name, err)
		}
		if !nft.SameIntervals(inside, nft.Intervals(nft.Ranges(t.ranges), v6)) {
			return fmt.Errorf("set %s: %w", t.inside[i].Name, nft.ErrForeign)
		}
	}
	return nil
}

// readAddresses reads a set whose keys begin with an address.
func readAddresses(conn *nftables.Conn, s *nftables.Set, into map[netip.Addr]bool) error {
	elements, err := conn.GetSetElements(s)
	if err != nil {
		return fmt.Errorf("reading set %s: %w", s.Name, err)
	}
	size := 4
	if strings.HasSuffix(s.Name, "6") {
		size = 16
	}
	for _, e := range elements {
		if len(e.Key) < size {
			return fmt.Errorf("an element of set %s: %w", s.Name, nft.ErrForeign)
		}
		a, _ := netip.AddrFromSlice(e.Key[:size])
		if len(e.Key) > size && !bytes.Equal(e.Key[:size], e.Key[size:]) {
			return fmt.Errorf("an element of set %s: %w", s.Name, nft.ErrForeign)
		}
		into[a] = true
	}
	return nil
}
