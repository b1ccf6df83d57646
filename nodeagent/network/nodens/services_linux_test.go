package nodens_test

import (
	"fmt"
	"net/netip"
	"testing"

	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/nft"
	rules "monoplane.dev/nodeagent/network/services"
)

func TestRootlessManyServices(t *testing.T) { asUser(t, testManyServices) }

// testManyServices: over the sockets that the node namespace gives out, two hundred Services at once are one
// transaction of nftables.
func testManyServices(t *testing.T) {
	n := open(t, config(t))
	applier, err := rules.NewApplier(rules.Config{NFTables: n.NFTables, Netfilter: n.Netfilter})
	check(t, err)
	changes := func(number int, backends ...netip.AddrPort) (all []rules.Change) {
		for i := range number {
			name := fmt.Sprintf("service-of-some-length-%d", i)
			r := &rules.Rules{UID: name}
			for _, protocol := range []string{"tcp", "udp"} {
				c := rules.Chain{Name: fmt.Sprintf("service/%s/%s/%d", name, protocol, len(backends)), Backends: backends}
				r.Chains = append(r.Chains, c)
				r.Claims = append(r.Claims, rules.Claim{Chain: c.Name, Entry: rules.Entry{
					Protocol: protocol, Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80,
				}})
			}
			all = append(all, rules.Change{Service: cache.Key{Namespace: "ns", Name: name}, Rules: r})
		}
		return all
	}
	generation := func() uint32 {
		g, err := nft.Generation(n.Netfilter)
		check(t, err)
		return g
	}
	a, b := netip.MustParseAddrPort("10.244.0.5:80"), netip.MustParseAddrPort("10.244.0.6:80")
	for _, batch := range [][]rules.Change{changes(200, a), changes(100, a, b), changes(1, a)} {
		before := generation()
		check(t, applier.Apply(t.Context(), batch))
		if got := generation() - before; got != 1 {
			t.Errorf("%d Services are %d transactions", len(batch), got)
		}
	}
}
