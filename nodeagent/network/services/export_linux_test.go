package services

import (
	"fmt"
	"maps"

	"monoplane.dev/nodeagent/network/nft"
)

// SetMostBytes bounds transactions.
func (a *Applier) SetMostBytes(n int) { a.mostBytes = n }

// Differences says how the kernel's table differs from what the Services want, by reading all of it; "" for not at
// all.
func (a *Applier) Differences() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	conn, err := a.cfg.NFTables()
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.CloseLasting() }()
	wanted := map[string]int{}
	for name, c := range a.ledger.chains {
		wanted[name] = nft.RuleCount(a.table.chainRules(c))
	}
	k, err := readKernel(conn, a.table, wanted)
	if err != nil {
		return "", err
	}
	entries := map[Entry]string{}
	for e := range a.ledger.claims {
		entries[e] = a.ledger.target(e)
	}
	switch {
	case !maps.Equal(k.entries, entries):
		return fmt.Sprintf("entries are %v\nand should be %v", k.entries, entries), nil
	case !sameKeys(k.chains, a.ledger.chains):
		return fmt.Sprintf("chains are %v\nand should be %v", k.chains, a.ledger.chains), nil
	case !sameKeys(k.affinities, a.ledger.affinities):
		return fmt.Sprintf("affinity maps are %v\nand should be %v", k.affinities, a.ledger.affinities), nil
	case !sameKeys(k.endpoints, a.ledger.endpoints), !sameKeys(k.clusterIPs, a.ledger.clusterIPs):
		return fmt.Sprintf("addresses are %v and %v\nand should be %v and %v", k.endpoints, k.clusterIPs,
			a.ledger.endpoints, a.ledger.clusterIPs), nil
	default:
		return "", nil
	}
}

func sameKeys[K comparable, A, B any](a map[K]A, b map[K]B) bool {
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

// Leads returns where the rules of a Service lead a connection: through how many names of chains it likes, to one of
// the backends, or to Reject or Drop. inside says that the client has an address of a pod.
func (r *Rules) Leads(e Entry, inside bool) (backends map[string]bool, verdict string) {
	chains := map[string]Chain{}
	for _, c := range r.Chains {
		chains[c.Name] = c
	}
	for _, claim := range r.Claims {
		if claim.Entry != e {
			continue
		}
		name := claim.Chain
		for {
			c, ok := chains[name]
			switch {
			case !ok:
				return nil, name
			case inside && c.Inside != "":
				name = c.Inside
			case c.Next != "":
				name = c.Next
			case len(c.Backends) == 0:
				return nil, Drop
			default:
				backends = map[string]bool{}
				for _, b := range c.Backends {
					backends[b.Addr().String()] = true
				}
				return backends, ""
			}
		}
	}
	return nil, ""
}

// Remove takes the table away, if it is there. With the last NAT rules of the namespace addresses of Services stop
// working for established connections, too; those still open go on when the table comes back.
func (a *Applier) Remove() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	conn, err := a.cfg.NFTables()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	a.kernel = nil
	conn.AddTable(a.table.Table) // so that deleting does not fail
	conn.DelTable(a.table.Table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("removing table %s: %w", TableName, err)
	}
	return nil
}
