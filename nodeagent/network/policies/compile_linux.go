package policies

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/utils/net"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/rules/labelselector"
)

// Direction is one of the two in which a pod can be isolated.
type Direction int

// The directions.
const (
	Ingress Direction = iota
	Egress
)

func (d Direction) String() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

// Chain decides about the first packets of connections. Its name ends in a hash of all else.
type Chain struct {
	Name      string
	Direction Direction
	// Policies are the chains of the policies that isolate a pod, for a pod's chain. What none lets through is refused.
	Policies []string
	// Allow is what a policy lets through, for a policy's chain.
	Allow []Allowance
}

// Allowance lets through what is exchanged with one of the peers, on one of the ports.
type Allowance struct {
	// Anybody says that peers do not count.
	Anybody bool
	// Peers are the names of sets of addresses of pods, without the family.
	Peers []string
	// Blocks are ranges of addresses.
	Blocks []nft.Range
	// Anything says that neither protocols nor ports count.
	Anything bool
	Ports    []Ports
	// Named are the names of sets of the ports that pods have by a name, without the family.
	Named []string
}

// Ports are ports of a protocol: of tcp, udp or sctp.
type Ports struct {
	Protocol    string
	First, Last uint16
}

// Peers are pods that may be at the other end.
type Peers struct {
	// Namespace is that of the pods; where it is empty, Namespaces selects by labels.
	Namespace  string
	Namespaces labels.Selector
	Pods       labels.Selector
}

// Policy is a compiled NetworkPolicy. It is not changed once made.
type Policy struct {
	// Selects are the labels of the pods that it isolates.
	Selects labels.Selector
	// Chains are those of the directions that it is about, nil for the others.
	Chains [2]*Chain
	// Peers are those that the chains refer to, by the names of their sets.
	Peers map[string]Peers
}

// Prefixes of the names of sets.
const (
	peersPrefix = "peers/"
	portsPrefix = "ports/"
)

// Compile returns what a policy says. What the server would have refused lets nothing through.
func Compile(p *networkingv1.NetworkPolicy) *Policy {
	m, spec := p.GetMetadata(), p.GetSpec()
	c := compiler{namespace: m.GetNamespace(), out: &Policy{Peers: map[string]Peers{}}}
	selects := spec.GetPodSelector()
	if selects == nil {
		selects = &metav1.LabelSelector{}
	}
	c.out.Selects = labelselector.OrNothing(selects)
	types := spec.GetPolicyTypes()
	if len(types) == 0 {
		types = []string{"Ingress"}
		if len(spec.GetEgress()) > 0 {
			types = append(types, "Egress")
		}
	}
	for d, kind := range map[Direction]string{Ingress: "Ingress", Egress: "Egress"} {
		if !slices.Contains(types, kind) {
			continue
		}
		chain := Chain{Direction: d}
		if d == Ingress {
			for _, r := range spec.GetIngress() {
				chain.Allow = append(chain.Allow, c.allowance(r.GetFrom(), r.GetPorts()))
			}
		} else {
			for _, r := range spec.GetEgress() {
				chain.Allow = append(chain.Allow, c.allowance(r.GetTo(), r.GetPorts()))
			}
		}
		chain = chain.named(d.String() + "/" + m.GetNamespace() + "/" + m.GetName())
		c.out.Chains[d] = &chain
	}
	return c.out
}

type compiler struct {
	namespace string
	out       *Policy
}

func (c *compiler) allowance(
	peers []*networkingv1.NetworkPolicyPeer, ports []*networkingv1.NetworkPolicyPort,
) Allowance {
	a := Allowance{Anybody: len(peers) == 0, Anything: len(ports) == 0}
	for _, p := range peers {
		if block := p.GetIpBlock(); block != nil {
			a.Blocks = append(a.Blocks, ranges(block)...)
			continue
		}
		if name, ok := c.peers(p); ok && !slices.Contains(a.Peers, name) {
			a.Peers = append(a.Peers, name)
		}
	}
	for _, p := range ports {
		protocol := "tcp"
		if p.Protocol != nil {
			protocol = strings.ToLower(p.GetProtocol())
		}
		if _, known := nft.Protocol(protocol); !known {
			continue
		}
		at := p.GetPort()
		switch {
		case at == nil:
			a.Ports = append(a.Ports, Ports{protocol, 0, 65535})
		case at.GetType() != 0:
			a.Named = append(a.Named, portsPrefix+protocol+"/"+at.GetStrVal())
		default:
			first, last := at.GetIntVal(), at.GetIntVal()
			if p.EndPort != nil {
				last = p.GetEndPort()
			}
			if first >= 1 && last <= 65535 && first <= last {
				a.Ports = append(a.Ports, Ports{protocol, uint16(first), uint16(last)}) //nolint:gosec // in range
			}
		}
	}
	return a
}

// peers notes the pods of a peer, and returns the name of their sets.
func (c *compiler) peers(p *networkingv1.NetworkPolicyPeer) (name string, ok bool) {
	out := Peers{Namespace: c.namespace, Pods: labels.Everything()}
	var err error
	where := "in " + c.namespace
	if s := p.GetNamespaceSelector(); s != nil {
		if out.Namespaces, err = labelselector.Of(s); err != nil {
			return "", false
		}
		out.Namespace, where = "", "of "+out.Namespaces.String()
	} else if p.GetPodSelector() == nil {
		return "", false
	}
	if s := p.GetPodSelector(); s != nil {
		if out.Pods, err = labelselector.Of(s); err != nil {
			return "", false
		}
	}
	name = peersPrefix + hash([]byte(where+"\x00"+out.Pods.String()))
	c.out.Peers[name] = out
	return name, true
}

// ranges returns the addresses of a block. It is read as the server does, which accepts more ways to write it than
// package netip.
func ranges(b *networkingv1.IPBlock) []nft.Range {
	whole, ok := prefix(b.GetCidr())
	if !ok {
		return nil
	}
	left := []nft.Range{nft.RangeOf(whole)}
	for _, text := range b.GetExcept() {
		part, ok := prefix(text)
		if !ok {
			return nil // what is not to be let through is not known
		}
		var rest []nft.Range
		for _, r := range left {
			rest = append(rest, r.Without(nft.RangeOf(part))...)
		}
		left = rest
	}
	return left
}

func prefix(text string) (netip.Prefix, bool) {
	_, n, err := utilnet.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a, bits), ok
}

// mostName bounds how much of what a chain is for is in its name; the kernel takes names of up to 255 bytes.
const mostName = 200

// named returns the chain with its name, which begins with what it is for.
func (c Chain) named(what string) Chain {
	c.Name = ""
	text, err := json.Marshal(c)
	if err != nil {
		panic("policies: a chain cannot be written: " + err.Error()) // it has neither cycles nor functions
	}
	c.Name = what[:min(len(what), mostName)] + "/" + hash(append([]byte(what), text...))
	return c
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
}
