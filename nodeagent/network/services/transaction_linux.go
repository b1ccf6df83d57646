package services

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monoplane.dev/nodeagent/network/nft"
)

// step is a part of a transaction. In one transaction, and from one to the next, steps of a lower pass come first:
// what is led to is made before, and what is no longer led to goes after.
type step struct {
	pass pass
	// chain, affinity, entry or addr is what is changed, by the pass.
	chain    Chain
	affinity Affinity
	entry    Entry
	addr     netip.Addr
	// target is where the entry leads afterwards, if anywhere.
	target string
	// set is what the elements are deleted from and added to. An entry that is led elsewhere is both, in one step, so
	// that no transaction ends in between.
	set      *nftables.Set
	del, add []nftables.SetElement
}

type pass int

const (
	addAffinity pass = iota
	addChain
	addEndpoint
	addClusterIP
	moveEntry
	deleteClusterIP
	deleteEndpoint
	deleteChain
	deleteAffinity
	passes
)

// seen says that packets meet what a pass changes. The others make chains and maps that nothing leads to yet, or
// delete those that nothing leads to any more.
func (p pass) seen() bool { return p >= addEndpoint && p <= deleteEndpoint }

// mostElements bounds a message, and what a transaction cannot be cut within.
const mostElements = 50

// plan returns the steps from what the kernel has to what the ledger says, by pass.
func (a *Applier) plan() ([]step, error) {
	var byPass [passes][]step
	add := func(s step) { byPass[s.pass] = append(byPass[s.pass], s) }
	for name := range a.dirty.affinities {
		want, ok := a.ledger.affinities[name]
		switch have := a.kernel.affinities[name]; {
		case ok && !have:
			add(step{pass: addAffinity, affinity: want})
		case !ok && have:
			add(step{pass: deleteAffinity, affinity: Affinity{Name: name}})
		}
	}
	a.planChains(add)
	for e := range a.dirty.entries {
		if err := a.planEntry(e, add); err != nil {
			return nil, err
		}
	}
	for _, s := range []struct {
		sets     [2]*nftables.Set
		dirty    map[netip.Addr]bool
		want     map[netip.Addr]int
		have     map[netip.Addr]bool
		add, del pass
		twice    bool
	}{
		{
			a.table.hairpins, a.dirty.endpoints, a.ledger.endpoints, a.kernel.endpoints, addEndpoint, deleteEndpoint, true,
		},
		{
			a.table.clusterIPs, a.dirty.clusterIPs, a.ledger.clusterIPs, a.kernel.clusterIPs, addClusterIP, deleteClusterIP,
			false,
		},
	} {
		for addr := range s.dirty {
			key := addr.AsSlice()
			if s.twice {
				key = append(key, key...)
			}
			set, element := s.sets[nft.Index(addr.Is6())], []nftables.SetElement{{Key: key}}
			switch want := s.want[addr] > 0; {
			case want && !s.have[addr]:
				add(step{pass: s.add, addr: addr, set: set, add: element})
			case !want && s.have[addr]:
				add(step{pass: s.del, addr: addr, set: set, del: element})
			}
		}
	}
	var out []step
	for _, steps := range byPass {
		out = append(out, steps...)
	}
	return out, nil
}

// planChains adds and deletes chains in an order in which each exists while another leads to it.
func (a *Applier) planChains(add func(step)) {
	done := map[string]bool{}
	var make func(name string)
	make = func(name string) {
		c, ok := a.ledger.chains[name]
		if !ok || done[name] || a.kernel.chains[name] {
			return
		}
		done[name] = true
		make(c.Next)
		make(c.Inside)
		add(step{pass: addChain, chain: c})
	}
	var gone []string
	for name := range a.dirty.chains {
		make(name)
		if _, ok := a.ledger.chains[name]; !ok && a.kernel.chains[name] {
			gone = append(gone, name)
		}
	}
	// What a chain was like is not known after a restart, but its name says which kinds it can lead to.
	slices.SortFunc(gone, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	for _, name := range gone {
		add(step{pass: deleteChain, chain: Chain{Name: name}})
	}
}

// rank orders kinds of chains: each leads only to those of a higher rank.
func rank(chain string) int {
	switch kind, _, _ := strings.Cut(chain, "/"); kind {
	case "firewall":
		return 1
	case "external":
		return 2
	case "service", "local":
		return 3
	default:
		return 0 // not one of ours
	}
}

func (a *Applier) planEntry(e Entry, add func(step)) error {
	want, have := a.ledger.target(e), a.kernel.entries[e]
	if want == have {
		return nil
	}
	key, ok := e.key()
	if !ok {
		return fmt.Errorf("a Service has protocol %q, which must be tcp, udp or sctp", e.Protocol)
	}
	set := a.table.services[nft.Index(e.V6)]
	if !e.Addr.IsValid() {
		set = a.table.nodePorts[nft.Index(e.V6)]
	}
	st := step{pass: moveEntry, entry: e, target: want, set: set}
	if have != "" {
		st.del = []nftables.SetElement{{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: have}}}
	}
	if want != "" {
		st.add = []nftables.SetElement{{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: want}}}
	}
	add(st)
	return nil
}

// carryOut makes the changes in one transaction if they fit. If not, all that packets meet is still changed by one, as
// far as that fits.
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
	for len(steps) > 0 {
		n := 1
		if steps[0].pass.seen() {
			for n < len(steps) && steps[n].pass.seen() {
				n++
			}
			if err := putElements(b, steps[:n]); err != nil {
				return err
			}
		} else if err := a.putObject(b.Conn, steps[0]); err != nil {
			return err
		}
		if err := b.End(); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// putObject makes or deletes a chain or a map.
func (a *Applier) putObject(conn *nftables.Conn, s step) error {
	t := a.table
	switch s.pass {
	case addAffinity:
		return conn.AddSet(t.affinitySet(s.affinity), nil)
	case addChain:
		return t.lasting.AddChain(conn, s.chain.Name, t.chainRules(s.chain))
	case deleteChain:
		conn.DelChain(&nftables.Chain{Table: t.Table, Name: s.chain.Name})
	case deleteAffinity:
		conn.DelSet(&nftables.Set{Table: t.Table, Name: s.affinity.Name})
	}
	return nil
}

// putElements deletes and adds elements of sets, pass by pass, and cuts them where they may be in two transactions.
func putElements(b *nft.Batch, steps []step) error {
	for len(steps) > 0 {
		var sets []*nftables.Set
		bySet := map[*nftables.Set][]step{}
		n := 0
		for ; n < len(steps) && steps[n].pass == steps[0].pass; n++ {
			s := steps[n]
			if bySet[s.set] == nil {
				sets = append(sets, s.set)
			}
			bySet[s.set] = append(bySet[s.set], s)
		}
		for _, set := range sets {
			for part := range slices.Chunk(bySet[set], mostElements) {
				if err := errors.Join(changeSet(b.Conn, set, part), b.Cut()); err != nil {
					return err
				}
			}
		}
		steps = steps[n:]
	}
	return nil
}

// changeSet deletes and adds elements of a set, by a message each.
func changeSet(conn *nftables.Conn, set *nftables.Set, steps []step) error {
	var del, add []nftables.SetElement
	for _, s := range steps {
		del, add = append(del, s.del...), append(add, s.add...)
	}
	if len(del) > 0 {
		if err := conn.SetDeleteElements(set, del); err != nil {
			return err
		}
	}
	if len(add) > 0 {
		return conn.SetAddElements(set, add)
	}
	return nil
}

// done notes that the kernel has a step.
func (k *kernel) done(s step) {
	switch s.pass {
	case addAffinity:
		k.affinities[s.affinity.Name] = true
	case deleteAffinity:
		delete(k.affinities, s.affinity.Name)
	case addChain:
		k.chains[s.chain.Name] = true
	case deleteChain:
		delete(k.chains, s.chain.Name)
	case addEndpoint:
		k.endpoints[s.addr] = true
	case deleteEndpoint:
		delete(k.endpoints, s.addr)
	case addClusterIP:
		k.clusterIPs[s.addr] = true
	case deleteClusterIP:
		delete(k.clusterIPs, s.addr)
	case moveEntry:
		if k.entries[s.entry] = s.target; s.target == "" {
			delete(k.entries, s.entry)
		}
	}
}
