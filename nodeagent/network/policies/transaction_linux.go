package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monoplane.dev/nodeagent/network/nft"
)

// step is a part of a transaction. In one transaction, and from one to the next, steps of a lower pass come first:
// what is referred to is made before, and what is no longer referred to goes after.
type step struct {
	pass pass
	// name is that of a chain or of a set of one family.
	name  string
	chain Chain
	// element is deleted if had, and added if wanted; both for one of a map that leads elsewhere now, from and to chains.
	element     element
	had, wanted bool
	from, to    string
}

type pass int

const (
	addSet pass = iota
	addChain
	moveElement
	deleteChain
	deleteSet
	passes
)

// mostElements bounds a message.
const mostElements = 100

// plan returns the steps from what the kernel has to what is wanted, by pass.
func (a *Applier) plan(w *World) []step {
	var byPass [passes][]step
	add := func(s step) { byPass[s.pass] = append(byPass[s.pass], s) }
	for name := range a.dirty.sets {
		switch want, have := w.wantsSet(name), a.kernel.sets[name]; {
		case want && !have:
			add(step{pass: addSet, name: name})
		case !want && have:
			add(step{pass: deleteSet, name: name})
		}
	}
	for name := range a.dirty.chains {
		c, want := w.chains[name]
		switch have := a.kernel.chains[name]; {
		case want && !have:
			add(step{pass: addChain, name: name, chain: c})
		case !want && have:
			add(step{pass: deleteChain, name: name})
		}
	}
	for e := range a.dirty.elements {
		if isOwn(e.set) && !w.wantsSet(e.set) {
			continue // it goes with its set
		}
		s := step{pass: moveElement, element: e}
		s.to, s.wanted = w.wants(e)
		s.from, s.had = a.kernel.elements[e]
		if s.wanted != s.had || s.to != s.from {
			add(s)
		}
	}
	// A pod's chain leads to those of policies: it comes after them and goes before them.
	slices.SortFunc(byPass[addChain], func(a, b step) int { return order(a.name) - order(b.name) })
	slices.SortFunc(byPass[deleteChain], func(a, b step) int { return order(b.name) - order(a.name) })
	slices.SortFunc(byPass[moveElement], func(a, b step) int { return strings.Compare(a.element.set, b.element.set) })
	var out []step
	for _, steps := range byPass {
		out = append(out, steps...)
	}
	return out
}

func order(chain string) int {
	if strings.HasPrefix(chain, "pods/") {
		return 1
	}
	return 0
}

// carryOut makes the changes in one transaction if they fit. If not, all that packets meet is still changed by one, as
// far as that fits: chains and sets are of no effect until elements lead to them.
func (a *Applier) carryOut(b *nft.Batch, steps []step) error {
	if err := a.put(b, steps); err != nil {
		return fmt.Errorf("changing table %s: %w", TableName, err)
	}
	transactions, err := b.Commit()
	if err != nil {
		return fmt.Errorf("changing table %s: %w", TableName, err)
	}
	a.generation += transactions
	for _, s := range steps {
		a.kernel.done(s)
	}
	return nil
}

// put puts steps into the batch.
func (a *Applier) put(b *nft.Batch, steps []step) error {
	t := a.table
	for len(steps) > 0 {
		n := 1
		var err error
		switch s := steps[0]; s.pass {
		case addSet:
			err = b.Conn.AddSet(t.lasting.Number(t.set(s.name)), nil)
		case addChain:
			err = t.lasting.AddChain(b.Conn, s.chain.Name, t.chainRules(s.chain))
		case moveElement:
			for n < len(steps) && steps[n].pass == moveElement {
				n++
			}
			err = moveAll(b, t, steps[:n])
		case deleteChain:
			b.Conn.DelChain(&nftables.Chain{Table: t.Table, Name: s.name})
		case deleteSet:
			b.Conn.DelSet(&nftables.Set{Table: t.Table, Name: s.name})
		}
		if err != nil {
			return err
		}
		if err := b.End(); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// moveAll deletes and adds elements, and cuts where they may be in two transactions. Steps are ordered by sets.
func moveAll(b *nft.Batch, t *table, steps []step) error {
	for len(steps) > 0 {
		n := 1
		for n < min(len(steps), mostElements) && steps[n].element.set == steps[0].element.set {
			n++
		}
		s := t.set(steps[0].element.set)
		var gone, come []nftables.SetElement
		for _, st := range steps[:n] {
			if st.had {
				gone = append(gone, newElement(s, st.element, st.from))
			}
			if st.wanted {
				come = append(come, newElement(s, st.element, st.to))
			}
		}
		if len(gone) > 0 {
			if err := b.Conn.SetDeleteElements(s, gone); err != nil {
				return err
			}
		}
		if len(come) > 0 {
			if err := b.Conn.SetAddElements(s, come); err != nil {
				return err
			}
		}
		if err := b.Cut(); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

func newElement(s *nftables.Set, e element, chain string) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key)}
	if s.IsMap {
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
	}
	return out
}
