package services

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"monoplane.dev/client/cache"
)

// Node is what Compile has to know besides the objects.
type Node struct {
	// Name is the node's, Zone the value of its label topology.kubernetes.io/zone.
	Name, Zone string
	// Standins are backends that take the place of a Service's endpoints on this node, by the Service and the name of
	// its port: where the API and DNS are reached from the namespace.
	Standins map[cache.Key]map[string][]netip.AddrPort
	// Own are the machine's addresses. Node ports count there too, for pods, whose packets to them come through the
	// namespace.
	Own []netip.Addr
	// Arrivals are addresses that stand for some of the machine's: packets come to the namespace with them where those
	// of the machine cannot be kept on the way. What Services have at the one address they have at the other.
	Arrivals map[netip.Addr]netip.Addr
}

// Where packets of a Service without a chain of its own are led.
const (
	// Reject answers: ICMP port unreachable, or a TCP reset.
	Reject = "reject"
	// Drop does not.
	Drop = "drop"
)

// Entry is a destination of packets.
type Entry struct {
	// Protocol is tcp, udp or sctp.
	Protocol string
	// V6 is the family.
	V6 bool
	// Addr is not valid for a node port, which counts on every address that the namespace has.
	Addr netip.Addr
	Port uint16
}

// Claim is what a Service wants of an Entry.
type Claim struct {
	Entry Entry
	// Chain is where packets go: the name of a chain, Reject or Drop.
	Chain string
	// Allocated says that the address is the Service's by allocation: nobody who merely names it takes it.
	Allocated bool
}

// Chain decides about the first packets of connections. Its name ends in a hash of all else.
type Chain struct {
	Name string
	V6   bool
	// Sources lets only clients with such addresses go on, to Next, and drops all others; it is for a chain with Next
	// and without Backends.
	Sources []netip.Prefix
	// Next is where clients in Sources go.
	Next string
	// Inside is where clients from inside the cluster go; the rest of the chain is for the others. Empty for none. Own
	// are addresses of the machine, which is inside, besides those that the namespace has itself.
	Inside string
	Own    []netip.Addr
	// Backends are where connections are led, at random. A chain without them and without Sources drops.
	Backends []netip.AddrPort
	// Affinity is the map that remembers clients, for Timeout after their last connection; empty for none.
	Affinity string
	Timeout  time.Duration
}

// named returns the chain with its name, which begins with what it is for.
func (c Chain) named(what string) Chain {
	c.Name = ""
	text, err := json.Marshal(c)
	if err != nil {
		panic("services: a chain cannot be written: " + err.Error()) // it has neither cycles nor functions
	}
	sum := sha256.Sum256(text)
	c.Name = what + "/" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
	return c
}

// Affinity is a map that remembers clients of a port.
type Affinity struct {
	Name string
	V6   bool
}

// Rules are those of one Service. They are not changed once made.
type Rules struct {
	// Since orders Services that claim the same entry: seconds, then UID.
	Since int64
	UID   string
	// Chains come before those that lead to them.
	Chains     []Chain
	Affinities []Affinity
	Claims     []Claim
	// Endpoints are addresses whose connections to themselves need another source address, or the answer would not come
	// back this way.
	Endpoints []netip.Addr
	// ClusterIPs are addresses of which the ports that nobody claims are rejected.
	ClusterIPs []netip.Addr
}
