package subpath_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/volumes/subpath"
)

// lies returns where what was opened lies.
func lies(t *testing.T, f *os.File) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// spec: VOL-1
func TestOpenStaysInTheVolume(t *testing.T) {
	base := t.TempDir()
	vol := filepath.Join(base, "vol")
	for _, d := range []string{"vol/a/b", "vol/data", "outside"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"etc": "/etc", "up": "../outside", "in": "a/b", "deep": "data/../a", "magic": "/proc/self/root/etc", "a/out": "../..",
		"none": "missing",
	} {
		if err := os.Symlink(to, filepath.Join(vol, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(vol, "a/file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"a": "a", "a/b": "a/b", "a/file": "a/file", "in": "a/b", "deep": "a", "in/new/er": "a/b/new/er", "x/y": "x/y", ".": "",
	} {
		f, err := subpath.Open(vol, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got := lies(t, f); got != filepath.Join(vol, want) {
			t.Errorf("%s leads to %s, want %s", path, got, want)
		}
		f.Close()
	}
	for _, path := range []string{
		"etc", "etc/new", "up", "up/new", "magic", "a/out", "a/out/outside", "../outside", "a/../../outside", "/etc", "none",
		"none/x", "a/file/x",
	} {
		if f, err := subpath.Open(vol, path); err == nil {
			t.Errorf("%s was opened: %s", path, lies(t, f))
			f.Close()
		}
	}
	if left, _ := os.ReadDir(filepath.Join(base, "outside")); len(left) > 0 {
		t.Errorf("made outside of the volume: %v", left)
	}
}

// Directories that are made have the permissions of the volume's own, whatever the agent's umask.
func TestMadeDirectories(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	vol := filepath.Join(t.TempDir(), "vol")
	if err := os.Mkdir(vol, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(vol, 0o775|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	f, err := subpath.Open(vol, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, dir := range []string{"a", "a/b"} {
		info, err := os.Stat(filepath.Join(vol, dir))
		if err != nil || info.Mode() != 0o775|os.ModeSetgid|os.ModeDir {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

// While a container swaps a directory for a link to /etc as fast as it can, nothing outside the volume is ever opened,
// nor made.
func TestSwappedForALink(t *testing.T) {
	base := t.TempDir()
	vol := filepath.Join(base, "vol")
	for _, d := range []string{"vol/dir/sub", "outside"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, link := filepath.Join(vol, "dir"), filepath.Join(vol, "link")
	if err := os.Symlink(filepath.Join(base, "outside"), link); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !stop.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("swap: %v", err)
				return
			}
		}
	}()
	defer func() { stop.Store(true); <-ended }()
	opened, refused := 0, 0
	for i := 0; i < 3000 || (opened == 0 || refused == 0) && i < 300_000; i++ {
		path := "dir/sub"
		if i%3 == 0 {
			path = "dir/made/below"
		}
		f, err := subpath.Open(vol, path)
		if err != nil {
			refused++
			continue
		}
		opened++
		if at := lies(t, f); !strings.HasPrefix(at, vol+"/") {
			t.Fatalf("opened %s", at)
		}
		f.Close()
	}
	if left, _ := os.ReadDir(filepath.Join(base, "outside")); len(left) > 0 {
		t.Errorf("made outside of the volume: %v", left)
	}
	if opened == 0 || refused == 0 {
		t.Errorf("opened %d times, refused %d times: the race was not tried", opened, refused)
	}
}
