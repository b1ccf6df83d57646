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
	conn, err := nftables.New()
	check(t, err)
	conn.FlushSet(&nftables.Set{Name: "ports4", Table: &nftables.Table{Name: nodens.HostTable("test"),
		Family: nftables.TableFamilyINet}})
	check(t, conn.Flush())
	n, err = nodens.Open(t.Context(), cfg)
	check(t, err)
	defer n.Close()
	check(t, n.Detach(t.Context(), "a"))
	b := podIn(t, n, "b", nodens.AttachConfig{Addresses: addresses(5)})
	servesAll(b)
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
	b := podIn(t, n, "b", nodens.AttachConfig{Addresses: addresses(5)})
	servesAll(b)
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
	servesAll(podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5)}))
	translate(t, n, "10.244.0.1", 8081, "10.244.0.5", 80)
	shut(t, n, change(t, n, nil, balanced()))
	n, err := nodens.Open(t.Context(), cfg)
	check(t, err)
	defer n.Close()
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

// TestRootPortsBesideOtherFamilies: rules for what is no packet of IP, whose hooks have the same numbers, do not judge
// what comes to the machine's ports.
func TestRootPortsBesideOtherFamilies(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	n := open(t, config(t))
	servesAll(podIn(t, n, "a", onHost(5)))
	conn, err := nftables.New()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyARP})
	const arpOut = 1 // NF_ARP_OUT, where others have the hook input.
	output := conn.AddChain(&nftables.Chain{Name: "OUTPUT", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookRef(arpOut), Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: output, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
	check(t, conn.Flush())
	check(t, n.Verify(t.Context()))
	check(t, n.Close())
	sees(t, "without a server", one.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
}
