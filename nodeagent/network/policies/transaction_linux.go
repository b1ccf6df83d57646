package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// step is a part of a transaction. In one transaction, and from one to the next, steps of a lower pass come first:
// what is referred to is made before, and what is no longer referred to goes after.
type step struct {
	pass pass
	// name is that of a chain or of a set of one family.
	name  string
	chain Chain
	rules int
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

const (
	// mostBytes bounds a transaction: netlink's buffers are bounded for who is not root of the machine.
	mostBytes = 120 << 10
	// mostElements bounds a message.
	mostElements = 100
)

// bytes is about how long the messages of a step are.
func (s step) bytes() int {
	switch s.pass {
	case addChain:
		n := 400 + 900*s.rules
		for _, a := range s.chain.Allow {
			n += 96 * (len(a.Blocks) + len(a.Ports)) * max(1, s.rules/max(1, len(s.chain.Allow)))
		}
		return n
	case moveElement:
		return 160 + len(s.from) + len(s.to)
	default:
		return 400
	}
}

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
			add(step{pass: addChain, name: name, chain: c, rules: a.table.ruleCount(c)})
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

// carryOut makes the changes, in one transaction when they fit.
func (a *Applier) carryOut(conn *nftables.Conn, steps []step) error {
	for len(steps) > 0 {
		n := cut(steps)
		if err := a.commit(conn, steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// cut returns how many steps go into one transaction.
func cut(steps []step) int {
	size := 0
	for i, s := range steps {
		if size += s.bytes(); size > mostBytes && i > 0 {
			return i
		}
	}
	return len(steps)
}

// commit makes one transaction.
func (a *Applier) commit(conn *nftables.Conn, steps []step) error {
	t := a.table
	var moved []step
	for _, s := range steps {
		var err error
		if s.pass > moveElement && moved != nil {
			err = moveAll(conn, t, moved)
			moved = nil
		}
		switch s.pass {
		case addSet:
			err = conn.AddSet(t.number(t.set(s.name)), nil)
		case addChain:
			err = t.putChain(conn, s.chain)
		case moveElement:
			moved = append(moved, s)
		case deleteChain:
			conn.DelChain(&nftables.Chain{Table: t.Table, Name: s.name})
		case deleteSet:
			conn.DelSet(&nftables.Set{Table: t.Table, Name: s.name})
		}
		if err != nil {
			return err
		}
	}
	if err := moveAll(conn, t, moved); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("changing table %s: %w", TableName, err)
	}
	a.generation++
	for _, s := range steps {
		a.kernel.done(s)
	}
	return nil
}

// moveAll deletes and adds elements; steps are ordered by sets.
func moveAll(conn *nftables.Conn, t *table, steps []step) error {
	for len(steps) > 0 {
		n := 1
		for n < len(steps) && steps[n].element.set == steps[0].element.set {
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
		for part := range slices.Chunk(gone, mostElements) {
			if err := conn.SetDeleteElements(s, part); err != nil {
				return err
			}
		}
		for part := range slices.Chunk(come, mostElements) {
			if err := conn.SetAddElements(s, part); err != nil {
				return err
			}
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

// putChain adds a chain with its rules.
func (t *table) putChain(conn *nftables.Conn, c Chain) error {
	chain := conn.AddChain(&nftables.Chain{Table: t.Table, Name: c.Name})
	rules, err := t.rules(c, func(s *nftables.Set, e []nftables.SetElement) (*nftables.Set, error) {
		s.Table, s.Anonymous, s.Constant, s.Name = t.Table, true, true, "__set%d"
		return s, conn.AddSet(t.number(s), e)
	})
	if err != nil {
		return fmt.Errorf("chain %s: %w", c.Name, err)
	}
	for i, r := range rules {
		conn.AddRule(&nftables.Rule{
			Table: t.Table, Chain: chain, Exprs: r, UserData: t.lasting.Mark(c.Name, i, len(rules)),
		})
	}
	return nil
}
