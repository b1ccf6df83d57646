package policies

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"

	"monoplane.dev/nodeagent/network/nft"
)

// kernel is what the table in the kernel has, as far as it was read or written by an Applier.
type kernel struct {
	// exists says that there is a table of the name, fixed that its fixed part is there and as it should be.
	exists, fixed bool

	chains, sets map[string]bool
	// elements are those of sets and maps, with the chain that one of a map leads to.
	elements map[element]string
}

func newKernel() *kernel {
	return &kernel{chains: map[string]bool{}, sets: map[string]bool{}, elements: map[element]string{}}
}

// everything touches all that is in the table.
func (k *kernel) everything(t *touched) {
	for name := range k.chains {
		t.chains[name] = true
	}
	for name := range k.sets {
		t.sets[name] = true
	}
	for e := range k.elements {
		t.elements[e] = true
	}
}

// errForeign says that the table has something that this version does not make, so that it has to be made anew.
var errForeign = errors.New("the table is not as this version makes it")

// readKernel reads the table. A chain whose rules are not those that were put there counts as errForeign, as does any
// damage to the fixed part; wanted tells how many rules a chain should have.
func readKernel(conn *nftables.Conn, t *table, wanted map[string]int) (*kernel, error) {
	k := newKernel()
	tables, err := conn.ListTablesOfFamily(t.Family)
	if err != nil {
		return nil, fmt.Errorf("listing nftables tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(have *nftables.Table) bool { return have.Name == t.Name }) {
		return k, nil
	}
	k.exists = true
	if err := k.readChains(conn, t, wanted); err != nil {
		return k, err
	}
	if err := k.readSets(conn, t); err != nil {
		return k, err
	}
	k.fixed = true
	return k, nil
}

func (k *kernel) readChains(conn *nftables.Conn, t *table, wanted map[string]int) error {
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return fmt.Errorf("listing nftables chains: %w", err)
	}
	missing := map[string]fixedChain{}
	for _, c := range t.fixed() {
		missing[c.Name] = c
	}
	for _, c := range chains {
		if c.Table.Name != t.Name {
			continue
		}
		n, known := wanted[c.Name]
		if f, ok := missing[c.Name]; ok {
			delete(missing, c.Name)
			if c.Type != f.Type || (c.Hooknum == nil) != (f.Hooknum == nil) ||
				c.Hooknum != nil && (*c.Hooknum != *f.Hooknum || *c.Priority != *f.Priority) {
				return fmt.Errorf("chain %s: %w", c.Name, errForeign)
			}
			n, known = len(f.rules), true
		} else {
			k.chains[c.Name] = true
		}
		if !known {
			continue // it will be deleted
		}
		rules, err := conn.GetRules(t.Table, &nftables.Chain{Name: c.Name})
		if err != nil {
			return fmt.Errorf("reading chain %s: %w", c.Name, err)
		}
		if len(rules) != n {
			return fmt.Errorf("chain %s has %d rules and should have %d: %w", c.Name, len(rules), n, errForeign)
		}
		for i, r := range rules {
			if !bytes.Equal(r.UserData, t.mark(c.Name, i, n)) {
				return fmt.Errorf("rule %d of chain %s: %w", i+1, c.Name, errForeign)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d chains are missing: %w", len(missing), errForeign)
	}
	return nil
}

func (k *kernel) readSets(conn *nftables.Conn, t *table) error {
	sets, err := conn.GetSets(t.Table)
	if err != nil {
		return fmt.Errorf("listing nftables sets: %w", err)
	}
	have := map[string]bool{}
	for _, s := range sets {
		if have[s.Name] = true; isOwn(s.Name) {
			k.sets[s.Name] = true
		}
	}
	for _, name := range fixedSets() {
		if !have[name] {
			return fmt.Errorf("set %s is missing: %w", name, errForeign)
		}
		if err := k.readElements(conn, t.set(name)); err != nil {
			return err
		}
	}
	for name := range k.sets {
		if err := k.readElements(conn, t.set(name)); err != nil {
			return err
		}
	}
	return nil
}

func (k *kernel) readElements(conn *nftables.Conn, s *nftables.Set) error {
	elements, err := conn.GetSetElements(s)
	if err != nil {
		return fmt.Errorf("reading set %s: %w", s.Name, err)
	}
	for _, e := range elements {
		chain, ok := "", true
		if s.IsMap {
			chain, ok = nft.Target(e.Val)
		}
		if !ok {
			return fmt.Errorf("an element of map %s: %w", s.Name, errForeign)
		}
		k.elements[element{s.Name, string(e.Key)}] = chain
	}
	return nil
}

// done notes that the kernel has a step.
func (k *kernel) done(s step) {
	switch s.pass {
	case addSet:
		k.sets[s.name] = true
	case deleteSet:
		delete(k.sets, s.name)
		for e := range k.elements {
			if e.set == s.name {
				delete(k.elements, e)
			}
		}
	case addChain:
		k.chains[s.name] = true
	case deleteChain:
		delete(k.chains, s.name)
	case moveElement:
		if k.elements[s.element] = s.to; !s.wanted {
			delete(k.elements, s.element)
		}
	}
}
