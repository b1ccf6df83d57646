package host

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"go.uber.org/goleak"
)

func openFiles(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, e.Name()+" "+target)
		}
	}
	return out
}

// Pods come and go without leaving descriptors, goroutines, threads or children in the runtime, or memory and
// descriptors of old containers in a shim.
func TestNothingLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	n := newNode(t)
	cycle := func(i int) {
		sb := n.sandbox("p" + strconv.Itoa(i))
		for j := range 3 {
			n.wait(n.run(sb, containerConfig("c"+strconv.Itoa(j), "/bin/true")))
		}
		if _, err := n.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
	}
	cycle(0)
	before := openFiles(t, os.Getpid())
	for i := range 10 {
		cycle(1 + i)
	}
	eventually(t, "descriptors are closed", func() bool { return len(openFiles(t, os.Getpid())) <= len(before) })

	sb := n.sandbox("shim")
	restart := func(i int) {
		config := containerConfig("c", "/bin/echo", "hello")
		config.Metadata.Attempt = uint32(i)
		id := n.run(sb, config)
		n.wait(id)
		if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
	}
	restart(0)
	shimPID := n.shimPID(sb)
	shimBefore := openFiles(t, shimPID)
	for i := range 50 {
		restart(1 + i)
	}
	if after := openFiles(t, shimPID); len(after) > len(shimBefore) {
		t.Errorf("the shim has open:\n%s\nand had:\n%s", strings.Join(after, "\n"), strings.Join(shimBefore, "\n"))
	}
	anon := rssAnon(t, shimPID)
	t.Logf("the shim has %d KiB of anonymous memory after 51 containers", anon)
	if anon > 4<<10 && !raceDetector {
		t.Errorf("the shim has %d KiB of anonymous memory", anon)
	}
	n.removeAll()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, ignore)
}

// What monoplane has open by mistake without close-on-exec reaches neither shim nor container.
func TestInheritedDescriptors(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	n := newNode(t)
	sb := n.sandbox("fds")
	id := n.run(sb, containerConfig("c", "sleep", "1000"))
	for _, pid := range []int{n.shimPID(sb), n.pid(id)} {
		for _, f := range openFiles(t, pid) {
			if i, _, _ := strings.Cut(f, " "); i == strconv.Itoa(fd) && strings.Contains(f, "socket:") && pid == n.pid(id) {
				t.Errorf("process %d has %s", pid, f)
			}
		}
	}
	ours, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range openFiles(t, n.shimPID(sb)) {
		if strings.HasSuffix(f, ours) {
			t.Errorf("the shim has %s", f)
		}
	}
}

// The same tests, run by a user without any privilege.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user has no privileges to give up")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("no user nobody: ", err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	dir, err := os.MkdirTemp("", "monoplane-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	b, err := os.ReadFile(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "host.test")
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(tmp, uid, gid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.short", "-test.v", "-test.skip",
		"TestUnprivileged|TestShimDoesNotAnswer|TestThousandsOfLines")
	cmd.Dir = tmp
	cmd.Env = []string{"TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH"), "HOME=" + tmp}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestAdoption") {
		t.Errorf("nothing was tested:\n%s", out)
	}
}
