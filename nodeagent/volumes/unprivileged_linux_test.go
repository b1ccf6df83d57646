package volumes_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes"
)

// asNobody runs the calling test once more, as a user without privileges, unless this is one. It reports whether that
// was done.
func asNobody(t *testing.T) bool {
	t.Helper()
	const nobody = 65534
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp("", "nobody") // The directories of tests are closed to others.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	copied := filepath.Join(dir, "volumes.test")
	to, err := os.OpenFile(copied, os.O_WRONLY|os.O_CREATE, 0o755) //nolint:gosec // to be executed by another user
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied, "-test.v", "-test.run", "^"+t.Name()+"$") //nolint:gosec // this test
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
	return true
}

// An agent that may not mount leaves a path below a volume to a runtime that opens it by itself, and refuses it for
// any other. What is missing is made all the same, and links that lead out are refused.
//
// spec: VOL-1
func TestSubPathWithoutRoot(t *testing.T) {
	if asNobody(t) {
		return
	}
	n := newNode(t)
	p := pod(emptyDir("v", &corev1.EmptyDirVolumeSource{}))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "a/./b"
	n.setUp(p)
	can := true
	s := volumes.Starting{Pod: p, Container: p.Spec.Containers[0], SubPaths: func() bool { return can }}
	vol := filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~empty-dir/v")
	for range 2 { // As for a container that is started again.
		got, err := n.Mounts(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if m := got.Mounts[0]; m.GetHostPath() != vol || m.GetImageSubPath() != "a/b" || m.GetContainerPath() != "/v" {
			t.Errorf("it is given %v", m)
		}
	}
	if _, err := os.Stat(filepath.Join(vol, "a/b")); err != nil {
		t.Error(err)
	}
	can = false
	if _, err := n.Mounts(t.Context(), s); err == nil || !strings.Contains(err.Error(), "needs a mount") {
		t.Errorf("by another runtime: %v", err)
	}
	can = true
	if err := os.Symlink("/etc", filepath.Join(vol, "etc")); err != nil {
		t.Fatal(err)
	}
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "etc"
	if _, err := n.Mounts(t.Context(), s); err == nil || !strings.Contains(err.Error(), "leads out of the volume") {
		t.Errorf("a link to /etc: %v", err)
	}
	n.tearDown(p)
}
