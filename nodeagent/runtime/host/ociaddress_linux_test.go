package host

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/oci"
)

// giving is a network that knows who has an address. What refuses, if it is set, keeps Detach from working.
type giving struct {
	loopbackOnly

	mu      sync.Mutex
	owners  map[string]oci.Sandbox
	inUse   []string // Sandboxes that were detached while the process that holds their network ran.
	refuses error
	during  func() // Called by Configure, when it has been told who is there.
}

func (g *giving) Attach(ctx context.Context, s oci.Sandbox) ([]netip.Addr, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owners[s.ID] = s
	return g.loopbackOnly.Attach(ctx, s)
}

func (g *giving) Configure(_ context.Context, _ []netip.Prefix, existing []oci.Sandbox) error {
	if g.during != nil {
		g.during()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owners = map[string]oci.Sandbox{}
	for _, s := range existing {
		g.owners[s.ID] = s
	}
	return nil
}

func (g *giving) Detach(_ context.Context, id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuses != nil {
		return g.refuses
	}
	if s, ok := g.owners[id]; ok && exists(s.Namespace) {
		g.inUse = append(g.inUse, id)
	}
	delete(g.owners, id)
	return nil
}

func (g *giving) has(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.owners[id]
	return ok
}

func (g *giving) refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuses = err
}

func (n *node) address(sandbox string) string {
	n.t.Helper()
	st, err := n.PodSandboxStatus(n.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		n.t.Fatal(err)
	}
	return st.GetStatus().GetNetwork().GetIp()
}

func (n *node) stopSandboxes(ids ...string) {
	n.t.Helper()
	for _, id := range ids {
		if _, err := n.StopPodSandbox(n.t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// A sandbox gives its address back when it is stopped, not before its last process has ended, and however often it is
// stopped. From then on nobody is told the address, in the next runtime neither.
//
// spec: NET-1
func TestRootImageStopGivesAddressBack(t *testing.T) {
	t.Parallel()
	net := &giving{owners: map[string]oci.Sandbox{}}
	n := newNode(t, withImages(t), func(c *Config) { c.OCI.Network = net })
	sb, other := n.sandbox("pod"), n.sandbox("other")
	n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000")))
	if ip := n.address(sb); ip == "" || !net.has(sb) {
		t.Fatalf("the sandbox that runs has the address %q", ip)
	}
	n.stopSandboxes(sb, sb)
	if ip := n.address(sb); ip != "" || net.has(sb) {
		t.Errorf("the stopped sandbox has the address %q; the network thinks that it has one: %v", ip, net.has(sb))
	}
	if ip := n.address(other); ip == "" || !net.has(other) {
		t.Errorf("the other sandbox has the address %q", ip)
	}
	// A start that does not see for long that nothing runs in the sandbox learns it from there.
	if _, _, back := loadAddresses(n.sandboxOf(sb).dir); !back {
		t.Error("that the stopped sandbox has given its address back is not written down")
	}
	if _, _, back := loadAddresses(n.sandboxOf(other).dir); back {
		t.Error("the other sandbox is said to have given its address back")
	}
	n.reopen()
	if _, err := n.UpdateRuntimeConfig(t.Context(), &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.
		RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.0.0.0/24"}}}); err != nil {
		t.Fatal(err)
	}
	if ip := n.address(sb); ip != "" || net.has(sb) || n.address(other) == "" || !net.has(other) {
		t.Errorf("after a restart the stopped sandbox has the address %q, the other one %q", ip, n.address(other))
	}
	n.stopSandboxes(sb)
	n.removeAll()
	if len(net.inUse) > 0 {
		t.Errorf("addresses were given back while they were used: %v", net.inUse)
	}
}

// A sandbox that ends without being asked has its address until it is stopped, but nobody is told it any more.
//
// spec: NET-1
func TestRootImageEndedSandboxKeepsAddressUntilStopped(t *testing.T) {
	t.Parallel()
	net := &giving{owners: map[string]oci.Sandbox{}}
	n := newNode(t, withImages(t), func(c *Config) { c.OCI.Network = net })
	sb := n.sandbox("pod")
	if err := unix.Kill(n.shimPID(sb), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody is told the address", func() bool { return n.address(sb) == "" })
	if !net.has(sb) {
		t.Error("the address was given back before the sandbox was stopped")
	}
	n.stopSandboxes(sb)
	if net.has(sb) {
		t.Error("the address was not given back")
	}
}

// A network that gives nothing back keeps no sandbox from being stopped; its removal waits for it.
//
// spec: NET-1, SAFE-6
func TestRootImageStopWithoutNetwork(t *testing.T) {
	t.Parallel()
	net := &giving{owners: map[string]oci.Sandbox{}}
	n := newNode(t, withImages(t), func(c *Config) { c.OCI.Network = net })
	sb := n.sandbox("pod")
	pid := n.shimPID(sb)
	net.refuse(errors.New("the network is broken"))
	n.stopSandboxes(sb)
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
		t.Error("the sandbox is stopped, and its shim lives")
	}
	if err := n.remove(t.Context(), sb); err == nil {
		t.Error("the sandbox was removed, though it has an address still")
	}
	net.refuse(nil)
	if err := n.remove(t.Context(), sb); err != nil || net.has(sb) {
		t.Errorf("%v; it has an address: %v", err, net.has(sb))
	}
}

// A sandbox that is stopped while the network is told of it as one that is there keeps no address.
//
// spec: NET-1
func TestRootImageStopDuringConfigure(t *testing.T) {
	t.Parallel()
	net := &giving{owners: map[string]oci.Sandbox{}}
	n := newNode(t, withImages(t), func(c *Config) { c.OCI.Network = net })
	sb := n.sandbox("pod")
	net.during = func() { n.stopSandboxes(sb) }
	if _, err := n.UpdateRuntimeConfig(t.Context(), &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.
		RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.0.0.0/24"}}}); err != nil {
		t.Fatal(err)
	}
	if net.has(sb) {
		t.Error("the network keeps the address of a sandbox that is stopped")
	}
}
