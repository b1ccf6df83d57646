package nodens_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens"
)

// nobody is the user that stands for one without rights.
const nobody = 65534

// What the machine of the tests has. Everything happens in a network namespace that the test makes: never in the
// machine's own.
const (
	lan     = "192.0.2.2"    // The machine's address.
	outside = "198.51.100.9" // A server that is not on the pods' network.
	mtu     = 1400
	// largeMTU is that of what pods send each other where the link of the machine takes less in one piece than they do.
	largeMTU = 6 * mtu

	outside6 = "2001:db8:9::9"
	nowhere  = "203.0.113.1" // Where no way leads.
	nowhere6 = "2001:db8:a::1"
)

func TestMain(m *testing.M) {
	switch os.Getenv("NODENS_TEST") {
	case "pod":
		podMain()
		return
	case "server":
		serverMain()
	case "opener":
		openerMain()
		return
	}
	os.Exit(m.Run())
}

// onMachine runs a test again, in a process with a network namespace of its own that stands for the machine: as root,
// or as a user without rights. More is what the machine has beside the usual. It returns whether this is that process.
func onMachine(t *testing.T, rootless bool, more ...func(*testing.T)) bool {
	t.Helper()
	switch os.Getenv("NODENS_TEST") {
	case "furnish":
		furnish(t)
		for _, f := range more {
			f(t)
		}
		dropRights(t)
	case "machine":
		return true
	}
	t.Parallel()
	binary := os.Args[0]
	if rootless && os.Geteuid() == 0 {
		binary = copied(t, binary)
	}
	cmd := exec.Command(binary, "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.count=1",
		"-test.v="+fmt.Sprint(testing.Verbose()), "-test.timeout=10m")
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "NODENS_TEST=furnish", "NODENS_DIR="+dir, "GORACE=atexit_sleep_ms=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	switch {
	case rootless && os.Geteuid() == 0:
		check(t, os.Chown(dir, nobody, nobody))
		for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
			check(t, os.Chmod(d, 0o755))
		}
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	case rootless:
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	cmd.SysProcAttr = attr
	err := cmd.Start()
	if rootless && err != nil {
		t.Skipf("user namespaces are not allowed here: %v", err)
	}
	check(t, err)
	err = cmd.Wait()
	if testing.Verbose() || err != nil {
		t.Logf("%s", out.Bytes())
	}
	if bytes.Contains(out.Bytes(), []byte("--- SKIP")) {
		t.SkipNow()
	}
	check(t, err)
	return false
}

// asRoot runs a test as root on a machine of its own; more is what that has beside the usual.
func asRoot(t *testing.T, test func(*testing.T), more ...func(*testing.T)) {
	t.Helper()
	if onMachine(t, false, more...) {
		test(t)
	}
}

// asUser is asRoot for a user without rights.
func asUser(t *testing.T, test func(*testing.T), more ...func(*testing.T)) {
	t.Helper()
	if onMachine(t, true, more...) {
		test(t)
	}
}

// startServer starts a process that does what a server does.
func startServer(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "NODENS_TEST=server")
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	return cmd
}

// copied gives the program to a user who cannot read where it is.
func copied(t *testing.T, binary string) string {
	b, err := os.ReadFile(binary)
	check(t, err)
	at := filepath.Join(t.TempDir(), "nodens.test")
	check(t, os.WriteFile(at, b, 0o755))
	for d := filepath.Dir(at); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		check(t, os.Chmod(d, 0o755))
	}
	return at
}

// furnish gives this process's network namespace what a machine has.
func furnish(t *testing.T) {
	t.Helper()
	lo := linkOf(t, "lo")
	check(t, netlink.LinkSetUp(lo))
	check(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipnet(outside + "/32")}))
	check(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipnet(outside6 + "/128"), Flags: unix.IFA_F_NODAD}))
	for _, to := range []string{nowhere + "/32", nowhere6 + "/128"} {
		check(t, netlink.RouteAdd(&netlink.Route{Dst: ipnet(to), Type: unix.RTN_UNREACHABLE}))
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "lan0", mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = "lan1", mtu
	check(t, netlink.LinkAdd(veth))
	check(t, netlink.LinkSetUp(veth))
	far := linkOf(t, "lan1")
	check(t, netlink.LinkSetUp(far))
	check(t, netlink.AddrAdd(veth, &netlink.Addr{IPNet: ipnet(lan + "/24")}))
	check(t, netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Gw: netip.MustParseAddr("192.0.2.1").AsSlice()}))
	if os.Geteuid() == 0 {
		check(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
		check(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	}
}

func linkOf(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	check(t, err)
	return link
}

// dropRights begins this process again, without what was needed to furnish the machine: no more than its user has.
func dropRights(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	check(t, unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
	check(t, os.Setenv("NODENS_TEST", "machine"))
	check(t, syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

var (
	pods4    = netip.MustParsePrefix("10.244.0.0/24")
	pods6    = netip.MustParsePrefix("fd00:244::/64")
	services = netip.MustParsePrefix("10.96.0.0/16")
)

// stateDir is where the state of the test's node namespace is.
func stateDir() string { return filepath.Join(os.Getenv("NODENS_DIR"), "net") }

// config4 is that of the test's node namespace where there is only IPv4.
func config4() nodens.Config {
	return nodens.Config{Cluster: "test", Dir: stateDir(), PodRanges: []netip.Prefix{pods4},
		ServiceRanges: []netip.Prefix{services}}
}

// config is that of the test's node namespace, whose directory it makes.
func config(t *testing.T) nodens.Config {
	t.Helper()
	cfg := config4()
	check(t, os.MkdirAll(cfg.Dir, 0o700))
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		cfg.PodRanges = append(cfg.PodRanges, pods6)
	}
	return cfg
}

// open opens the test's node namespace, and removes it at the end.
func open(t *testing.T, cfg nodens.Config) *nodens.Namespace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := nodens.Open(ctx, cfg)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = n.Close()
		if err := nodens.Remove(ctx, cfg); err != nil {
			t.Errorf("removing: %v", err)
		}
		nothingLeft(t)
	})
	return n
}

// nothingLeft checks that the machine has nothing of a node namespace any more.
func nothingLeft(t *testing.T) {
	t.Helper()
	links, err := netlink.LinkList()
	check(t, err)
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "mp") {
			t.Errorf("the link %s is left", l.Attrs().Name)
		}
	}
	if os.Geteuid() == 0 {
		conn, err := nftables.New()
		check(t, err)
		tables, err := conn.ListTables()
		check(t, err)
		for _, table := range tables {
			if strings.HasPrefix(table.Name, "monoplane") {
				t.Errorf("the table %s is left", table.Name)
			}
		}
	}
	if left := helpers(); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
	entries, err := os.ReadDir(stateDir())
	check(t, err)
	if len(entries) > 0 {
		t.Errorf("files are left: %v", entries)
	}
}

// helpers returns the helpers and spares whose state is below this test's directory.
func helpers() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		name, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if s := string(name); s != "monoplane-node\x00" && s != "monoplane-spare\x00" {
			continue
		}
		if dir, err := os.Readlink("/proc/" + e.Name() + "/fd/4"); err != nil ||
			!strings.HasPrefix(dir, filepath.Dir(stateDir())+"/") {
			continue
		}
		pids = append(pids, pid)
	}
	return pids
}

// podIn makes a pod and connects it.
func podIn(t *testing.T, n *nodens.Namespace, sandbox string, cfg nodens.AttachConfig) *pod {
	t.Helper()
	p := newPod(t, n)
	p.attach(n, sandbox, cfg)
	return p
}

// newPod makes a pod that is not connected.
func newPod(t *testing.T, n *nodens.Namespace) *pod {
	t.Helper()
	netns, err := n.NewPodNamespace(t.Context())
	check(t, err)
	t.Cleanup(func() { netns.Close() })
	var user *os.File
	if n.Status().Rootless {
		user, err = n.UserNamespace(t.Context())
		check(t, err)
		t.Cleanup(func() { user.Close() })
	}
	return enter(t, user, netns)
}

// attach connects the pod, or has its connection be as a configuration says.
func (p *pod) attach(n *nodens.Namespace, sandbox string, cfg nodens.AttachConfig) {
	p.t.Helper()
	_, err := n.Attach(p.t.Context(), sandbox, p.netns, cfg)
	check(p.t, err)
}

// plain is how a pod is connected that is to have no more than addresses.
func plain(host int) nodens.AttachConfig { return nodens.AttachConfig{Addresses: addresses(host)} }

// onHost is how a pod is connected that has port 8090 of the machine.
func onHost(host int) nodens.AttachConfig {
	return nodens.AttachConfig{Addresses: addresses(host), HostPorts: hostPorts(netip.MustParseAddrPort("[::]:8090"))}
}

// hostPorts lead to port 80 of a pod.
func hostPorts(at netip.AddrPort) []nodens.HostPort {
	return []nodens.HostPort{{Network: "tcp", Host: at, Port: 80}, {Network: "udp", Host: at, Port: 80}}
}

// twoPods connects pods to a new node namespace; the second one, of address 10.244.0.6, serves.
func twoPods(t *testing.T, cfg nodens.Config) (n *nodens.Namespace, a, b *pod) {
	t.Helper()
	n = open(t, cfg)
	return n, podIn(t, n, "a", plain(5)), servesAll(podIn(t, n, "b", plain(6)))
}

func addresses(host int) []netip.Addr {
	all := []netip.Addr{netip.AddrFrom4([4]byte{10, 244, 0, byte(host)})}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		all = append(all, netip.MustParseAddr(fmt.Sprintf("fd00:244::%x", host)))
	}
	return all
}
