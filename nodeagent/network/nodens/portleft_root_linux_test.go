//go:build rootonly

package nodens_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens"
)

// flowTo has a client outside begin a flow of UDP through a pod's host port.
func flowTo(t *testing.T, client *pod) *pod {
	t.Helper()
	client.do(order{Hold: 1, By: "udp", Addr: lan + ":8090"})
	sees(t, "the pod", client.do(order{Talk: true}).Text)
	return client
}

// heardNothing checks that a flow that was another pod's is refused, and has not come to a pod.
func heardNothing(t *testing.T, next, flow *pod) {
	t.Helper()
	if got := flow.try(order{Talk: true}); !strings.Contains(got.Err, "refused") {
		t.Errorf("a flow to a pod that is gone: %+v; want it refused", got)
	}
	if got := next.do(order{Heard: true}).Text; got != "" {
		t.Errorf("the pod that has the address next has heard from %q", got)
	}
}

// TestRootPortsOfAServerKilled: a server may be killed when the kernel no longer leads a port, but still knows what
// has come through it. That does not go to the pod that has the address next.
func TestRootPortsOfAServerKilled(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	cfg := config(t)
	n := open(t, cfg)
	servesAll(podIn(t, n, "a", onHost(5)))
	flow := flowTo(t, client())
	check(t, n.Close())
	changeRules(t, func(c *nftables.Conn) {
		c.FlushSet(&nftables.Set{Name: "ports4", Table: &nftables.Table{Name: nodens.HostTable("test"),
			Family: nftables.TableFamilyINet}})
	})
	n = open(t, cfg)
	check(t, n.Detach(t.Context(), "a"))
	b := servesAll(podIn(t, n, "b", plain(5)))
	heardNothing(t, b, flow)
}

// TestRootPortsWithoutDescriptors: a pod is not disconnected, so that nobody gets its address, before its ports have
// ended, which they cannot while the process has no file descriptor left.
func TestRootPortsWithoutDescriptors(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	n := open(t, config(t))
	servesAll(podIn(t, n, "a", onHost(5)))
	flow, one := flowTo(t, client()), client()
	again := withoutDescriptors(t)
	err := n.Detach(t.Context(), "a")
	again()
	if err == nil {
		t.Error("a pod is disconnected without a file descriptor")
	}
	check(t, n.Detach(t.Context(), "a"))
	b := servesAll(podIn(t, n, "b", plain(5)))
	refused(t, "after the pod", one, lan+":8090")
	heardNothing(t, b, flow)
}

// withoutDescriptors has this process open no file more, until again is called.
func withoutDescriptors(t *testing.T) (again func()) {
	t.Helper()
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}))
	return func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }
}

// TestRootPortsOfABusyProcess: where the process lacks file descriptors to serve what a server before has served, the
// kernel goes on leading clients there.
func TestRootPortsOfABusyProcess(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	servesAll(podIn(t, n, "a", plain(5)))
	shut(t, n, balance(t, n))
	n = open(t, cfg)
	again := withoutDescriptors(t)
	_, errs := n.ChangePorts(t.Context(), nil, balanced())
	again()
	for _, err := range errs {
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("without descriptors: %v", err)
		}
	}
	check(t, n.Verify(t.Context()))
	sees(t, "before the ports are served", one.do(order{Ask: "tcp", Addr: lan + ":8081"}).Text)
	check(t, n.Close())
	sees(t, "without a server", one.do(order{Ask: "tcp", Addr: lan + ":8081"}).Text)
}

// TestRootPortsAtAllAddresses: whoever has a port at all addresses of the machine has it also at one where a server
// before had it lead elsewhere.
func TestRootPortsAtAllAddresses(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	a := servesAll(podIn(t, n, "a", plain(5)))
	shut(t, n, balance(t, n))
	n = open(t, cfg)
	own := onHost(6)
	own.HostPorts = hostPorts(netip.MustParseAddrPort("[::]:8082"))
	b := servesAll(podIn(t, n, "b", own))
	sees(t, "the pod", one.do(order{Ask: "udp", Addr: lan + ":8082"}).Text)
	if got := b.do(order{Heard: true}).Text; !strings.Contains(got, neighbour+":") {
		t.Errorf("the pod that has the port has heard from %q, and another from %q", got, a.do(order{Heard: true}).Text)
	}
	change(t, n, nil, balanced()[:1])
	sees(t, "the pod in the end", one.do(order{Ask: "tcp", Addr: lan + ":8082"}).Text)
}

// TestRootPortsBesideOtherFamilies: rules for what is no packet of IP, whose hooks have the same numbers, do not judge
// what comes to the machine's ports.
func TestRootPortsBesideOtherFamilies(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	n := open(t, config(t))
	servesAll(podIn(t, n, "a", onHost(5)))
	const arpOut = 1 // NF_ARP_OUT, where others have the hook input.
	filter(t, &nftables.Table{Name: "filter", Family: nftables.TableFamilyARP},
		&nftables.Chain{Name: "OUTPUT", Hooknum: nftables.ChainHookRef(arpOut)}, &expr.Verdict{Kind: expr.VerdictAccept})
	check(t, n.Verify(t.Context()))
	check(t, n.Close())
	sees(t, "without a server", one.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
}
