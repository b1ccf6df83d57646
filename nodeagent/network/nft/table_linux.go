package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// ErrForeign says that a table has something that this version does not make, so that it has to be made anew.
var ErrForeign = errors.New("the table is not as this version makes it")

// FixedChain is a chain whose rules are the same as long as the table is there.
type FixedChain struct {
	*nftables.Chain

	Rules [][]expr.Any
}

// Table says what a table has at any time, and how its rules are known again.
type Table struct {
	*nftables.Table

	// Fixed returns the chains of the fixed part, those first to which others lead. Their rules name sets by the numbers
	// that these have at the time.
	Fixed func() []FixedChain
	// Version goes into every rule: a table with rules of another one has to be made anew.
	Version string

	// lastID numbers sets, so that rules of the same transaction can name them.
	lastID uint32
}

// NewSet makes an unnamed set of the transaction.
type NewSet func(*nftables.Set, []nftables.SetElement) (*nftables.Set, error)

// Number gives a set a number. The library would take it from a variable that all its users share.
func (t *Table) Number(s *nftables.Set) *nftables.Set {
	t.lastID++
	s.ID = t.lastID
	return s
}

// Mark returns what a rule carries with it, by which it is known again: the version, the chain, and its place among
// the n rules of that, from 0 on.
func (t *Table) Mark(chain string, i, n int) []byte {
	if at := len(chain) - 40; at > 0 {
		chain = chain[at:] // the hash is at the end
	}
	return userdata.AppendString(nil, userdata.TypeComment, fmt.Sprintf("%s %s %d/%d", t.Version, chain, i+1, n))
}

// AddFixed makes the chains of the fixed part a part of the connection's transaction.
func (t *Table) AddFixed(conn *nftables.Conn) {
	for _, c := range t.Fixed() {
		conn.AddChain(c.Chain)
		t.addRules(conn, c.Chain, c.Rules)
	}
}

// AddChain makes a chain a part of the connection's transaction, with the sets that its rules may hold.
func (t *Table) AddChain(conn *nftables.Conn, name string, rules func(NewSet) ([][]expr.Any, error)) error {
	chain := conn.AddChain(&nftables.Chain{Table: t.Table, Name: name})
	all, err := rules(func(s *nftables.Set, e []nftables.SetElement) (*nftables.Set, error) {
		s.Table, s.Anonymous, s.Constant, s.Name = t.Table, true, true, "__set%d"
		if s.IsMap {
			s.Name = "__map%d"
		}
		return s, conn.AddSet(t.Number(s), e)
	})
	if err != nil {
		return fmt.Errorf("chain %s: %w", name, err)
	}
	t.addRules(conn, chain, all)
	return nil
}

func (t *Table) addRules(conn *nftables.Conn, chain *nftables.Chain, rules [][]expr.Any) {
	for i, r := range rules {
		conn.AddRule(&nftables.Rule{
			Table: t.Table, Chain: chain, Exprs: r, UserData: t.Mark(chain.Name, i, len(rules)),
		})
	}
}

// RuleCount returns how many rules a chain has; -1 where they cannot be made.
func RuleCount(rules func(NewSet) ([][]expr.Any, error)) int {
	all, err := rules(func(s *nftables.Set, _ []nftables.SetElement) (*nftables.Set, error) { return s, nil })
	if err != nil {
		return -1
	}
	return len(all)
}

// Exists says whether the kernel has a table of the name.
func (t *Table) Exists(conn *nftables.Conn) (bool, error) {
	tables, err := conn.ListTablesOfFamily(t.Family)
	if err != nil {
		return false, fmt.Errorf("listing nftables tables: %w", err)
	}
	return slices.ContainsFunc(tables, func(have *nftables.Table) bool { return have.Name == t.Name }), nil
}

// Chains returns the names of the chains that the table has beside the fixed ones. Wanted tells how many rules a chain
// should have; those that are not in it are not looked into. ErrForeign stands for damage to the fixed part, and for a
// chain whose rules are not those that were put there.
func (t *Table) Chains(conn *nftables.Conn, wanted map[string]int) (map[string]bool, error) {
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return nil, fmt.Errorf("listing nftables chains: %w", err)
	}
	missing := map[string]FixedChain{}
	for _, c := range t.Fixed() {
		missing[c.Name] = c
	}
	others := map[string]bool{}
	for _, c := range chains {
		if c.Table.Name != t.Name {
			continue
		}
		n, known := wanted[c.Name]
		if f, ok := missing[c.Name]; ok {
			delete(missing, c.Name)
			if !sameHook(c, f.Chain) {
				return others, fmt.Errorf("chain %s: %w", c.Name, ErrForeign)
			}
			n, known = len(f.Rules), true
		} else {
			others[c.Name] = true
		}
		if !known {
			continue // it will be deleted
		}
		if err := t.checkRules(conn, c.Name, n); err != nil {
			return others, err
		}
	}
	if len(missing) > 0 {
		return others, fmt.Errorf("%d chains are missing: %w", len(missing), ErrForeign)
	}
	return others, nil
}

func sameHook(a, b *nftables.Chain) bool {
	if a.Type != b.Type || (a.Hooknum == nil) != (b.Hooknum == nil) {
		return false
	}
	return a.Hooknum == nil || *a.Hooknum == *b.Hooknum && *a.Priority == *b.Priority
}

// checkRules says whether a chain has the n rules that were put there.
func (t *Table) checkRules(conn *nftables.Conn, chain string, n int) error {
	rules, err := conn.GetRules(t.Table, &nftables.Chain{Name: chain})
	if err != nil {
		return fmt.Errorf("reading chain %s: %w", chain, err)
	}
	if len(rules) != n {
		return fmt.Errorf("chain %s has %d rules and should have %d: %w", chain, len(rules), n, ErrForeign)
	}
	for i, r := range rules {
		if !bytes.Equal(r.UserData, t.Mark(chain, i, n)) {
			return fmt.Errorf("rule %d of chain %s: %w", i+1, chain, ErrForeign)
		}
	}
	return nil
}

// Attempt makes a change, three times at most while it fails. Between, failed is told why: whatever was done and
// whatever was not, the next attempt has to read what the kernel has.
func Attempt(ctx context.Context, change func() error, failed func(error)) error {
	const tries = 3
	var err error
	for range tries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err = change(); err == nil {
			return nil
		}
		failed(err)
	}
	return err
}
