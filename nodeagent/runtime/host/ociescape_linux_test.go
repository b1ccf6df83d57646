package host

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The attacks below are run in containers such as pods get that ask for nothing: root with the usual capabilities,
// without a filter of system calls, with the paths masked that Kubernetes masks. Each tries to reach what is the
// machine's, and the test looks at the machine. Without root the container's root is the user on the machine, so that
// who gets out of it has all that is the user's (TestRootEscapesOfUser).

// victim is a container as a pod that asks for nothing has it.
func victim(name string, command ...string) *runtimeapi.ContainerConfig {
	config := ofImage(containerConfig(name, command...))
	config.Mounts = nil
	config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		MaskedPaths: []string{"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
			"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"},
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	}
	return config
}

// attack runs a script in a container and returns what it says, errors too.
func (n *node) attack(sandbox, name, text string, change ...func(*runtimeapi.ContainerConfig)) string {
	n.t.Helper()
	config := victim(name, "/bin/sh", "-c", "exec 2>&1\n"+text)
	for _, f := range change {
		f(config)
	}
	id := n.run(sandbox, config)
	n.wait(id)
	return strings.ReplaceAll(n.logText(id), "stdout F ", "")
}

// needsPlainProgram skips a test that runs this program in a container where that cannot run there.
func needsPlainProgram(t testing.TB) {
	t.Helper()
	if raceDetector {
		t.Skip("a program with the race detector does not run in an image without libraries")
	}
}

// leftNoMounts looks for mounts of this test on the machine.
func (n *node) leftNoMounts(more ...string) {
	n.t.Helper()
	for line := range strings.Lines(machine(n.t)) {
		for _, dir := range append(more, n.dir, n.images) {
			if strings.Contains(line, dir) {
				n.t.Errorf("there is a mount left: %s", line)
			}
		}
	}
}

// settings are the machine's that attacks try to change.
func settings(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	agents, _ := filepath.Glob("/sys/fs/cgroup/*/release_agent")
	for _, name := range append(agents, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
		"/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory") {
		text, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %q\n", name, text)
	}
	return out.String()
}

// Settings of the kernel are not changed from a container: neither where they are, nor by mounting them anew, also not
// as root of a namespace that the container makes.
//
// spec: SEC-1
func TestRootEscapeSettings(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	n.escapeSettings(n.sandbox("pod"))
}

// Nor by root of a pod with users of its own.
//
// spec: SEC-1, USER-1
func TestRootUsersEscapeSettings(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	users := usersFrom(firstTestID)
	n.escapeSettings(n.userSandbox("pod", users), as(users))
}

func (n *node) escapeSettings(sb string, change ...func(*runtimeapi.ContainerConfig)) {
	t := n.t
	t.Helper()
	before := settings(t)
	const set = `
for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /sys/fs/cgroup/*/release_agent \
  /proc/sysrq-trigger /x/sys/kernel/core_pattern
do [ -e $f ] && (echo '|/evil' > $f) && echo "changed $f"; done
mkdir -p /x
mount -o remount,rw,bind /proc/sys && echo "remounted /proc/sys"
mount -o remount,rw /sys && echo "remounted /sys"
mount -o remount,rw /sys/fs/cgroup && echo "remounted cgroups"
umount /proc/sys && echo "uncovered /proc/sys"
umount /proc/kcore && echo "uncovered /proc/kcore"
mount -t proc proc /x && echo "mounted proc"
mount -t cgroup -o memory cgroup /x && echo "mounted cgroups"
mount -t cgroup2 cgroup /x && echo "mounted cgroup2"
for f in /x/sys/kernel/core_pattern /x/release_agent /x/memory/release_agent
do [ -e $f ] && (echo '|/evil' > $f) && echo "changed $f"; done
true`
	plain := n.attack(sb, "plain", set, change...)
	for _, line := range strings.Split(plain, "\n") {
		for _, bad := range []string{"changed", "remounted", "uncovered", "mounted proc", "mounted cgroup"} {
			if strings.HasPrefix(line, bad) {
				t.Errorf("the container has %s", line)
			}
		}
	}
	within := n.attack(sb, "within", "cat > /attack <<'END'"+set+"\nEND\nchmod 755 /attack\n"+
		"unshare -U -r -m -C /bin/sh /attack; unshare -U -r -m -p -f -n -i -u -C /bin/sh /attack; true", change...)
	for _, line := range strings.Split(within, "\n") {
		if strings.HasPrefix(line, "changed") {
			t.Errorf("the container has %s", line)
		}
	}
	if after := settings(t); after != before {
		t.Errorf("the machine has\n%s\nand had\n%s", after, before)
	}
	n.removeAll()
	n.leftNoMounts()
}

// What is masked shows nothing.
//
// spec: SEC-1
func TestRootEscapeMaskedPaths(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	got := n.attack(n.sandbox("pod"), "c", `
for f in kcore keys timer_list latency_stats sched_debug; do
  [ -e /proc/$f ] && head -c 1 /proc/$f | wc -c; done | sort -u
ls -A /sys/firmware /proc/acpi /proc/scsi /proc/asound 2>/dev/null | grep -v : | grep .
echo end`)
	if got != "0\nend\n" {
		t.Errorf("it sees %q", got)
	}
}

// No descriptor of the shim, of the helper or of the server is left open in a container, and none that was can be its
// working directory.
//
// spec: SEC-1
func TestRootEscapeDescriptors(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the machine's"), 0o644); err != nil {
		t.Fatal(err)
	}
	long := n.run(sb, victim("long", "sleep", "1000"))
	eventually(t, "its program is executed", func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.pid(long)))
		return err == nil && strings.HasSuffix(exe, "busybox")
	})
	for _, f := range openFiles(t, n.pid(long)) {
		if kind, _, _ := strings.Cut(f, ":"); kind != "0 /dev/null" && kind != "1 pipe" && kind != "2 pipe" {
			t.Errorf("process 1 has %s", f)
		}
	}
	out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: long,
		Cmd: []string{"/bin/sh", "-c", "exec ls /proc/self/fd"}})
	if err != nil || string(out.GetStdout()) != "0\n1\n2\n3\n" { // The last one is the directory that ls reads.
		t.Errorf("what is run in it has %q %v", out.GetStdout(), err)
	}
	up := strings.Repeat("../", 20)
	for fd := 3; fd < 14; fd++ {
		config := victim(fmt.Sprint("cwd", fd), "/bin/sh", "-c", "cat "+up+secret)
		config.WorkingDir = "/proc/self/fd/" + strconv.Itoa(fd)
		id := n.create(sb, config)
		if n.start(id) != nil {
			continue
		}
		n.wait(id)
		if text := n.logText(id); strings.Contains(text, "the machine's") {
			t.Errorf("descriptor %d leads to the machine: %s", fd, text)
		}
	}
}

// The program that makes containers cannot be changed from one, though it is executed there for a moment: by a command
// that names /proc/self/exe, while others try to write to it.
//
// spec: SEC-1
func TestRootEscapeHelper(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	program, err := n.cfg.OCI.Helper()
	if err != nil {
		t.Fatal(err)
	}
	sum := func() [sha256.Size]byte {
		var b bytes.Buffer
		if _, err := io.Copy(&b, io.NewSectionReader(program, 0, 1<<30)); err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(b.Bytes())
	}
	before := sum()
	id := n.run(n.sandbox("pod"), victim("c", "/bin/sh", "-c", `
ln -s /proc/self/exe /evil; printf '#!/proc/self/exe\n' > /script; chmod 755 /script; touch /ready
while :; do for p in /proc/[0-9]*; do
  case $(readlink $p/exe) in *busybox*|"") ;; *) echo caught; (echo evil > $p/exe) 2>/dev/null && echo written
    (cat $p/exe | head -c 4 >/dev/null) 2>/dev/null && echo read;; esac
done; done`))
	// Who attacks has only a moment each time, and may miss many.
	const least, most = 10, 2000
	text := ""
	for tries := range most {
		if text = n.logText(id); tries >= least && strings.Contains(text, "caught") {
			t.Logf("the helper was seen %d times in %d tries", strings.Count(text, "caught"), tries)
			break
		}
		for _, command := range []string{"/evil", "/script"} {
			_, _ = n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{command, "init"}})
		}
	}
	if !strings.Contains(text, "caught") {
		t.Errorf("the helper was not seen in %d tries", most)
	}
	if strings.Contains(text, "written") || sum() != before {
		t.Error("the helper was written to")
	}
	if again := n.run(n.sandbox("other"), victim("again", "true")); n.wait(again).GetExitCode() != 0 {
		t.Error("no container can be made any more")
	}
}

// The machine's disks and memory cannot be opened, though a container can make nodes for them.
//
// spec: SEC-1
func TestRootEscapeDevices(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	var st unix.Stat_t
	if err := unix.Stat("/", &st); err != nil {
		t.Fatal(err)
	}
	got := n.attack(n.sandbox("pod"), "c", fmt.Sprintf(`
mknod /disk b %d %d; mknod /mem c 1 1; mknod /kmsg c 1 11; mknod /loop b 7 0; mknod /fuse c 10 229; mknod /null c 1 3
for d in /disk /mem /kmsg /loop /fuse; do (exec 3<$d) && echo "opened $d"; done
(exec 3<>/null) && echo allowed`, unix.Major(st.Dev), unix.Minor(st.Dev)))
	if strings.Contains(got, "opened") {
		t.Errorf("%s", got)
	}
	if os.Geteuid() != 0 { // A user's namespace has no devices but those that it is given.
		if refused := strings.Count(got, "mknod: /"); refused != 6 {
			t.Errorf("%d of 6 devices were refused: %s", refused, got)
		}
		return
	}
	if !strings.Contains(got, "allowed") {
		t.Errorf("not even its own devices: %s", got)
	}
}

// A terminal is one of the container's own, in a session of its own: what is typed into each that it finds (TIOCSTI)
// reaches the container, and nothing of the machine.
//
// spec: CTR-7, SEC-1
func TestRootEscapeTerminal(t *testing.T) {
	t.Parallel()
	needsPlainProgram(t)
	n := newNode(t, withImages(t))
	machines := machineTerminal(t)
	said := typeInto(machines.Name())
	mayHere := mayType(t) && os.Geteuid() == 0 // Into a terminal that is not its own only root may.
	if said != "typed into "+machines.Name() && mayHere {
		t.Fatalf("not even this process can type: %s", said)
	}
	if mayHere && waiting(t, machines) == 0 {
		t.Fatal("what is typed into the machine's terminal is not seen there")
	}
	if err := unix.IoctlSetInt(int(machines.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		t.Fatal(err)
	}
	config := victim("c", "/bin/sh", "-c", fmt.Sprintf("tty; %s=typist %s /dev/tty /dev/console /dev/tty[0-9]* %s "+
		"/dev/pts/[0-9]*; read -t 5 line; echo read $line.; sleep 1000", helperVariable, testBinary(t), machines.Name()))
	config.Mounts = []*runtimeapi.Mount{{HostPath: testBinary(t), ContainerPath: testBinary(t)}}
	config.Tty, config.Stdin = true, true
	id := n.run(n.sandbox("pod"), config)
	eventually(t, "it has typed", func() bool { return strings.Contains(n.logText(id), "stdout F read ") })
	said = n.logText(id)
	if mayType(t) && (!strings.Contains(said, "typed into /dev/tty") || !strings.Contains(said, "read "+typed+".")) {
		t.Errorf("it has not typed into its own terminal: %s", said)
	}
	if !strings.Contains(said, "/dev/pts/0") {
		t.Errorf("it has no terminal of its own: %s", said)
	}
	if got := waiting(t, machines); got != 0 {
		t.Errorf("%d bytes were typed into a terminal of the machine: %s", got, said)
	}
	pid := n.pid(id)
	for fd := range 3 {
		var its, machine unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), &its); err != nil {
			t.Fatal(err)
		}
		ours, _ := filepath.Glob("/dev/pts/*")
		for _, name := range append(ours, "/dev/console", "/dev/tty0") {
			if unix.Stat(name, &machine) == nil && machine.Dev == its.Dev && machine.Ino == its.Ino {
				t.Errorf("descriptor %d is %s", fd, name)
			}
		}
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, of process %d: %v", sid, pid, err)
	}
}

// mayType tells whether the kernel lets programs type at all.
func mayType(t testing.TB) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	if err != nil && !os.IsNotExist(err) { // Kernels before 6.2 let everyone.
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text)) != "0"
}

// machineTerminal makes a terminal on the machine, and returns the end that programs have.
func machineTerminal(t testing.TB) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var terminal *os.File
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal
}

// waiting returns how many bytes a reader of a terminal would get.
func waiting(t testing.TB, terminal *os.File) int {
	t.Helper()
	got, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// typed is the line that is typed into terminals.
const typed = "evil"

// typistHelper types into the terminals that its arguments name.
func typistHelper() int {
	for _, name := range os.Args[1:] {
		fmt.Println(typeInto(name))
	}
	return 0
}

// typeInto types into a terminal, and says what came of it.
func typeInto(name string) string {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	for _, b := range []byte(typed + "\n") {
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&b))); e != 0 {
			return fmt.Sprintf("%s: %v", name, e)
		}
	}
	return "typed into " + name
}

// A mount into a volume goes where it belongs in the container, whoever puts links to elsewhere in its way meanwhile:
// nothing is mounted or made on the machine.
//
// spec: VOL-1, SEC-1
func TestRootEscapeMountRace(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	shared, outside, inner := t.TempDir(), t.TempDir(), volume(t, "inner")
	dir, link := filepath.Join(shared, "dir"), filepath.Join(shared, "link")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(strings.Repeat("../", 20)+outside, link); err != nil {
		t.Fatal(err)
	}
	stop := swap(t, dir, link)
	made := 0
	for i := range 15 {
		config := victim("c", "/bin/sh", "-c", "echo x > /v/dir/x/written")
		config.Metadata.Attempt, config.LogPath = uint32(i), fmt.Sprintf("c/%d.log", i)
		config.Mounts = []*runtimeapi.Mount{{HostPath: shared, ContainerPath: "/v"},
			{HostPath: inner, ContainerPath: "/v/dir/x"}}
		id := n.create(sb, config)
		if n.start(id) == nil {
			made++
			n.wait(id)
		}
	}
	stop()
	t.Logf("%d of 15 containers were made", made)
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("on the machine there is %v %v", left, err)
	}
	n.removeAll()
	n.leftNoMounts(outside)
}

const ownKeys = "MONOPLANE_TEST_KEYS"

// Keys of the session in which the server was started are not a container's.
//
// spec: SEC-1
func TestRootEscapeKeys(t *testing.T) {
	t.Parallel()
	needsPlainProgram(t)
	if os.Getenv(ownKeys) == "" {
		runtime.LockOSThread() // For good: a session keyring is a thread's, and of what it starts.
		ring, err := unix.KeyctlJoinSessionKeyring("monoplane-test")
		if err == nil {
			_, err = unix.AddKey("user", keyName, []byte("the machine's"), ring)
		}
		if err != nil {
			t.Skip("this kernel keeps no keys: ", err)
		}
		cmd := exec.CommandContext(t.Context(), testBinary(t), "-test.run", "^TestRootEscapeKeys$", "-test.v")
		cmd.Env = append(os.Environ(), ownKeys+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if sessionKey() == "" {
		t.Fatal("not even this process has the key")
	}
	n := newNode(t, withImages(t))
	config := victim("c", testBinary(t))
	config.Mounts = []*runtimeapi.Mount{{HostPath: testBinary(t), ContainerPath: testBinary(t)}}
	config.Envs = []*runtimeapi.KeyValue{{Key: helperVariable, Value: []byte("key")}}
	id := n.run(n.sandbox("pod"), config)
	if st := n.wait(id); st.GetExitCode() != 0 || n.logText(id) != "stdout F key \"\"\n" {
		t.Errorf("%v: it says %s", st, n.logText(id))
	}
	long := n.run(n.sandbox("other"), func() *runtimeapi.ContainerConfig {
		config.Command = []string{"sleep", "1000"}
		return config
	}())
	out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: long, Cmd: []string{testBinary(t)}})
	if err != nil || string(out.GetStdout()) != "key \"\"\n" {
		t.Errorf("what is run in it says %v %v", out, err)
	}
}

const keyName = "monoplane-secret"

// sessionKey reads the key, if this process has it.
func sessionKey() string {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", keyName, 0)
	if err != nil {
		return ""
	}
	buf := make([]byte, 64)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

func keyHelper() int {
	fmt.Printf("key %q\n", sessionKey())
	return 0
}
