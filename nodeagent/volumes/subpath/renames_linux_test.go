package subpath_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/volumes/subpath"
)

// A path that leads up and stays below is opened while somebody else renames files without a pause.
func TestOpenedBesideRenames(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	one, other := filepath.Join(elsewhere, "one"), filepath.Join(elsewhere, "other")
	if err := os.Mkdir(one, 0o755); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	renamed := make(chan error, 1)
	go func() {
		for !over.Load() {
			if err := os.Rename(one, other); err != nil {
				renamed <- err
				return
			}
			one, other = other, one
		}
		renamed <- nil
	}()
	from, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	sub := strings.Repeat("a/b/../../", 50) + "a"
	for range 2000 {
		fd, err := subpath.Beneath(from, sub)
		if err != nil {
			t.Error(err)
			break
		}
		unix.Close(fd)
	}
	over.Store(true)
	if err := <-renamed; err != nil {
		t.Error(err)
	}
}
