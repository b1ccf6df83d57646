package policies

import (
	"fmt"

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
		if have[s.Name] = true; isOwn(s.Name) {
			k.sets[s.Name] = true
		}
	}
	for _, name := range fixedSets() {
		if !have[name] {
			return fmt.Errorf("set %s is missing: %w", name, nft.ErrForeign)
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
			return fmt.Errorf("an element of map %s: %w", s.Name, nft.ErrForeign)
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
