package policies

import (
	"fmt"
	"maps"
	"net/netip"

	"monoplane.dev/nodeagent/network/nft"
)

// Lets tells what the contents of the table do with the first packet of a connection that no hook has settled.
func (w *World) Lets(src, dst netip.Addr, protocol string, port uint16) bool {
	for _, a := range []netip.Addr{src, dst} {
		if w.counts[element{fixedName(nodeSet, a.Is6()), addressKey(a)}] > 0 {
			return true
		}
	}
	p := packet{w, src, dst, protocol, port}
	return p.passes(Egress, src) && p.passes(Ingress, dst)
}

type packet struct {
	w        *World
	src, dst netip.Addr
	protocol string
	port     uint16
}

func (p packet) passes(d Direction, pod netip.Addr) bool {
	v, isolated := p.w.isolated[element{fixedName(d.String(), pod.Is6()), addressKey(pod)}]
	if !isolated {
		return true
	}
	for _, name := range p.w.chains[v.chain].Policies {
		for _, a := range p.w.chains[name].Allow {
			if p.fromPeer(a, d) && p.onPort(a) {
				return true
			}
		}
	}
	return false
}

func (p packet) fromPeer(a Allowance, d Direction) bool {
	peer := p.src
	if d == Egress {
		peer = p.dst
	}
	if a.Anybody {
		return true
	}
	for _, name := range a.Peers {
		if p.w.counts[element{familyName(name, peer.Is6()), addressKey(peer)}] > 0 {
			return true
		}
	}
	for _, r := range a.Blocks {
		if r.First.Is6() == peer.Is6() && r.First.Compare(peer) <= 0 && peer.Compare(r.Last) <= 0 {
			return true
		}
	}
	return false
}

func (p packet) onPort(a Allowance) bool {
	if a.Anything {
		return true
	}
	for _, r := range a.Ports {
		if r.Protocol == p.protocol && r.First <= p.port && p.port <= r.Last {
			return true
		}
	}
	for _, name := range a.Named {
		key := portKey(p.dst, NamedPort{Protocol: p.protocol, Number: p.port})
		if p.w.counts[element{familyName(name, p.dst.Is6()), key}] > 0 {
			return true
		}
	}
	return false
}

// SetMostBytes bounds transactions.
func (a *Applier) SetMostBytes(n int) { a.mostBytes = n }

// Differences says how the contents of two worlds differ; "" for not at all.
func (w *World) Differences(o *World) string {
	verdicts := func(w *World) map[element]string {
		out := map[element]string{}
		for e, v := range w.isolated {
			out[e] = v.chain
		}
		return out
	}
	switch {
	case !maps.Equal(verdicts(w), verdicts(o)):
		return fmt.Sprintf("isolated are %v and %v", verdicts(w), verdicts(o))
	case !maps.Equal(w.counts, o.counts):
		return fmt.Sprintf("elements are %v and %v", w.counts, o.counts)
	case !sameKeys(w.chains, o.chains) || !maps.Equal(w.uses, o.uses):
		return fmt.Sprintf("chains are %v and %v", w.uses, o.uses)
	case !sameKeys(w.sets, o.sets):
		return fmt.Sprintf("sets are %v and %v", w.sets, o.sets)
	}
	return ""
}

func sameKeys[K comparable, A, B any](a map[K]A, b map[K]B) bool {
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

// Differences says how the kernel's table differs from what a world wants, by reading all of it; "" for not at all.
func (a *Applier) Differences(w *World) (string, error) {
	conn, err := a.cfg.NFTables()
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.CloseLasting() }()
	wanted := map[string]int{}
	for name, c := range w.chains {
		wanted[name] = nft.RuleCount(a.table.chainRules(c))
	}
	k, err := readKernel(conn, a.table, wanted)
	if err != nil {
		return "", err
	}
	if len(w.isolated) == 0 {
		if k.exists {
			return "there is a table", nil
		}
		return "", nil
	}
	elements := map[element]string{}
	for e := range w.counts {
		elements[e] = ""
	}
	for e, v := range w.isolated {
		elements[e] = v.chain
	}
	sets := map[string]bool{}
	for name := range w.sets {
		sets[familyName(name, false)], sets[familyName(name, true)] = true, true
	}
	switch {
	case !maps.Equal(k.elements, elements):
		return fmt.Sprintf("elements are %v\nand should be %v", k.elements, elements), nil
	case !maps.Equal(k.sets, sets):
		return fmt.Sprintf("sets are %v\nand should be %v", k.sets, sets), nil
	case !sameKeys(k.chains, w.chains):
		return fmt.Sprintf("chains are %v\nand should be %v", k.chains, w.chains), nil
	}
	return "", nil
}

// RangesOf are those of a block.
var RangesOf = ranges
