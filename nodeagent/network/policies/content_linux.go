package policies

import (
	"net/netip"

	"monoplane.dev/nodeagent/network/nft"
)

// The sets and maps of the fixed part, each in two families, such as egress4: nodeSet has the node's addresses, those
// of the directions lead from the address of an isolated pod to its chain.
const nodeSet = "node"

// element is an element of a set or a map; key is as the kernel has it.
type element struct{ set, key string }

// content is what the table has to hold.
type content struct {
	chains map[string]Chain
	// uses is how often each chain is wanted.
	uses map[string]int
	sets map[string]*set
	// counts is how often each element of a set is wanted.
	counts   map[element]int
	isolated map[element]verdict
}

// set is a pair of sets, one for each family.
type set struct {
	name string
	// peers are those whose addresses it has; nil for a set of ports.
	peers *Peers
	users int
	of    map[*member][]element
}

// verdict is the chain of an isolated address, and what has isolated it.
type verdict struct {
	chain string
	by    *isolation
}

func newContent() content {
	return content{
		chains: map[string]Chain{}, uses: map[string]int{}, sets: map[string]*set{}, counts: map[element]int{},
		isolated: map[element]verdict{},
	}
}

// touched are parts of the table that may have to be changed. Sets are those of one family.
type touched struct {
	chains, sets map[string]bool
	elements     map[element]bool
}

func newTouched() *touched {
	return &touched{chains: map[string]bool{}, sets: map[string]bool{}, elements: map[element]bool{}}
}

// merge adds what others touch.
func (t *touched) merge(o *touched) {
	for name := range o.chains {
		t.chains[name] = true
	}
	for name := range o.sets {
		t.sets[name] = true
	}
	for e := range o.elements {
		t.elements[e] = true
	}
}

// take returns what was touched since it was last asked.
func (w *World) take() *touched {
	t := w.touched
	w.touched = newTouched()
	return t
}

// everything touches all that is wanted.
func (c *content) everything() *touched {
	t := newTouched()
	for name := range c.chains {
		t.chains[name] = true
	}
	for name := range c.sets {
		t.sets[familyName(name, false)], t.sets[familyName(name, true)] = true, true
	}
	for e := range c.counts {
		t.elements[e] = true
	}
	for e := range c.isolated {
		t.elements[e] = true
	}
	return t
}

// wants tells whether an element is wanted, and for one of a map which chain it leads to.
func (c *content) wants(e element) (chain string, ok bool) {
	if v, ok := c.isolated[e]; ok {
		return v.chain, true
	}
	return "", c.counts[e] > 0
}

// wantsSet tells whether a set of one family is wanted.
func (c *content) wantsSet(name string) bool { return c.sets[name[:len(name)-len("/4")]] != nil }

func (w *World) addChain(c Chain) {
	if w.uses[c.Name]++; w.uses[c.Name] == 1 {
		w.chains[c.Name] = c
		w.touched.chains[c.Name] = true
	}
}

func (w *World) dropChain(name string) {
	if w.uses[name]--; w.uses[name] == 0 {
		delete(w.uses, name)
		delete(w.chains, name)
		w.touched.chains[name] = true
	}
}

func (w *World) addSet(s *set) {
	w.sets[s.name] = s
	w.touchSet(s)
}

func (w *World) dropSet(s *set) {
	delete(w.sets, s.name)
	w.touchSet(s)
}

func (w *World) touchSet(s *set) {
	for _, v6 := range []bool{false, true} {
		w.touched.sets[familyName(s.name, v6)] = true
	}
}

func (w *World) count(e element) {
	w.counts[e]++
	w.touched.elements[e] = true
}

func (w *World) uncount(e element) {
	if w.counts[e]--; w.counts[e] == 0 {
		delete(w.counts, e)
	}
	w.touched.elements[e] = true
}

// familyName returns the name of the one of two sets that has addresses of a family.
func familyName(set string, v6 bool) string {
	if v6 {
		return set + "/6"
	}
	return set + "/4"
}

// fixedName is familyName for the sets of the fixed part.
func fixedName(set string, v6 bool) string {
	if v6 {
		return set + "6"
	}
	return set + "4"
}

func addressKey(a netip.Addr) string { return string(a.AsSlice()) }

// portKey returns the key of a port of an address.
func portKey(a netip.Addr, p NamedPort) string {
	number, _ := nft.Protocol(p.Protocol)
	return string(a.AsSlice()) + string([]byte{number, 0, 0, 0}) + string(nft.PortBytes(p.Number))
}
