package volumes_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/volumes"
	"monoplane.dev/nodeagent/volumes/mount"
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

// An agent that may not mount has volumes in memory on disk, where their limits are measured, and tells it once.
//
// spec: VOL-1
func TestMemoryWithoutRoot(t *testing.T) {
	if asNobody(t) {
		return
	}
	n := newNode(t)
	p := pod(emptyDir("m", &corev1.EmptyDirVolumeSource{
		Medium: "Memory", SizeLimit: &metav1.Quantity{String_: "1Mi"},
	}))
	n.setUp(p)
	dir := n.given(p)["/m"]
	if mounted, err := mount.Is(dir); mounted || err != nil || modeOf(t, dir).Perm() != 0o777 {
		t.Errorf("mounted %v, %v, mode %v", mounted, err, modeOf(t, dir))
	}
	if over, err := n.OverLimit(t.Context(), p); over != "" || err != nil {
		t.Errorf("while it is empty: %q, %v", over, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Manager = n.manager() // The agent comes back.
	n.setUp(p)
	if !volumes.Limited(p) {
		t.Error("it is not to be measured")
	}
	over, err := n.OverLimit(t.Context(), p)
	if want := "Usage of EmptyDir volume \"m\" exceeds the limit \"1Mi\". "; over != want || err != nil {
		t.Errorf("with two megabytes in one: %q, %v", over, err)
	}
	want := []string{`a: emptyDir volume "m" is on disk instead of in memory: ` + mount.ErrNotPermitted.Error()}
	if !slices.Equal(n.unenforced, want) {
		t.Errorf("told %q, want %q", n.unenforced, want)
	}
	n.tearDown(p)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

// A volume that is on disk instead of in memory stays there, with what it holds, when the agent comes back and may
// mount.
//
// spec: VOL-1
func TestMemoryOnDiskStays(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	p := pod(emptyDir("m", &corev1.EmptyDirVolumeSource{Medium: "Memory"}))
	dir := volumes.EmptyDir(filepath.Join(n.dir, "uid-a"), "m")
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600),
		os.WriteFile(filepath.Join(n.dir, "uid-a", "volumes.json"), []byte(`{"volumes":{"m":{"onDisk":true}}}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.setUp(p)
		if _, err := os.Stat(filepath.Join(n.given(p)["/m"], "kept")); err != nil {
			t.Error(err)
		}
	}
	n.tearDown(p)
}
