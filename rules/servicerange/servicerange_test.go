package servicerange_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"monoplane.dev/rules/servicerange"
)

func addresses(t *testing.T, text string) servicerange.Addresses {
	t.Helper()
	list, err := servicerange.ParseAddresses(text)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", text, list, err)
	}
	return list[0]
}

func TestRangesAreRead(t *testing.T) {
	r := servicerange.Ranges{}.Complete()
	if len(r.Addresses) != 1 || r.Addresses[0].String() != servicerange.DefaultAddresses ||
		r.Addresses[0].First().String() != "10.96.0.1" || r.Ports.String() != servicerange.DefaultPorts {
		t.Errorf("the defaults are %v, %v", r.Addresses, r.Ports)
	}
	if two, err := servicerange.ParseAddresses("fd00:10:96::/112, 10.96.0.0/16"); err != nil || !two[0].Is6() ||
		two[1].Is6() {
		t.Errorf("two families: %v, %v", two, err)
	}
	for _, bad := range []string{
		"", "10.96.0.0", "10.96.0.1/16", "10.0.0.0/11", "10.96.0.0/30", "fd00::/63", "::ffff:10.96.0.0/112",
		"10.96.0.0/16,10.97.0.0/16", "10.96.0.0/16,fd00::/108,fd01::/108",
	} {
		if list, err := servicerange.ParseAddresses(bad); err == nil {
			t.Errorf("%q is %v", bad, list)
		}
	}
	for _, bad := range []string{"", "a", "0-10", "40000-30000", "1-70000"} {
		if ports, err := servicerange.ParsePorts(bad); err == nil {
			t.Errorf("%q is %v", bad, ports)
		}
	}
}

// All of a range is given out once, what is for those who choose last; then there is no more.
func TestAllIsGivenOutOnce(t *testing.T) {
	for text, want := range map[string]struct {
		size        int
		first, last string
		lower       int
	}{
		"10.96.0.0/29":   {6, "10.96.0.1", "10.96.0.6", 0},
		"10.96.0.0/24":   {254, "10.96.0.1", "10.96.0.254", 16},
		"10.96.0.0/20":   {4094, "10.96.0.1", "10.96.15.254", 256},
		"fd00:1::/120":   {255, "fd00:1::1", "fd00:1::ff", 16},
		"fd00:1::f8/125": {7, "fd00:1::f9", "fd00:1::ff", 0},
	} {
		rng := rand.New(rand.NewPCG(1, uint64(want.size)))
		a := addresses(t, text)
		had := map[netip.Addr]bool{}
		last := netip.MustParseAddr(want.first)
		for i := range want.size {
			addr, ok := a.Pick(rng.Uint64N, func(addr netip.Addr) bool { return had[addr] })
			if !ok || had[addr] || !a.Contains(addr) {
				t.Fatalf("%s: number %d is %v, %v", text, i, addr, ok)
			}
			had[addr] = true
			if last.Less(addr) {
				last = addr
			}
			chosen := netip.MustParseAddr(want.first)
			for range want.lower {
				chosen = chosen.Next()
			}
			if addr.Less(chosen) && i < want.size-want.lower {
				t.Fatalf("%s: number %d is %v, of the lower end", text, i, addr)
			}
		}
		if !had[netip.MustParseAddr(want.first)] || last.String() != want.last {
			t.Errorf("%s: the last is %v, the first had is %v", text, last, had[a.First()])
		}
		if addr, ok := a.Pick(rng.Uint64N, func(addr netip.Addr) bool { return had[addr] }); ok {
			t.Errorf("%s: one more is %v", text, addr)
		}
		if a.Contains(last.Next()) || a.Contains(a.First().Prev()) {
			t.Errorf("%s contains the network or what is beyond it", text)
		}
	}
}

func TestLargeRange(t *testing.T) {
	a := addresses(t, "fd00::/64")
	for _, begin := range []uint64{0, 1, 1 << 63, 1<<64 - 300} {
		addr, ok := a.Pick(func(n uint64) uint64 { return min(begin, n-1) }, func(netip.Addr) bool { return false })
		if !ok || !a.Contains(addr) || !strings.HasPrefix(addr.String(), "fd00::") {
			t.Errorf("from %d: %v, %v", begin, addr, ok)
		}
	}
}

func TestPorts(t *testing.T) {
	p, err := servicerange.ParsePorts("30000-30099")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	had := map[int32]bool{}
	for i := range 100 {
		port, ok := p.Pick(rng.Uint64N, func(n int32) bool { return had[n] })
		if !ok || had[port] || !p.Contains(port) || port < 30_016 && i < 84 {
			t.Fatalf("number %d is %d, %v", i, port, ok)
		}
		had[port] = true
	}
	if port, ok := p.Pick(rng.Uint64N, func(n int32) bool { return had[n] }); ok || p.Contains(29_999) ||
		p.Contains(30_100) {
		t.Errorf("one more: %d, %v", port, ok)
	}
}
