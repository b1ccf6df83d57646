package services

import (
	"cmp"
	"net/netip"
	"slices"

	"monoplane.dev/client/cache"
)

// ledger has what all Services want, and says what the table has to be.
type ledger struct {
	services   map[cache.Key]*Rules
	chains     map[string]Chain
	affinities map[string]Affinity
	// claims are in the order in which they count.
	claims     map[Entry][]holder
	endpoints  map[netip.Addr]int
	clusterIPs map[netip.Addr]int
}

// holder is a Service that claims an entry.
type holder struct {
	Claim

	key   cache.Key
	since int64
	uid   string
}

func newLedger() *ledger {
	return &ledger{
		services: map[cache.Key]*Rules{}, chains: map[string]Chain{}, affinities: map[string]Affinity{},
		claims: map[Entry][]holder{}, endpoints: map[netip.Addr]int{}, clusterIPs: map[netip.Addr]int{},
	}
}

// touched are parts of the table that may have to be changed.
type touched struct {
	chains, affinities    map[string]bool
	entries               map[Entry]bool
	endpoints, clusterIPs map[netip.Addr]bool
}

func newTouched() *touched {
	return &touched{
		chains: map[string]bool{}, affinities: map[string]bool{}, entries: map[Entry]bool{},
		endpoints: map[netip.Addr]bool{}, clusterIPs: map[netip.Addr]bool{},
	}
}

// set makes rules those of a Service, nil for none, and notes what that touches.
func (l *ledger) set(key cache.Key, r *Rules, t *touched) {
	if old := l.services[key]; old != nil {
		l.remove(key, old, t)
	}
	if r != nil {
		l.add(key, r, t)
	}
}

func (l *ledger) remove(key cache.Key, r *Rules, t *touched) {
	delete(l.services, key)
	for _, c := range r.Chains {
		delete(l.chains, c.Name)
		t.chains[c.Name] = true
	}
	for _, a := range r.Affinities {
		delete(l.affinities, a.Name)
		t.affinities[a.Name] = true
	}
	for _, c := range r.Claims {
		rest := slices.DeleteFunc(l.claims[c.Entry], func(h holder) bool { return h.key == key })
		if l.claims[c.Entry] = rest; len(rest) == 0 {
			delete(l.claims, c.Entry)
		}
		t.entries[c.Entry] = true
	}
	count(l.endpoints, r.Endpoints, -1, t.endpoints)
	count(l.clusterIPs, r.ClusterIPs, -1, t.clusterIPs)
}

func (l *ledger) add(key cache.Key, r *Rules, t *touched) {
	l.services[key] = r
	for _, c := range r.Chains {
		l.chains[c.Name] = c
		t.chains[c.Name] = true
	}
	for _, a := range r.Affinities {
		l.affinities[a.Name] = a
		t.affinities[a.Name] = true
	}
	for _, c := range r.Claims {
		h := holder{Claim: c, key: key, since: r.Since, uid: r.UID}
		at, _ := slices.BinarySearchFunc(l.claims[c.Entry], h, before)
		l.claims[c.Entry] = slices.Insert(l.claims[c.Entry], at, h)
		t.entries[c.Entry] = true
	}
	count(l.endpoints, r.Endpoints, 1, t.endpoints)
	count(l.clusterIPs, r.ClusterIPs, 1, t.clusterIPs)
}

// before orders claims of one entry: an allocated address first, then the older Service.
func before(a, b holder) int {
	if a.Allocated != b.Allocated {
		if a.Allocated {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.uid, b.uid), cmp.Compare(a.key.String(), b.key.String()))
}

// target returns where packets to an entry go; empty when nobody claims it.
func (l *ledger) target(e Entry) string {
	if c := l.claims[e]; len(c) > 0 {
		return c[0].Chain
	}
	return ""
}

// backends returns where connections of a client to an entry are led.
func (l *ledger) backends(e Entry, client netip.Addr, inside []netip.Prefix) []netip.AddrPort {
	c := l.chains[l.target(e)]
	has := func(p netip.Prefix) bool { return p.Contains(client) }
	if c.Next != "" {
		if !slices.ContainsFunc(c.Sources, has) {
			return nil
		}
		c = l.chains[c.Next]
	}
	if c.Inside != "" && (slices.ContainsFunc(inside, has) || slices.Contains(c.Own, client)) {
		c = l.chains[c.Inside]
	}
	return c.Backends
}

// everything touches all that is wanted.
func (l *ledger) everything() *touched {
	t := newTouched()
	for name := range l.chains {
		t.chains[name] = true
	}
	for name := range l.affinities {
		t.affinities[name] = true
	}
	for e := range l.claims {
		t.entries[e] = true
	}
	for a := range l.endpoints {
		t.endpoints[a] = true
	}
	for a := range l.clusterIPs {
		t.clusterIPs[a] = true
	}
	return t
}

// count adds by to the number of Services that want each of the addresses.
func count(counts map[netip.Addr]int, addrs []netip.Addr, by int, t map[netip.Addr]bool) {
	for _, a := range addrs {
		if counts[a] += by; counts[a] == 0 {
			delete(counts, a)
		}
		t[a] = true
	}
}
