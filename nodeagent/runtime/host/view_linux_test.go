package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/seccomp"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/view"
)

// needViews skips a test where the machine does not let this user make views.
func (n *node) needViews(sandbox string) {
	n.t.Helper()
	n.mu.RLock()
	defer n.mu.RUnlock()
	if why := n.sandboxes[sandbox].noView; why != "" {
		n.t.Skip("no views here: ", why)
	}
}

// output waits for a container and returns what it wrote.
func (n *node) output(id string) string {
	n.t.Helper()
	n.wait(id)
	return strings.NewReplacer("stdout F ", "", "stderr F ", "").Replace(n.logText(id))
}

func mount(host, container string) *runtimeapi.Mount {
	return &runtimeapi.Mount{HostPath: host, ContainerPath: container}
}

// script is a container that runs a script and has mounts.
func script(name, text string, mounts ...*runtimeapi.Mount) *runtimeapi.ContainerConfig {
	config := containerConfig(name, "/bin/sh", "-c", text)
	config.Mounts = append(config.Mounts, mounts...)
	return config
}

// volume makes a directory that holds a file "f" with its name.
func volume(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(name+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listing is what a directory of the machine holds, to be compared with later.
func listing(t *testing.T, dirs ...string) string {
	t.Helper()
	var out strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			fmt.Fprintln(&out, filepath.Join(dir, e.Name()), e.Type())
		}
	}
	return out.String()
}

// A mount is seen at its path, wherever that is, and whatever the machine has there; the rest of the machine is as it
// was, for the container and for everyone else.
//
// spec: LIFE-8
func TestMountsAtTheirPaths(t *testing.T) {
	t.Parallel()
	onlyHost(t, "the root is the image")
	n := newNode(t)
	sb := n.sandbox("views")
	n.needViews(sb)
	unique := "monoplane-test-" + strconv.Itoa(os.Getpid())
	machine := t.TempDir() // A directory of the machine that the container sees as it is.
	if err := os.Symlink("real", filepath.Join(machine, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(machine, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(machine, "dangling")); err != nil {
		t.Fatal(err)
	}
	before := listing(t, "/", "/etc", "/dev", "/usr", machine)
	src := volume(t, "volume")
	for name, c := range map[string]struct {
		path string // Where it is mounted.
		seen string // Where it is to be seen; else at path.
	}{
		"in the root":             {path: "/" + unique},
		"deep below the root":     {path: "/" + unique + "/a/b/c"},
		"in etc":                  {path: "/etc/" + unique},
		"in dev":                  {path: "/dev/" + unique},
		"in usr":                  {path: "/usr/" + unique + "/x"},
		"an existing directory":   {path: machine + "/real"},
		"through a link":          {path: machine + "/link", seen: machine + "/real"},
		"below a link":            {path: machine + "/link/new", seen: machine + "/real/new"},
		"a link to what is not":   {path: machine + "/dangling", seen: machine + "/nowhere"},
		"dots in the path":        {path: "/" + unique + "/../" + machine + "/./x/../y", seen: machine + "/y"},
		"through what is missing": {path: "/" + unique + "/z/../../etc/" + unique, seen: "/etc/" + unique},
	} {
		t.Run(name, func(t *testing.T) {
			seen := c.seen
			if seen == "" {
				seen = c.path
			}
			config := script(name, "cat "+seen+"/f; cat /proc/self/comm; test -e /etc/passwd && echo machine; ls -d "+machine+
				"/real; echo more > "+seen+"/written", mount(src, c.path))
			id := n.run(sb, config)
			if got, want := n.output(id), "volume\ncat\nmachine\n"+machine+"/real\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			b, err := os.ReadFile(filepath.Join(src, "written"))
			if err != nil || string(b) != "more\n" {
				t.Errorf("what the container wrote: %q %v", b, err)
			}
		})
	}
	if after := listing(t, "/", "/etc", "/dev", "/usr", machine); after != before {
		t.Errorf("the machine had\n%s\nand has\n%s", before, after)
	}
}

// Mounts lie in each other in any order, a missing mount point is made in the volume that lacks it, or shown there
// when the volume cannot be written to, and files are mounted as files.
func TestNestedMounts(t *testing.T) {
	t.Parallel()
	onlyHost(t, "the root is the image")
	n := newNode(t)
	sb := n.sandbox("nested")
	n.needViews(sb)
	outer, inner, fixed := volume(t, "outer"), volume(t, "inner"), volume(t, "fixed")
	readOnly := mount(fixed, "/monoplane-fixed")
	readOnly.Readonly = true
	id := n.run(sb, script("c", `cd /monoplane-outer; cat f in/f config.txt; touch new; ls /monoplane-fixed/;
cat /monoplane-fixed/f /monoplane-fixed/in/f; touch /monoplane-fixed/new 2>&1 | grep -o 'Read-only.*'`,
		mount(inner, "/monoplane-fixed/in"), mount(filepath.Join(inner, "f"), "/monoplane-outer/config.txt"),
		mount(inner, "/monoplane-outer/in/"), mount(outer, "/monoplane-outer"), readOnly))
	want := "outer\ninner\ninner\nf\nin\nfixed\ninner\n"
	if got := n.output(id); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := listing(t, outer); !strings.Contains(got, "/new ") || !strings.Contains(got, "/in d") ||
		!strings.Contains(got, "/config.txt ") {
		t.Errorf("the outer volume has %s", got)
	}
	if got := listing(t, fixed); strings.Contains(got, "/in") || strings.Contains(got, "/new") {
		t.Errorf("the volume that cannot be written to has %s", got)
	}
}

// A file is mounted over a key of a volume whose keys are links, and beside them, whoever of two containers shares it,
// in an image as in the machine's root.
func TestRootMountedOverKeys(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("keys")
	keys, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	for _, err := range []error{
		os.Chmod(keys, 0o755), os.Mkdir(filepath.Join(keys, "..1"), 0o755), os.Symlink("..1", filepath.Join(keys, "..data")),
		os.Symlink("..data/k", filepath.Join(keys, "k")), os.Symlink("..data/l", filepath.Join(keys, "l")),
		os.WriteFile(filepath.Join(keys, "..1/k"), []byte("key k\n"), 0o644),
		os.WriteFile(filepath.Join(keys, "..1/l"), []byte("key l\n"), 0o644),
		os.WriteFile(filepath.Join(keys, "fresh"), nil, 0o644), os.WriteFile(file, []byte("file\n"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	volume := mount(keys, "/monoplane-keys")
	volume.Readonly = true
	over := []*runtimeapi.Mount{mount(file, "/monoplane-keys/k"), volume, mount(file, "/monoplane-keys/fresh")}
	const say = "cd /monoplane-keys; cat k l fresh"
	for i, as := range []func(*runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig{
		func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig { return c }, ofImage,
	} {
		id := n.run(sb, as(script(fmt.Sprint("over", i), say, over...)))
		beside := n.run(sb, as(script(fmt.Sprint("beside", i), say, volume)))
		if got := n.output(id); got != "file\nkey l\nfile\n" {
			t.Errorf("with the mounts it reads %q: %v", got, n.status(id))
		}
		if got := n.output(beside); got != "key k\nkey l\n" {
			t.Errorf("beside it reads %q", got)
		}
	}
}

// A volume whose content leads elsewhere by links leads there in the container only, and makes nothing on the machine.
func TestLinksInVolumes(t *testing.T) {
	t.Parallel()
	onlyHost(t, "libcontainer makes mount points in volumes")
	n := newNode(t)
	sb := n.sandbox("hostile")
	n.needViews(sb)
	machine, evil, src := t.TempDir(), volume(t, "evil"), volume(t, "src")
	for name, to := range map[string]string{"abs": machine, "up": "../../../../../../../../.." + machine} {
		if err := os.Symlink(to, filepath.Join(evil, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("loop", filepath.Join(evil, "loop")); err != nil {
		t.Fatal(err)
	}
	id := n.run(sb, script("c", "cat /monoplane-evil/abs/x/f "+machine+"/x/f "+machine+"/y/f",
		mount(evil, "/monoplane-evil"), mount(src, "/monoplane-evil/abs/x"), mount(src, "/monoplane-evil/up/y")))
	if got := n.output(id); got != "src\nsrc\nsrc\n" {
		t.Errorf("got %q", got)
	}
	if got := listing(t, machine); got != "" {
		t.Errorf("the machine has %s", got)
	}
	id = n.create(sb, script("loop", "true", mount(evil, "/monoplane-evil"), mount(src, "/monoplane-evil/loop/x")))
	if err := n.start(id); err == nil || !strings.Contains(err.Error(), "too many symbolic links") {
		t.Errorf("a loop: %v", err)
	}
}

// A mount that cannot be made fails the start, with its name, and nothing runs without it.
func TestMountsThatFail(t *testing.T) {
	t.Parallel()
	onlyHost(t, "libcontainer has words of its own")
	n := newNode(t)
	sb := n.sandbox("failing")
	n.needViews(sb)
	src := volume(t, "src")
	shared := mount(src, "/monoplane-x")
	shared.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	for name, c := range map[string]struct {
		mount *runtimeapi.Mount
		want  string
	}{
		"file on a directory":     {mount(src+"/f", "/etc"), "one of both is a directory"},
		"directory on a file":     {mount(src, "/etc/passwd"), "one of both is a directory"},
		"below a file":            {mount(src, "/etc/passwd/x"), "cannot be followed: not a directory"},
		"source below a file":     {mount(src+"/f/x", "/monoplane-x"), "the host path cannot be opened"},
		"shared from what is not": {shared, "Bidirectional"},
	} {
		ran := filepath.Join(t.TempDir(), "ran")
		id := n.create(sb, script(name, "touch "+ran, c.mount))
		err := n.start(id)
		if name == "shared from what is not" && err == nil {
			continue // The machine's mounts are shared.
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.mount.ContainerPath) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		st := n.status(id)
		if st.GetExitCode() != 128 || st.GetReason() != "StartError" || exists(ran) {
			t.Errorf("%s: %v", name, st)
		}
	}
	missing := filepath.Join(t.TempDir(), "made", "for", "it")
	n.wait(n.run(sb, script("missing source", "touch /monoplane-x/f", mount(missing, "/monoplane-x"))))
	if !exists(filepath.Join(missing, "f")) {
		t.Error("a missing host path was not made")
	}
}

// A device is seen at its path, as the mounts are.
func TestDevices(t *testing.T) {
	t.Parallel()
	onlyHost(t, "images have devices of their own")
	n := newNode(t)
	sb := n.sandbox("devices")
	n.needViews(sb)
	config := script("c",
		"echo x > /dev/monoplane-null && head -c 2 /monoplane/zero | wc -c; test -c /monoplane/zero && echo device")
	config.Devices = []*runtimeapi.Device{
		{HostPath: "/dev/null", ContainerPath: "/dev/monoplane-null", Permissions: "rw"},
		{HostPath: "/dev/zero", ContainerPath: "/monoplane/zero", Permissions: "mrw"}}
	if got := n.output(n.run(sb, config)); got != "2\ndevice\n" {
		t.Errorf("got %q", got)
	}
	for want, d := range map[string]*runtimeapi.Device{
		"cannot restrict":   {HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "r"},
		"needs a host_path": {HostPath: "/dev/null", ContainerPath: "x", Permissions: "rw"},
	} {
		config := script("bad", "true")
		config.Devices = []*runtimeapi.Device{d}
		n.refuses(sb, config, want)
	}
}

// What the pod has of its own: host name, /etc/hostname, /etc/resolv.conf, /etc/hosts, the termination message.
//
// spec: LIFE-8
func TestFilesOfThePod(t *testing.T) {
	t.Parallel()
	onlyHost(t, "the root is the image")
	n := newNode(t)
	config := sandboxConfig(n, "files")
	config.Hostname = "my-pod"
	config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10", "::1"}, Searches: []string{"a.b", "c"},
		Options: []string{"ndots:5"}}
	resp, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	n.needViews(resp.GetPodSandboxId())
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hosts, message := filepath.Join(t.TempDir(), "hosts"), filepath.Join(t.TempDir(), "message")
	for name, content := range map[string]string{hosts: "127.0.0.1 my-pod\n", message: ""} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := exists(defaultMessagePath)
	id := n.run(resp.GetPodSandboxId(), script("c",
		"hostname; cat /etc/hostname /etc/hosts /etc/resolv.conf; echo bye > "+defaultMessagePath,
		mount(hosts, hostsPath), mount(message, defaultMessagePath)))
	want := "my-pod\nmy-pod\n127.0.0.1 my-pod\nsearch a.b c\nnameserver 10.0.0.10\nnameserver ::1\noptions ndots:5\n"
	if got := n.output(id); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if b, err := os.ReadFile(message); err != nil || string(b) != "bye\n" {
		t.Errorf("termination message %q %v", b, err)
	}
	if exists(defaultMessagePath) != before {
		t.Error("the machine has a termination message")
	}
	if now, err := os.Hostname(); err != nil || now != machine {
		t.Errorf("the machine is called %q now", now)
	}
	// The agent finds the termination message by the mounts, which events tell too.
	pod, err := n.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{
		PodSandboxId: resp.GetPodSandboxId()})
	if err != nil || len(pod.GetContainersStatuses()[0].GetMounts()) != 2 || len(n.status(id).GetMounts()) != 2 {
		t.Errorf("%v %v %v", pod, err, n.status(id))
	}
	if w := n.warnings(id); w != "" {
		t.Errorf("warnings %s", w)
	}
}

// What runs in a container by ExecSync sees what the container sees, also when the host path has been renamed since,
// and after the runtime was restarted. Processes of one pod see each other.
func TestExecInTheView(t *testing.T) {
	t.Parallel()
	onlyHost(t, "libcontainer has words of its own")
	n := newNode(t)
	sb := n.sandbox("exec")
	n.needViews(sb)
	src := volume(t, "src")
	id := n.run(sb, script("c", "touch /monoplane-x/up /monoplane-y; exec sleep 1000", mount(src, "/monoplane-x")))
	eventually(t, "the container is up", func() bool { return exists(filepath.Join(src, "up")) })
	if err := os.Rename(src, src+"-renamed"); err != nil {
		t.Fatal(err)
	}
	other := n.run(sb, containerConfig("other", "sleep", "1000"))
	for range 2 {
		got, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/sh", "-c",
			fmt.Sprintf("cat /monoplane-x/f; hostname; ls /monoplane-y; test -d /proc/%d && echo seen; exit 3", n.pid(other))}})
		if err != nil || string(got.GetStdout()) != "src\nexec\n/monoplane-y\nseen\n" || got.GetExitCode() != 3 {
			t.Errorf("%v %v", got, err)
		}
		if got, err = n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: other,
			Cmd: []string{"ls", "/monoplane-x"}}); err != nil || got.GetExitCode() == 0 {
			t.Errorf("another container sees it: %v %v", got, err)
		}
		if _, err = n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"/monoplane-x/none"}}); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("a missing command: %v", err)
		}
		n.reopen()
	}
}

// With a read-only root nothing of the machine can be written to, but what is mounted can, and what all programs need.
//
// spec: SEC-1
func TestReadOnlyRoot(t *testing.T) {
	t.Parallel()
	onlyHost(t, "the files of tests are on a mount")
	n := newNode(t)
	sb := n.sandbox("sealed")
	n.needViews(sb)
	src, machine := volume(t, "src"), t.TempDir()
	fresh := filepath.Dir(machine) + "-new" // a name that nobody else has left there
	text := "touch " + machine + "/x /monoplane-new /etc/monoplane-new " + fresh + " 2>&1 | grep -c Read-only; " +
		"touch /monoplane-x/new && echo volume; echo > /dev/null && echo null; echo 500 > /proc/self/oom_score_adj && " +
		"echo proc"
	config := withSecurity(script("c", text, mount(src, "/monoplane-x")),
		&runtimeapi.LinuxContainerSecurityContext{ReadonlyRootfs: true}, 0)
	if got := n.output(n.run(sb, config)); got != "4\nvolume\nnull\nproc\n" {
		t.Errorf("got %q", got)
	}
	if !exists(filepath.Join(src, "new")) || exists(filepath.Join(machine, "x")) {
		t.Error("written where it must not be")
	}
	// A directory of the machine that is mounted where it is stays open, and one that is asked for read-only is not.
	same := mount(machine, machine)
	config = withSecurity(script("same", "touch "+machine+"/y", same),
		&runtimeapi.LinuxContainerSecurityContext{ReadonlyRootfs: true}, 0)
	if n.wait(n.run(sb, config)); !exists(filepath.Join(machine, "y")) {
		t.Error("what is mounted cannot be written to")
	}
	same.Readonly = true
	n.wait(n.run(sb, script("closed", "touch "+machine+"/z", same)))
	if exists(filepath.Join(machine, "z")) {
		t.Error("written to what was mounted read-only")
	}
}

// Where views are refused a container that can do without one runs, and says what it has not got; one that cannot
// fails, with the remedy.
func TestViewsAreRefused(t *testing.T) {
	t.Parallel()
	onlyHost(t, "images need no view")
	if os.Getenv(confinedVariable) == "" {
		cmd := exec.Command(testBinary(t), "-test.v", "-test.run", "^TestViewsAreRefused$")
		cmd.Env = append(os.Environ(), helperVariable+"=confined", confinedVariable+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	n := newNode(t)
	sb := n.sandbox("refused")
	src, hosts := volume(t, "src"), filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	optional := withSecurity(script("optional", "test -s /etc/hosts && echo machine; hostname; echo $HOSTNAME",
		mount(hosts, hostsPath)), masked(), 0)
	id := n.run(sb, optional)
	if got, want := n.output(id), "machine\n"+machine+"\nrefused\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if w := n.warnings(id); !strings.Contains(w, "not mounted") || !strings.Contains(w, hostsPath) ||
		!strings.Contains(w, "all of /proc and /sys") || !strings.Contains(w, "max_user_namespaces") {
		t.Errorf("warnings %s", w)
	}
	again := script("again", "true", mount(hosts, hostsPath))
	if id = n.run(sb, again); n.warnings(id) != "" {
		t.Errorf("said twice: %s", n.warnings(id))
	}
	restricted := withSecurity(script("restricted", rights), &runtimeapi.LinuxContainerSecurityContext{NoNewPrivs: true,
		Seccomp:      &runtimeapi.SecurityProfile{},
		Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}}, 0)
	if got := rightsOf(t, n.output(n.run(sb, restricted))); got["CapEff"] != capText(0) || got["NoNewPrivs"] != "1" {
		t.Errorf("restricted: %v", got)
	}
	sealed := withSecurity(script("sealed", "true"), &runtimeapi.LinuxContainerSecurityContext{ReadonlyRootfs: true}, 0)
	for _, config := range []*runtimeapi.ContainerConfig{script("needed", "true", mount(src, "/monoplane-x"),
		mount(hosts, hostsPath)), sealed} {
		id = n.create(sb, config)
		if err := n.start(id); err == nil || !strings.Contains(err.Error(), view.Remedy) {
			t.Errorf("%v", err)
		}
		if st := n.status(id); st.GetReason() != "StartError" {
			t.Errorf("%v", st)
		}
	}
}

// confinedVariable is set in a test process that may not make namespaces.
const confinedVariable = "MONOPLANE_HOST_TEST_CONFINED"

// confinedHelper executes this test binary anew where no namespace can be made, as in many a container.
func confinedHelper() int {
	code, err := seccomp.Compile([]byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
		{"names": ["unshare", "mount", "open_tree"], "action": "SCMP_ACT_ERRNO"},
		{"names": ["clone"], "action": "SCMP_ACT_ERRNO",
			"args": [{"index": 0, "value": 268435456, "valueTwo": 268435456, "op": "SCMP_CMP_MASKED_EQ"}]}]}`))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	runtime.LockOSThread() // Both apply to this thread only, which is the one that executes the program.
	filters := unsafe.Slice((*unix.SockFilter)(unsafe.Pointer(unsafe.StringData(code))), len(code)/8)
	prog := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	if err == nil {
		err = os.Unsetenv(helperVariable)
	}
	if err == nil {
		err = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// The shim of an older version knows nothing of views: its pods go on under this runtime, and what they cannot have is
// refused by name, never left out without a word.
func TestOlderShim(t *testing.T) {
	t.Parallel()
	onlyHost(t, "older shims know no images")
	n := newNode(t)
	config := sandboxConfig(n, "older")
	config.Annotations = map[string]string{hostnameAnnotation: "hostname"}
	resp, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	sb := resp.GetPodSandboxId()
	n.noteShim(n.sandboxOf(sb), &shimwire.HelloReply{Version: shimwire.Views - 1})
	id := n.run(sb, script("plain", "exit 3", mount("/etc/hosts", hostsPath)))
	if st := n.wait(id); st.GetExitCode() != 3 {
		t.Errorf("%v", st)
	}
	if w := n.warnings(id); !strings.Contains(w, "hostname: not set") || !strings.Contains(w, "older version") {
		t.Errorf("warnings %s", w)
	}
	for name, config := range map[string]*runtimeapi.ContainerConfig{
		"view":   script("view", "true", mount("/etc", "/monoplane-x")),
		"rights": withSecurity(script("rights", "true"), &runtimeapi.LinuxContainerSecurityContext{NoNewPrivs: true}, 0),
	} {
		id := n.create(sb, config)
		if err := n.start(id); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "older version") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sharedTmpfs mounts a tmpfs that shares what is mounted in it with its copies.
func sharedTmpfs(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, dir)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mountTmpfs mounts a tmpfs until the end of the test, and skips the test if this user cannot.
func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("nothing can be mounted: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// What is mounted later is seen on the other side as the propagation says, and only so.
func TestPropagation(t *testing.T) {
	t.Parallel()
	src := sharedTmpfs(t)
	for _, sub := range []string{"host", "container", "early"} {
		if err := os.Mkdir(filepath.Join(src, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountTmpfs(t, filepath.Join(src, "early"))
	if err := os.WriteFile(filepath.Join(src, "early", "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	sb := n.sandbox("propagation")
	ids := map[runtimeapi.MountPropagation]string{}
	for p, name := range runtimeapi.MountPropagation_name {
		m := mount(src, "/monoplane-x")
		m.Propagation = runtimeapi.MountPropagation(p)
		config := script(strings.ToLower(name), "exec sleep 1000", m)
		if onImages() { // To mount what the machine is to see.
			config.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN"}}
		}
		ids[m.GetPropagation()] = n.run(sb, config)
	}
	mountTmpfs(t, filepath.Join(src, "host"))
	if err := os.WriteFile(filepath.Join(src, "host", "later"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(id, text string) string {
		t.Helper()
		got, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"/bin/sh", "-c", text}})
		if err != nil {
			t.Fatal(err)
		}
		return string(got.GetStdout()) + string(got.GetStderr())
	}
	for p, id := range ids {
		want := "f\nlater\n"
		if p == runtimeapi.MountPropagation_PROPAGATION_PRIVATE {
			want = "f\n"
		}
		if got := run(id, "ls /monoplane-x/early /monoplane-x/host | grep -v : | grep ."); got != want {
			t.Errorf("%v: the container sees %q, want %q", p, got, want)
		}
	}
	inner := filepath.Join(src, "container")
	for _, p := range []runtimeapi.MountPropagation{runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL} {
		run(ids[p], "mount -t tmpfs tmpfs /monoplane-x/container && touch /monoplane-x/container/"+p.String())
		want := p == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		if got := exists(filepath.Join(inner, p.String())); got != want {
			t.Errorf("%v: what the container mounts is seen by the machine: %v", p, got)
		}
		if want {
			if err := unix.Unmount(inner, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
}

// A read-only mount covers what is mounted below it only if it is asked to.
func TestRecursiveReadOnly(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	inner := filepath.Join(src, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, inner)
	n := newNode(t)
	sb := n.sandbox("recursive")
	for name, want := range map[string]string{"plain": "f\n", "recursive": ""} {
		m := mount(src, "/monoplane-x")
		m.Readonly, m.RecursiveReadOnly = true, name == "recursive"
		got := n.output(n.run(sb, script(name,
			"cd /monoplane-x; touch outer inner/f 2>/dev/null; ls inner; rm -f inner/f 2>/dev/null; ls | grep outer", m)))
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A setup that hangs, here because it is stopped, ends with the expiry of its start, and its process with it.
//
// spec: SAFE-4, SAFE-6
func TestExpiryOfASetup(t *testing.T) {
	t.Parallel()
	onlyHost(t, "a helper sets up the container")
	n := newNode(t)
	sb := n.sandbox("hanging")
	n.needViews(sb)
	shimPID := n.shimPID(sb)
	crowd := t.TempDir() // To mount something in here takes long enough to be caught at it.
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(crowd, strconv.Itoa(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for within, attempt := time.Second, uint32(0); ; within, attempt = 2*within, attempt+1 {
		config := script("c", "exec sleep 1000", mount("/etc", crowd+"/x"))
		config.Metadata.Attempt = attempt
		id := n.create(sb, config)
		started := make(chan struct{})
		go func() {
			defer close(started)
			_ = n.startWithin(id, within)
		}()
		caught := 0
		eventually(t, "the container is being set up", func() bool {
			kids, _ := sys.Children(shimPID)
			for _, pid := range kids {
				if p, err := sys.Stat(pid); err != nil || p.Name != filepath.Base(self) || p.Zombie {
					continue
				}
				send(t, pid, syscall.SIGSTOP)
				if p, err := sys.Stat(pid); err == nil && p.Name == filepath.Base(self) {
					caught = pid
				} else {
					send(t, pid, syscall.SIGCONT)
				}
				return true
			}
			return isClosed(started)
		})
		<-started
		if caught == 0 { // It was faster.
			n.stop(id, 0)
			continue
		}
		st := n.wait(id)
		if st.GetReason() != "StartError" || !strings.Contains(st.GetMessage(), "in time") || alive(caught) {
			t.Errorf("%v", st)
		}
		return
	}
}

// part is a mount of a path below a host path.
func part(host, sub, container string) *runtimeapi.Mount {
	m := mount(host, container)
	m.ImageSubPath = sub
	return m
}

// A path below a volume is mounted as it is when the container starts, through links that stay in the volume and
// through none that leads out of it.
//
// spec: VOL-1
func TestSubPaths(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("parts")
	n.needViews(sb)
	vol, outside := volume(t, "vol"), volume(t, "outside")
	if err := os.MkdirAll(filepath.Join(vol, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vol, "a", "b", "f"), []byte("deep\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"in": "a/b", "abs": outside, "up": "../../" + filepath.Base(outside),
		"magic": "/proc/self/root" + outside} {
		if err := os.Symlink(to, filepath.Join(vol, name)); err != nil {
			t.Fatal(err)
		}
	}
	id := n.run(sb, script("c", "cat /monoplane-a/f /monoplane-in/f /monoplane-f; echo x > /monoplane-a/written",
		part(vol, "a/b", "/monoplane-a"), part(vol, "in", "/monoplane-in"), part(vol, "f", "/monoplane-f")))
	if got := n.output(id); got != "deep\ndeep\nvol\n" || !exists(filepath.Join(vol, "a", "b", "written")) {
		t.Errorf("got %q", got)
	}
	for sub, want := range map[string]string{"abs": "leads out", "up": "leads out", "magic": "leads out",
		"none": "no such file"} {
		id := n.create(sb, script("to "+sub, "true", part(vol, sub, "/monoplane-x")))
		if err := n.start(id); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), sub) {
			t.Errorf("%s: %v, want %q", sub, err, want)
		}
	}
	for _, sub := range []string{"..", "a/../../x", "/etc"} {
		n.refuses(sb, script("escape", "true", part(vol, sub, "/monoplane-x")), "leads out of")
	}
}

// While a container swaps a directory of its volume for a link to a directory of the machine, as fast as it can,
// another one that mounts this directory has it or does not start; it never has the machine's.
//
// spec: VOL-1
func TestSubPathSwappedForALink(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("swapped")
	n.needViews(sb)
	vol, outside := volume(t, "vol"), volume(t, "outside")
	dir, link := filepath.Join(vol, "dir"), filepath.Join(vol, "link")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("vol\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(outside, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	swap := func() error {
		return unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil && !isClosed(stop) {
			err = swap()
		}
		ended <- err
	}()
	had, refused := 0, 0
	for i := uint32(0); i < 20 || (had == 0 || refused == 0) && i < 1000; i++ {
		config := script("c", "cat /monoplane-x/f; echo x > /monoplane-x/written", part(vol, "dir/sub", "/monoplane-x"))
		config.Metadata.Attempt, config.LogPath = i, "c/"+strconv.Itoa(int(i))+".log"
		id := n.create(sb, config)
		if err := n.start(id); err != nil {
			if !strings.Contains(err.Error(), "dir/sub") {
				t.Fatal(err)
			}
			refused++
			continue
		}
		had++
		if got := n.output(id); got != "vol\n" {
			t.Fatalf("the container has %q", got)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := listing(t, filepath.Join(outside, "sub")); got != "" {
		t.Errorf("the machine has %s", got)
	}
	if had == 0 || refused == 0 {
		t.Errorf("mounted %d times, refused %d times: the race was not tried", had, refused)
	}
}
