package ownership_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"monoplane.dev/nodeagent/volumes/ownership"
)

// spec: VOL-1
func TestGive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	base := t.TempDir()
	dir, outside := filepath.Join(base, "vol"), filepath.Join(base, "outside")
	for path, mode := range map[string]fs.FileMode{"vol/d/e": 0o700, "outside": 0o700} {
		if err := os.MkdirAll(filepath.Join(base, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]fs.FileMode{"d/f": 0o400, "d/e/x": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, path), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	look := func(path string) (fs.FileMode, uint32) {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode(), info.Sys().(*syscall.Stat_t).Gid
	}
	expect := func(path string, mode fs.FileMode, group uint32) {
		t.Helper()
		if m, g := look(path); m != mode || g != group {
			t.Errorf("%s has mode %v, group %d, want %v, %d", path, m, g, mode, group)
		}
	}
	if err := ownership.Give(dir, 77, true, ""); err != nil {
		t.Fatal(err)
	}
	expect(dir+"/d/f", 0o440, 77)
	expect(dir+"/d/e/x", 0o755, 77)
	expect(dir+"/d/e", fs.ModeDir|fs.ModeSetgid|0o750, 77)
	if _, group := look(dir + "/link"); group != 77 {
		t.Errorf("the link has group %d", group)
	}
	expect(outside, fs.ModeDir|0o700, 0)

	if err := ownership.Give(dir, 77, false, ""); err != nil {
		t.Fatal(err)
	}
	expect(dir+"/d/f", 0o660, 77)
	expect(dir+"/d/e/x", 0o775, 77)
	expect(dir, fs.ModeDir|fs.ModeSetgid|0o770, 77)

	// A top directory that is right stands for all below it, if the pod says so.
	if err := os.Chmod(dir+"/d/f", 0o400); err != nil {
		t.Fatal(err)
	}
	if err := ownership.Give(dir, 77, false, ownership.OnRootMismatch); err != nil {
		t.Fatal(err)
	}
	expect(dir+"/d/f", 0o400, 77)
	if err := ownership.Give(dir, 78, false, ownership.OnRootMismatch); err != nil {
		t.Fatal(err)
	}
	expect(dir+"/d/f", 0o660, 78)
}
