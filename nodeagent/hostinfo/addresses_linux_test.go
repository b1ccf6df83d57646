package hostinfo_test

import (
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/network/test/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// The machine's address is that of the link by which it goes out, whatever other links were there first.
//
// spec: NODE-1
func TestAddresses(t *testing.T) {
	machine := netnstest.New(t)
	link := func(name string, addresses ...string) {
		t.Helper()
		netnstest.Link(machine, netnstest.New(t), name, "eth0", addresses, nil)
	}
	want := func(when string, ips ...string) {
		t.Helper()
		var got []string
		machine.Do(func() error { got = hostinfo.Addresses(); return nil })
		if !slices.Equal(got, ips) {
			t.Errorf("%s the machine's addresses are %v, not %v", when, got, ips)
		}
	}
	want("with nothing but a loopback", "127.0.0.1")
	link("mp0123456789", "10.244.0.2/32", "fd00:10:244::2/128")
	want("with a link to pods", "127.0.0.1")
	link("docker0", "172.17.0.1/16", "fd00:17::1/64")
	want("with a bridge", "172.17.0.1", "fd00:17::1")
	link("slow", "198.51.100.2/24")
	link("fast", "203.0.113.2/24", "203.0.113.3/24", "2001:db8::2/64")
	want("before it goes out", "172.17.0.1", "fd00:17::1")
	change := func(name string, how func(netlink.Link) error) {
		t.Helper()
		machine.Do(func() error {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return how(l)
		})
	}
	goOut := func(name, everywhere string, metric int) {
		t.Helper()
		change(name, func(l netlink.Link) error {
			to, err := netlink.ParseIPNet(everywhere)
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: to, Priority: metric})
		})
	}
	goOut("slow", "0.0.0.0/0", 600)
	want("by a slow link", "198.51.100.2", "fd00:17::1")
	goOut("fast", "0.0.0.0/0", 100)
	goOut("fast", "::/0", 100)
	want("by a fast link, too,", "203.0.113.2", "2001:db8::2")
	change("fast", func(l netlink.Link) error {
		passing, err := netlink.ParseAddr("2001:db8::2/64")
		if err != nil {
			return err
		}
		passing.PreferedLft, passing.ValidLft = 0, 3600 // as where privacy is asked for, after a day
		return netlink.AddrReplace(l, passing)
	})
	want("with an address that passes", "203.0.113.2", "fd00:17::1")
	change("fast", netlink.LinkSetDown)
	want("when that is down", "198.51.100.2", "fd00:17::1")
}
