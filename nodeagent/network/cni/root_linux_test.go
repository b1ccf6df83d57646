package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/oci"
)

// inside marks the second run of the tests, in namespaces of its own.
const inside = "MONOPLANE_TEST_CNI"

// debianPlugins is where Debian has the plugins.
const debianPlugins = "/usr/lib/cni"

// TestMain runs the tests in network and mount namespaces of their own, where that is allowed: plugins change the
// machine's network.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the thread that the death signal is tied to
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		os.Exit(max(1, exit.ExitCode()))
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "tests run in the machine's namespaces:", err)
		os.Exit(m.Run())
	}
	os.Exit(0)
}

// node is a node of a test, which can be opened again and again.
type node struct {
	t   *testing.T
	cfg Config
	// pods are the processes of sandboxes, by ID.
	pods map[string]*exec.Cmd
	now  *Network
}

// newNode skips tests that cannot have namespaces.
func newNode(t *testing.T, plugins, conf string) *node {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("plugins of CNI need root")
	}
	dir := t.TempDir()
	n := &node{t: t, pods: map[string]*exec.Cmd{}, cfg: Config{
		ConfDir: filepath.Join(dir, "net.d"), BinDirs: []string{filepath.Join(dir, "none"), plugins},
		Dir: filepath.Join(dir, "cni"), NamespaceDir: filepath.Join(dir, "netns"),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	if err := os.Mkdir(n.cfg.ConfDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if conf != "" {
		n.configure(conf)
	}
	return n
}

func (n *node) configure(conf string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.cfg.ConfDir, "10-test.conflist"), []byte(conf), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// open starts a network that finds what there is, as a server's start does.
func (n *node) open(existing ...oci.Sandbox) {
	n.t.Helper()
	var err error
	if n.now, err = New(n.cfg); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { n.close() })
	if err := n.now.Configure(n.t.Context(), nil, existing); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) close() {
	if err := n.now.Close(); err != nil {
		n.t.Error(err)
	}
}

// sandbox starts a process with a network namespace of its own.
func (n *node) sandbox(id string, ports ...*runtimeapi.PortMapping) oci.Sandbox {
	n.t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.pods[id] = cmd
	n.t.Cleanup(func() { n.kill(id) })
	return oci.Sandbox{ID: id, Namespace: fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid),
		Config: &runtimeapi.PodSandboxConfig{PortMappings: ports, Metadata: &runtimeapi.PodSandboxMetadata{
			Name: id + "-name", Namespace: "default", Uid: id + "-uid"}}}
}

// kill ends the process of a sandbox.
func (n *node) kill(id string) {
	if cmd := n.pods[id]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n.pods[id] = nil
	}
}

func (n *node) attach(s oci.Sandbox) netip.Addr {
	n.t.Helper()
	all, err := n.now.Attach(n.t.Context(), s)
	if err != nil || len(all) != 1 {
		n.t.Fatalf("the sandbox %s gets %v, %v", s.ID, all, err)
	}
	return all[0]
}

func (n *node) detach(id string) {
	n.t.Helper()
	if err := n.now.Detach(n.t.Context(), id); err != nil {
		n.t.Fatal(err)
	}
}

// files lists what is below a directory.
func files(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// serve has a server in a sandbox say its name on a port, until the test ends.
func serve(t *testing.T, s oci.Sandbox, port int) {
	t.Helper()
	begun := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		netns, err := os.Open(s.Namespace)
		if err == nil {
			defer netns.Close()
			err = unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET)
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		}
		begun <- err
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = l.Close() })
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, s.ID)
			conn.Close()
		}
	}()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
}

// answers checks who says its name on a connection.
func answers(t *testing.T, conn net.Conn, err error, want string) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if said, err := io.ReadAll(conn); string(said) != want {
		t.Errorf("%q answers, %v; want %q", said, err, want)
	}
}

func output(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// What plugins have made of the machine, of which nothing may be left but what they keep for good: the bridge, and
// chains without rules of a pod.
const (
	linksOfPods = "ip -o link | grep -c veth || true"
	rulesOfPods = "iptables-save | grep -c ' --to-destination ' || true"
)

// Real plugins connect pods with each other, with the machine and with its ports. A restart keeps what pods have, and
// what they had is given back.
//
// spec: NET-1
func TestRootPlugins(t *testing.T) {
	if _, err := os.Stat(debianPlugins + "/bridge"); err != nil {
		t.Skip("containernetworking-plugins is not installed (make deps)")
	}
	leases := filepath.Join(t.TempDir(), "leases")
	n := newNode(t, debianPlugins, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"real","plugins":[
		{"type":"bridge","bridge":"cni-test","isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{
		"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.77.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`, leases))
	output(t, "ip link set lo up")
	leased := func() (all []string) {
		for _, f := range files(leases) {
			if strings.HasPrefix(filepath.Base(f), "10.77.") {
				all = append(all, filepath.Base(f))
			}
		}
		return all
	}
	n.open()
	if err := n.now.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := n.sandbox("one")
	two := n.sandbox("two", &runtimeapi.PortMapping{HostPort: 7080, ContainerPort: 80})
	first, second := n.attach(one), n.attach(two)
	if got, want := leased(), []string{first.String(), second.String()}; !slices.Equal(got, want) {
		t.Errorf("%v are leased, not %v", got, want)
	}
	reach := func() {
		t.Helper()
		conn, err := n.now.Dial(t.Context(), one, "tcp", netip.AddrPortFrom(second, 80))
		answers(t, conn, err, "two")
		conn, err = net.Dial("tcp", netip.AddrPortFrom(second, 80).String())
		answers(t, conn, err, "two")
		gateway := netip.MustParseAddrPort("10.77.0.1:7080")
		conn, err = n.now.Dial(t.Context(), one, "tcp", gateway)
		answers(t, conn, err, "two")
	}
	serve(t, two, 80)
	reach()
	if again := n.attach(two); again != second {
		t.Errorf("asked again, the sandbox has %s, not %s", again, second)
	}

	n.close()
	n.open(one, two)
	if lost := n.now.Lost(); len(lost) > 0 {
		t.Errorf("a restart loses %v", lost)
	}
	if again := n.attach(two); again != second {
		t.Errorf("after a restart the sandbox has %s, not %s", again, second)
	}
	reach()

	// The processes of one end before it is disconnected, those of the other one while there is no server.
	n.kill("one")
	n.detach("one")
	n.detach("one")
	if got := leased(); !slices.Equal(got, []string{second.String()}) {
		t.Errorf("%v are leased", got)
	}
	n.close()
	n.kill("two")
	n.open()
	eventually(t, func() bool { return len(files(n.cfg.Dir)) == 0 })
	if got := leased(); len(got) > 0 {
		t.Errorf("%v are leased by nobody", got)
	}
	n.close()
	if got := files(n.cfg.NamespaceDir); len(got) > 0 {
		t.Errorf("namespaces are left: %v", got)
	}
	for _, what := range []string{linksOfPods, rulesOfPods, "iptables-save | grep -c 10.77.0.[2-9] || true"} {
		if got := output(t, what); got != "0\n" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// plugin is one of the tests' own: it notes what it is asked, and does as files beside it say.
const plugin = `#!/bin/sh
dir=$(dirname "$0")
stdin=$(cat)
[ -e "$CNI_NETNS" ] && netns=there || netns=$CNI_NETNS
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit ;;
esac
echo "$CNI_COMMAND $CNI_CONTAINERID $netns $CNI_IFNAME $CNI_ARGS" >> "$dir/calls"
echo "$stdin" > "$dir/stdin-$CNI_COMMAND"
[ -e "$dir/hang-$CNI_COMMAND" ] && sleep 1000
if [ -e "$dir/fail-$CNI_COMMAND" ]; then
	echo '{"cniVersion":"1.1.0","code":50,"msg":"no more cables"}'
	exit 1
fi
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.9/24"}]}' ;;
esac
`

const pluginConf = `{"cniVersion":"1.1.0","name":"own","plugins":[{"type":"own","mark":%d}]}`

// ownNode is a node with that plugin, and where that is.
func ownNode(t *testing.T) (n *node, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(dir+"/own", []byte(plugin), 0o700); err != nil {
		t.Fatal(err)
	}
	return newNode(t, dir, fmt.Sprintf(pluginConf, 1)), dir
}

// calls returns the lines that the plugin has noted of a command.
func calls(t *testing.T, dir, command string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(dir + "/calls")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, command+" ") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// nothing checks that nothing is kept of any sandbox.
func (n *node) nothing() {
	n.t.Helper()
	if got := append(files(n.cfg.Dir), files(n.cfg.NamespaceDir)...); len(got) > 0 {
		n.t.Errorf("something is left: %v", got)
	}
}

// A plugin learns which pod it is asked of, and is asked to delete with the configuration that it was asked to add
// with, whatever that is by then, and with the namespace although its processes have ended.
//
// spec: NET-1
func TestRootPluginIsAsked(t *testing.T) {
	n, dir := ownNode(t)
	n.open()
	n.attach(n.sandbox("box"))
	const args = "eth0 IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=box-name;" +
		"K8S_POD_INFRA_CONTAINER_ID=box;K8S_POD_UID=box-uid"
	if got, want := calls(t, dir, "ADD"), []string{"ADD box there " + args}; !slices.Equal(got, want) {
		t.Errorf("it is asked %v, not %v", got, want)
	}
	n.configure(fmt.Sprintf(pluginConf, 2))
	n.kill("box")
	n.detach("box")
	if got, want := calls(t, dir, "DEL"), []string{"DEL box there " + args}; !slices.Equal(got, want) {
		t.Errorf("it is asked %v, not %v", got, want)
	}
	var told struct {
		Mark       int
		PrevResult json.RawMessage
	}
	text, err := os.ReadFile(dir + "/stdin-DEL")
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err != nil || told.Mark != 1 || !bytes.Contains(told.PrevResult, []byte("10.9.0.9")) {
		t.Errorf("it is told %s, %v", text, err)
	}
	n.nothing()
}

// Where the namespace is gone, as after a restart of the machine, plugins are asked to delete without it.
//
// spec: NET-1
func TestRootNamespaceIsGone(t *testing.T) {
	n, dir := ownNode(t)
	n.open()
	n.attach(n.sandbox("box"))
	n.close()
	n.kill("box")
	if err := unix.Unmount(n.cfg.NamespaceDir+"/monoplane-box", 0); err != nil {
		t.Fatal(err)
	}
	n.open()
	eventually(t, func() bool { return len(calls(t, dir, "DEL")) > 0 })
	if got := calls(t, dir, "DEL")[0]; !strings.HasPrefix(got, "DEL box  eth0") {
		t.Errorf("it is asked %q", got)
	}
	eventually(t, func() bool { return len(files(n.cfg.Dir)) == 0 })
	n.close()
	n.nothing()
}

// A plugin that hangs or fails keeps the pod from starting, and says why; nothing is left of the attempt.
//
// spec: NET-1, SAFE-6
func TestRootPluginFails(t *testing.T) {
	n, dir := ownNode(t)
	n.cfg.Patience = 3 * time.Second // which a plugin that works needs where others do, too
	n.open()
	for file, want := range map[string]string{"fail-ADD": "no more cables", "hang-ADD": "did not end in time"} {
		touch(t, filepath.Join(dir, file))
		_, err := n.now.Attach(t.Context(), n.sandbox(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
		n.detach(file)
		remove(t, filepath.Join(dir, file))
	}
	n.configure(`{"cniVersion":"1.1.0","name":"own","plugins":[{"type":"own"},{"type":"absent"}]}`)
	if _, err := n.now.Attach(t.Context(), n.sandbox("some")); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a plugin that is not there: %v", err)
	}
	n.detach("some")
	n.nothing()

	// Whoever asked has gone.
	n.configure(fmt.Sprintf(pluginConf, 1))
	touch(t, dir+"/hang-ADD")
	asked, give := context.WithCancel(t.Context())
	result := make(chan error, 1)
	n.cfg.Patience = time.Minute
	n.close()
	n.open()
	s := n.sandbox("given-up")
	go func() {
		_, err := n.now.Attach(asked, s)
		result <- err
	}()
	eventually(t, func() bool { return len(calls(t, dir, "ADD given-up")) > 0 })
	give()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if err := n.now.Detach(asked, s.ID); err == nil || !strings.Contains(err.Error(), "asked again") {
		t.Errorf("to delete it ends with %v", err)
	}
	eventually(t, func() bool { return len(files(n.cfg.Dir)) == 0 })
	n.nothing()
}

// A deletion that fails is repeated until it succeeds, also by the next server, and others go on meanwhile.
//
// spec: NET-1
func TestRootDeletionIsRepeated(t *testing.T) {
	n, dir := ownNode(t)
	n.open()
	s := n.sandbox("box")
	n.attach(s)
	touch(t, dir+"/fail-DEL")
	if err := n.now.Detach(t.Context(), "box"); err == nil || !strings.Contains(err.Error(), "no more cables") {
		t.Errorf("it ends with %v", err)
	}
	eventually(t, func() bool { return len(calls(t, dir, "DEL")) >= 2 })
	n.close()
	before := len(calls(t, dir, "DEL"))
	n.open()
	eventually(t, func() bool { return len(calls(t, dir, "DEL")) > before })
	n.attach(n.sandbox("other"))
	remove(t, dir+"/fail-DEL")
	n.detach("other")
	eventually(t, func() bool { return len(files(n.cfg.Dir)) == 0 })
	n.close()
	n.nothing()
}

// A server that was killed while a plugin was at work does not know how far that came: it is asked to delete before it
// is asked to add again.
//
// spec: NET-1
func TestRootKilledWhileAdding(t *testing.T) {
	n, dir := ownNode(t)
	n.open()
	s := n.sandbox("box")
	touch(t, dir+"/hang-ADD")
	result := make(chan error, 1)
	go func() {
		_, err := n.now.Attach(t.Context(), s)
		result <- err
	}()
	eventually(t, func() bool { return len(calls(t, dir, "ADD")) > 0 })
	n.close()
	if err := <-result; err == nil {
		t.Error("it succeeds")
	}
	remove(t, dir+"/hang-ADD")
	n.open(s)
	n.attach(s)
	text, err := os.ReadFile(dir + "/calls")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(string(text)) {
		if command, _, _ := strings.Cut(line, " "); command == "ADD" || command == "DEL" {
			order = append(order, command)
		}
	}
	if !slices.Equal(order, []string{"ADD", "DEL", "ADD"}) {
		t.Errorf("it is asked to %v", order)
	}
	n.detach("box")
	n.nothing()
}

// The node waits for a configuration, and for plugins that are not ready. What belongs to nobody is collected once,
// before the first pod is connected, whatever the plugins make of that.
//
// spec: NET-1, NODE-1
func TestRootReady(t *testing.T) {
	n, dir := ownNode(t)
	n.open()
	s := n.sandbox("kept")
	n.attach(s)
	n.close()
	conf := n.cfg.ConfDir + "/10-test.conflist"
	remove(t, conf)
	remove(t, dir+"/calls")

	ready := func(want string) {
		t.Helper()
		var got string
		eventually(t, func() bool {
			got = fmt.Sprint(n.now.Ready(t.Context()))
			return strings.Contains(got, want)
		})
	}
	n.open(s)
	ready("no network is configured")
	if _, err := n.now.Attach(t.Context(), n.sandbox("early")); err == nil {
		t.Error("a sandbox is connected to nothing")
	}
	n.detach("early")
	if err := os.WriteFile(conf, []byte(`{"cniVersion":"1.1.0","name":"own","plugins":[{"type":"absent"}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	ready(`failed to find plugin "absent"`)
	touch(t, dir+"/fail-STATUS")
	n.configure(fmt.Sprintf(pluginConf, 1))
	ready("no more cables")
	remove(t, dir+"/fail-STATUS")
	ready("<nil>")
	n.close()

	remove(t, dir+"/calls")
	touch(t, dir+"/fail-GC")
	n.open(s)
	n.attach(n.sandbox("new"))
	if got := calls(t, dir, "GC"); len(got) != 1 {
		t.Errorf("it is asked to collect %v", got)
	}
	var told struct {
		Valid []map[string]string `json:"cni.dev/valid-attachments"`
	}
	text, err := os.ReadFile(dir + "/stdin-GC")
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err != nil || fmt.Sprint(told.Valid) != "[map[containerID:kept ifname:eth0]]" {
		t.Errorf("it is told %s, %v", text, err)
	}
	text, err = os.ReadFile(dir + "/calls")
	if err != nil || bytes.Index(text, []byte("GC")) > bytes.Index(text, []byte("ADD")) {
		t.Errorf("it is asked\n%s, %v", text, err)
	}
	n.detach("kept")
	n.detach("new")
	n.nothing()
}

// STATUS that hangs delays nobody, and says that the node is not ready.
//
// spec: NET-1, SAFE-6
func TestRootStatusHangs(t *testing.T) {
	n, dir := ownNode(t)
	touch(t, dir+"/hang-STATUS")
	n.open()
	began := time.Now()
	if err := n.now.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "have not answered yet") {
		t.Errorf("it is ready: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it takes %s", took)
	}
}

// Pods that another network has connected are to be made again.
//
// spec: NET-1
func TestRootLost(t *testing.T) {
	n, _ := ownNode(t)
	s := n.sandbox("others")
	n.open(s)
	if got := n.now.Lost(); !slices.Equal(got, []string{"others"}) {
		t.Errorf("%v are lost", got)
	}
	n.detach("others")
	if got := n.now.Lost(); len(got) > 0 {
		t.Errorf("%v are lost", got)
	}
}

// Remove asks plugins to delete what they have added, and leaves no file.
//
// spec: NET-1
func TestRootRemove(t *testing.T) {
	n, dir := ownNode(t)
	n.open()
	n.attach(n.sandbox("box"))
	n.close()
	if is, err := Connected(n.cfg.Dir); !is || err != nil {
		t.Errorf("it has connected pods: %t, %v", is, err)
	}
	n.kill("box")
	touch(t, dir+"/fail-DEL")
	if err := Remove(t.Context(), n.cfg); err == nil || !strings.Contains(err.Error(), "no more cables") {
		t.Errorf("it ends with %v", err)
	}
	remove(t, dir+"/fail-DEL")
	if err := Remove(t.Context(), n.cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.cfg.Dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
	if is, err := Connected(n.cfg.Dir); is || err != nil {
		t.Errorf("it has connected pods: %t, %v", is, err)
	}
	n.nothing()
}
