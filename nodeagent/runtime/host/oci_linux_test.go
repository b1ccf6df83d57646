package host

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/cri"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/oci"
	"monoplane.dev/nodeagent/runtime/oci/helper"
	"monoplane.dev/nodeagent/runtime/stream"
)

const (
	testImage   = "example.com/busybox:1"
	signalImage = "example.com/signal:1" // The same with a STOPSIGNAL.
	volumeImage = "example.com/volume:1" // The same with VOLUMEs.
	brokenImage = "example.com/broken:1" // The same with a VOLUME where it has a file.
	busyboxPath = "/bin/busybox"
)

// testStore is a store of images, and where it is.
type testStore struct {
	*images.Store
	dir string
}

// What all tests with images begin with, made once: each would spend a second on it.
var (
	program helper.Program // until the process ends
	canRun  = sync.OnceValue(helper.Check)
	packed  struct {
		once    sync.Once
		archive []byte
	}
)

// newTestImages returns a store in a directory, with images of busybox.
func newTestImages(t testing.TB, dir string) *testStore {
	t.Helper()
	busybox, err := os.ReadFile(busyboxPath)
	if err != nil {
		t.Skip("busybox-static is not installed (make deps)")
	}
	store, err := images.Open(images.Config{Dir: dir, Overlay: helper.Overlay, IDs: ownIDs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	packed.once.Do(func() { packed.archive = busyboxArchive(t, busybox) })
	if _, err := store.Load(t.Context(), bytes.NewReader(packed.archive)); err != nil {
		t.Fatal(err)
	}
	return &testStore{store, dir}
}

// ownIDs is the one id that containers of this process have, if it is not root.
func ownIDs() userids.Maps {
	if os.Geteuid() == 0 {
		return userids.Maps{}
	}
	return userids.Single()
}

// openImages is what a second process of the test needs, for as long as it lives.
func openImages(dir string) (*OCI, error) {
	store, err := images.Open(images.Config{Dir: dir, Overlay: helper.Overlay, IDs: ownIDs()})
	if err != nil {
		return nil, err
	}
	program := new(helper.Program)
	if _, err := program.File(); err != nil { // Not when pods are timed.
		return nil, errors.Join(err, store.Close())
	}
	return &OCI{Helper: program.File, Images: store, Service: cri.New(store, nil), Network: loopbackOnly{}}, nil
}

// busyboxArchive is an archive as docker save writes it.
func busyboxArchive(t testing.TB, program []byte) []byte {
	t.Helper()
	var headers []tar.Header
	for _, d := range []string{"bin", "etc", "tmp", "data", "home", "deep", "deep/empty"} {
		headers = append(headers, tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755})
	}
	headers = append(headers,
		tar.Header{Typeflag: tar.TypeDir, Name: "kept", Mode: 0o1751, Uid: 33, Gid: 34},
		tar.Header{Name: "kept/file", Mode: 0o640, Uid: 33, Gid: 34},
		tar.Header{Typeflag: tar.TypeLink, Name: "kept/hard", Linkname: "kept/file"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "kept/out", Linkname: "../../etc/passwd"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "kept/fifo", Mode: 0o622},
		tar.Header{Typeflag: tar.TypeDir, Name: "kept/below", Mode: 0o711},
		tar.Header{Name: "kept/below/setuid", Mode: 0o4755},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/kept/below"})
	contents := map[string]string{
		"bin/busybox": string(program), "etc/passwd": "root:x:0:0::/:/bin/sh\nweb:x:33:34::/home:/bin/sh\n",
		"etc/group": "root:x:0:\nweb:x:34:\nextra:x:77:web\n", "data/file": "from the image\n",
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		headers = append(headers, tar.Header{Name: name, Mode: 0o755})
	}
	for _, name := range []string{"kept/file", "kept/below/setuid"} {
		contents[name] = name + " of the image\n"
	}
	applets, err := exec.CommandContext(t.Context(), busyboxPath, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet == "busybox" {
			continue
		}
		headers = append(headers, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"})
	}
	layer := archive(t, headers, contents)
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","config":{"Env":["FROM_IMAGE=yes"],`+
		`"Cmd":["/bin/sh","-c","echo default"]},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`,
		runtime.GOARCH, sha256.Sum256(layer))
	files := []tar.Header{{Name: "manifest.json"}, {Name: "config.json"}, {Name: "signal.json"}, {Name: "layer.tar"},
		{Name: "volume.json"}, {Name: "broken.json"}}
	return archive(t, files, map[string]string{
		"manifest.json": `[{"Config":"config.json","RepoTags":["` + testImage + `"],"Layers":["layer.tar"]},` +
			`{"Config":"signal.json","RepoTags":["` + signalImage + `"],"Layers":["layer.tar"]},` +
			`{"Config":"volume.json","RepoTags":["` + volumeImage + `"],"Layers":["layer.tar"]},` +
			`{"Config":"broken.json","RepoTags":["` + brokenImage + `"],"Layers":["layer.tar"]}]`,
		"config.json": config, "layer.tar": string(layer),
		"signal.json": strings.Replace(config, `"Env"`, `"StopSignal":"SIGUSR1","Env"`, 1),
		"volume.json": strings.Replace(config, `"Env"`, `"Volumes":{"/kept":{},"new/path":{},"/link/":{},"/deep/empty":{},`+
			`"/proc":{},"/asked":{}},"Env"`, 1),
		"broken.json": strings.Replace(config, `"Env"`, `"Volumes":{"/data/file":{}},"Env"`, 1),
	})
}

// archive writes a tar of the headers, each with its content.
func archive(t testing.TB, headers []tar.Header, contents map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Size = int64(len(contents[h.Name]))
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(contents[h.Name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// loopbackOnly is a network that gives sandboxes nothing but their loopback.
type loopbackOnly struct{}

func (loopbackOnly) Configure(context.Context, []netip.Prefix, []oci.Sandbox) error { return nil }

func (loopbackOnly) Ready(context.Context) error { return nil }

func (loopbackOnly) Attach(context.Context, oci.Sandbox) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func (loopbackOnly) Lost() []string { return nil }

func (loopbackOnly) Users(context.Context) (*os.File, error) { return nil, nil }

func (loopbackOnly) Dial(ctx context.Context, s oci.Sandbox, network string, to netip.AddrPort) (net.Conn, error) {
	inside, err := os.Open(s.Namespace)
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	var conn net.Conn
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // For good: the thread ends with this function.
		err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, network, to.String())
		}
		done <- err
	}()
	err = <-done
	return conn, err
}

func (loopbackOnly) Detach(context.Context, string) error { return nil }

// withImages makes a node run images.
func withImages(t testing.TB) func(*Config) {
	t.Helper()
	return withImagesIn(t, filepath.Join(t.TempDir(), "images"))
}

// withImagesIn has the images in a directory.
func withImagesIn(t testing.TB, dir string) func(*Config) {
	t.Helper()
	if err := canRun(); errors.Is(err, helper.ErrMissing) || err != nil && os.Geteuid() != 0 {
		t.Skip(err) // As root it has to work.
	}
	store := newTestImages(t, dir)
	return func(cfg *Config) {
		cfg.OCI = &OCI{Helper: program.File, Images: store, Service: cri.New(store.Store, nil), Network: loopbackOnly{}}
	}
}

// ofImage has a container run in the test image.
func ofImage(config *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
	config.Image = &runtimeapi.ImageSpec{Image: testImage}
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if config.Linux.SecurityContext == nil {
		config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}}
	}
	return config
}

// A container of an image sees the image, and is alone there.
func TestRootImageRoot(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c",
		"cat /data/file; echo $FROM_IMAGE; hostname; echo $$; echo hello >/data/new; cat /data/new; exit 3")))
	st := n.wait(id)
	if st.GetExitCode() != 3 || st.GetReason() != "Error" {
		t.Errorf("it ended with %v", st)
	}
	if got, want := strings.ReplaceAll(strings.ReplaceAll(n.logText(id), "stdout F ", ""), "\n", "|"),
		"from the image|yes|pod|1|hello|"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	def := n.run(sb, ofImage(containerConfig("default")))
	if n.wait(def).GetExitCode() != 0 || !strings.Contains(n.logText(def), "default") {
		t.Errorf("the image's own command: %v %s", n.status(def), n.logText(def))
	}
	long := n.run(sb, ofImage(containerConfig("long", "sleep", "600")))
	out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: long,
		Cmd: []string{"cat", "/data/file"}})
	if err != nil || string(out.GetStdout()) != "from the image\n" || out.GetExitCode() != 0 {
		t.Errorf("exec: %v %v", out, err)
	}
	out, err = n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: long,
		Cmd: []string{"sh", "-c", "exit 9"}})
	if err != nil || out.GetExitCode() != 9 {
		t.Errorf("exec: %v %v", out, err)
	}
	n.stop(long, 1)
	if st := n.wait(long); st.GetExitCode() != 137 {
		t.Errorf("sleep as process 1 ignores SIGTERM, and ended with %v", st)
	}
	n.removeAll()
	n.leftNoMounts()
}

// machine lists the mounts that a runtime could leave behind. Namespaces need a process, a mount or a descriptor to
// live.
func machine(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(mounts)
}

// A container of an image has a terminal of its own devpts, and so has a command that is executed in it.
func TestRootImageTerminal(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	config := ofImage(containerConfig("c", "/bin/sh", "-c", "tty; stty size; test -t 0 && echo interactive; sleep 600"))
	config.Tty, config.Stdin = true, true
	id := n.run(sb, config)
	eventually(t, "the container has said all", func() bool { return strings.Contains(n.logText(id), "interactive") })
	if text := n.logText(id); !strings.Contains(text, "/dev/pts/0") {
		t.Errorf("it says %q", text)
	}
	var out lockedBuffer
	sizes := make(chan stream.Size, 1)
	sizes <- stream.Size{Width: 91, Height: 27}
	code, err := n.ExecStream(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Tty: true, Stdin: true, Stdout: true,
		Cmd: []string{"sh", "-c", "read line; tty; stty size; echo got $line; exit 4"}},
		stream.Streams{In: strings.NewReader("words\n"), Out: &out, Sizes: sizes})
	if err != nil || code != 4 {
		t.Errorf("exec: %d %v", code, err)
	}
	for _, want := range []string{"/dev/pts/1", "27 91", "got words"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("exec says %q, not %q", out.String(), want)
		}
	}
	if _, err := n.ExecStream(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Tty: true, Stdout: true,
		Cmd: []string{"/no/such"}}, stream.Streams{Out: &out}); err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("what does not exist: %v", err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A container of an image has the machine's message queues and shared memory if it asks for them, whoever runs it.
//
// spec: CTR-6
func TestRootImageIPCOfTheMachine(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	config := sandboxConfig(n, "pod")
	options := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_NODE}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: options}}
	made, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	c := ofImage(containerConfig("c", "/bin/sh", "-c", "ls -l /proc/self/ns/ipc"))
	c.Linux.SecurityContext.NamespaceOptions = options
	id := n.run(made.GetPodSandboxId(), c)
	n.wait(id)
	want, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil || !strings.Contains(n.logText(id), want) {
		t.Errorf("it says %q, want %s, %v", n.logText(id), want, err)
	}
}

// Containers that share their processes find a process 1 that has nothing for them, even with CAP_SYS_PTRACE.
func TestRootImageSharedProcesses(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	config := sandboxConfig(n, "pod")
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}}}
	made, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	shared := func(name, script string) *runtimeapi.ContainerConfig {
		c := ofImage(containerConfig(name, "/bin/sh", "-c", script))
		c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		c.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_PTRACE"}}
		return c
	}
	// What process 1 inherits belongs to the container that it comes from, and ends with it.
	leaves := n.run(made.GetPodSandboxId(), shared("leaves", "(sleep 1000 & echo $!); exit 0"))
	if st := n.wait(leaves); st.GetExitCode() != 0 {
		t.Errorf("%v", st)
	}
	looks := n.run(made.GetPodSandboxId(), shared("looks",
		"echo files $(ls /proc/1/root/ | wc -l); grep Cap /proc/1/status; echo left $(ps | grep -c 'sleep 100[0]'); "+
			// Whose parent has ended becomes a child of process 1, which has to ask for its end.
			"p=$(sh -c '(until [ -e /go ]; do sleep 0.01; done) >/dev/null & echo $!'); "+
			"echo child of $(awk '/PPid/{print $2}' /proc/$p/status); echo >/go; "+
			"for i in $(seq 6000); do [ -d /proc/$p ] || { echo reaped; break; }; sleep 0.01; done; "+
			"kill -9 1; echo >/proc/1/exe; cat /proc/1/environ; echo; echo end"))
	n.wait(looks)
	text := n.logText(looks)
	// It is nobody's whom the runtime could find by the containers: it ends with the shim.
	first := firstProcess(t, n.shimPID(made.GetPodSandboxId()))
	if err := unix.Kill(n.shimPID(made.GetPodSandboxId()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "process 1 ends with the shim", func() bool { return !exists("/proc/" + first) })
	for _, line := range []string{"files 0", "left 0", "child of 1", "reaped", "end"} {
		if !strings.Contains(text, "stdout F "+line+"\n") {
			t.Errorf("it does not say %q", line)
		}
	}
	if strings.Contains(text, "HOME") {
		t.Error("it sees the environment of process 1")
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "Cap") && !strings.Contains(line, "0000000000000000") {
			t.Errorf("process 1 has privileges: %s", line)
		}
	}
	t.Log(text)
}

// Containers that share no processes need no other process but their shim.
func TestRootImageWithoutPause(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	config := sandboxConfig(n, "pod")
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}}}
	made, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	sb := made.GetPodSandboxId()
	id := n.run(sb, victim("c", "sleep", "1000"))
	want := []int{n.pid(id)}
	eventually(t, "the container is the shim's only child", func() bool {
		kids, err := sys.Children(n.shimPID(sb))
		return err == nil && slices.Equal(kids, want)
	})
	n.removeAll()
}

// firstProcess returns the pid of the process 1 that the containers of a shim share.
func firstProcess(t *testing.T, shim int) string {
	t.Helper()
	kids, err := sys.Children(shim)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range kids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasSuffix(string(line), "reap\x00") {
			return strconv.Itoa(pid)
		}
	}
	t.Fatal("there is none")
	return ""
}

// A port of a pod is reached in the pod's own network.
func TestRootImageForward(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("loopbackOnly enters the pod's network, which takes root")
	}
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	n.run(sb, ofImage(containerConfig("c", "nc", "-l", "-p", "80", "-e", "echo", "from the pod")))
	got := ""
	eventually(t, "the port answers", func() bool {
		near, far := net.Pipe()
		said := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(near)
			said <- string(text)
		}()
		err := n.Forward(t.Context(), sb, 80, pipeEnd{far})
		_ = far.Close()
		got = <-said
		_ = near.Close()
		return err == nil || got != ""
	})
	if got != "from the pod\n" {
		t.Errorf("it says %q", got)
	}
}

// pipeEnd is an end of a pipe whose other end reads to the end.
type pipeEnd struct{ net.Conn }

func (p pipeEnd) CloseWrite() error        { return p.Close() }
func (p pipeEnd) Read([]byte) (int, error) { return 0, io.EOF }
