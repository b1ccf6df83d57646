//go:build rootonly

package nodens_test

import (
	"net/netip"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/network/nodens"
)

// TestRootPortsAtAllAddresses: whoever has a port at all addresses of the machine has it also at one where a server
// before had it lead elsewhere.
func TestRootPortsAtAllAddresses(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	a := podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5)})
	servesAll(a)
	translate(t, n, nodens.ArrivalAddress(pods4).String(), 8082, "10.244.0.5", 80)
	shut(t, n, change(t, n, nil, balanced()))
	n, err := nodens.Open(t.Context(), cfg)
	check(t, err)
	defer n.Close()
	own := onHost(6)
	for i := range own.HostPorts {
		own.HostPorts[i].Host = netip.MustParseAddrPort("[::]:8082")
	}
	b := podIn(t, n, "b", own)
	servesAll(b)
	sees(t, "the pod", one.do(order{Ask: "udp", Addr: lan + ":8082"}).Text)
	if got := b.do(order{Heard: true}).Text; !strings.Contains(got, neighbour+":") {
		t.Errorf("the pod that has the port has heard from %q, and another from %q", got, a.do(order{Heard: true}).Text)
	}
	change(t, n, nil, balanced()[:1])
	sees(t, "the pod in the end", one.do(order{Ask: "tcp", Addr: lan + ":8082"}).Text)
}
