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
	sameEverywhere(t, "they have the same descriptors")
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

// What a container is given is what the package comment says and no more, in process 1 and in what is run by ExecSync
// (hooks and probes are), whether a fork is enough for it or not: no descriptor of this process, not even one that was
// opened by mistake without close-on-exec, no variable, no ignored signal, no raised limit.
func TestNothingIsInherited(t *testing.T) {
	onlyHost(t, "the image has an environment of its own")
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	ignoreSignal(t, 32)
	t.Setenv("MONOPLANE_SECRET", "key")
	t.Setenv("LD_LIBRARY_PATH", "/nowhere")
	// The shell has nothing open while ls, which has the directory open, counts.
	const text = `ls /proc/self/fd
tr '\0' '\n' < /proc/$$/environ | cut -d= -f1 | sort | xargs
umask; ulimit -n; grep -E 'SigIgn|SigBlk' /proc/$$/status | tr -d '\t'`
	limit, err := exec.Command("/bin/sh", "-c", "ulimit -n").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "0\n1\n2\n3\nHOSTNAME MINE MONOPLANE_CONTAINER_ID MONOPLANE_SANDBOX_ID MONOPLANE_TERMINATION_LOG PATH\n" +
		"0022\n" + string(limit) + "SigBlk:0000000000000000\nSigIgn:0000000000000000\n"
	n := newNode(t)
	for name, sb := range map[string]string{"fork": n.plainSandbox("fork"), "setup": n.sandbox("setup")} {
		config := script("c", text+"; exec sleep 1000")
		config.Envs = []*runtimeapi.KeyValue{{Key: "MINE", Value: []byte("x")}}
		id := n.run(sb, config)
		var got string
		eventually(t, "process 1 has written", func() bool {
			got = strings.ReplaceAll(n.logText(id), "stdout F ", "")
			return strings.Contains(got, "SigIgn")
		})
		if got != want {
			t.Errorf("%s: process 1 has\n%s\nwant\n%s", name, got, want)
		}
		run, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"/bin/sh", "-c", text}})
		if err != nil || string(run.GetStdout()) != want {
			t.Errorf("%s: what is run in it has\n%s\nwant\n%s %v", name, run, want, err)
		}
		kinds := map[string]bool{"0 /dev/null": true, "1 pipe": true, "2 pipe": true}
		for _, f := range openFiles(t, n.pid(id)) {
			if kind, _, _ := strings.Cut(f, ":"); !kinds[kind] {
				t.Errorf("%s: process 1 has %s", name, f)
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
}

// Other users than this one cannot read anything in the runtime's directory, whatever mode the files in it have, but
// what is mounted for them.
func TestDirectoryIsClosedToOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs containers as other users")
	}
	n := newNode(t)
	for dir := n.dir; dir != "/"; dir = filepath.Dir(dir) { // Above it all is open.
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if dir == n.dir {
			if st.Mode().Perm() != 0o700 {
				t.Errorf("the directory has mode %v", st.Mode())
			}
			continue
		}
		if st.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(dir, st.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
		}
	}
	sb := n.sandbox("closed")
	secret := filepath.Join(n.dir, "key")
	if err := os.WriteFile(secret, []byte("key"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := "cat " + secret + " " + n.dir + "/pods/" + sb + "/sandbox 2>&1 | grep -c 'Permission denied'; ls " + n.dir +
		" 2>&1 | grep -o 'Permission denied'; cat /etc/hostname"
	other := &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 65534}}
	id := n.run(sb, withSecurity(script("c", text+"; exec sleep 1000"), other, 0))
	var got string
	eventually(t, "process 1 has written", func() bool {
		got = strings.ReplaceAll(n.logText(id), "stdout F ", "")
		return strings.Count(got, "\n") == 3
	})
	run, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
		Cmd: []string{"/bin/sh", "-c", text}})
	if want := "2\nPermission denied\nclosed\n"; got != want || err != nil || string(run.GetStdout()) != want {
		t.Errorf("process 1: %q, exec: %v %v; want %q", got, run, err, want)
	}
}

// The same tests, run by a user without any privilege, but for those that TestRootImagesOfUser and
// TestRootEscapesOfUser run as one.
func TestRootUnprivileged(t *testing.T) {
	t.Parallel()
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
	writeProgram(t, bin, b)
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
	cmd := exec.Command(bin, "-test.short", "-test.v", "-test.skip", "^TestRootImage|^TestRootEscape[A-Z]")
	cmd.Dir = tmp
	cmd.Env = []string{"TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH"), "HOME=" + tmp,
		raceOptions + "=" + os.Getenv(raceOptions), onceVariable + "=" + os.Getenv(onceVariable)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestAdoption") {
		t.Errorf("nothing was tested:\n%s", out)
	}
}
