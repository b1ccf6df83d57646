package mount_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/volumes/mount"
)

// tmpfs mounts one, and takes it away when the test ends.
func tmpfs(t *testing.T, dir string, size int64) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := mount.Tmpfs(dir, size)
	if errors.Is(err, mount.ErrNotPermitted) {
		t.Skip("needs root, or CAP_SYS_ADMIN, to mount")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for mount.Unmount(dir) == nil {
		}
	})
}

func TestTmpfsIsAsLargeAsItIsSaidToBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with blank\tand tab")
	tmpfs(t, dir, 1<<20)
	if is, err := mount.Is(dir); !is || err != nil {
		t.Errorf("it is a mount point: %v, %v", is, err)
	}
	if is, err := mount.Is(filepath.Dir(dir)); is || err != nil {
		t.Errorf("the directory above is a mount point: %v, %v", is, err)
	}
	if points, err := mount.Below(filepath.Dir(dir)); err != nil || len(points) != 1 || points[0] != dir {
		t.Errorf("mount points %q, %v", points, err)
	}
	err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 2<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("two megabytes in one: %v", err)
	}
}

// spec: DEL-7, SAFE-6
func TestRemoveNeverReachesThroughAMount(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	dir := filepath.Join(base, "pod")
	inside := filepath.Join(dir, "volumes", "bound")
	for _, d := range []string{outside, inside, filepath.Join(dir, "volumes", "a", "b")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(outside)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := mount.Bind(f, inside); errors.Is(err, mount.ErrNotPermitted) {
		t.Skip("needs root, or CAP_SYS_ADMIN, to mount")
	} else if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(inside, unix.MNT_DETACH)
	tmpfs(t, filepath.Join(dir, "volumes", "a", "b"), 0)

	held, err := os.Open(filepath.Join(inside, "precious")) // keeps the mount busy
	if err != nil {
		t.Fatal(err)
	}
	err = mount.Remove(t.Context(), dir)
	if !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), inside) {
		t.Errorf("removal of what is in use: %v", err)
	}
	held.Close()
	if err := mount.Remove(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("what was mounted was removed: %v", err)
	}
	if err := mount.Remove(t.Context(), dir); err != nil {
		t.Errorf("a second removal: %v", err)
	}
}

// A tree deeper than the process may have files open is removed.
func TestRemoveDeepAndWide(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "pod")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	unix.Close(at)
	for i := range 700 {
		name := "f" + strings.Repeat("x", i%100) + string(rune('a'+i/100))
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := mount.Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRemoveEnds(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := mount.Remove(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
