//go:build unix

package diskuse_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/diskuse"
)

// TestOf measures a directory with what can be there: files with several names count once, links lead nowhere, what
// can be reached by no path is measured as well, and what is closed is an error beside what all the rest takes.
func TestOf(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write := func(path string, size int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const mib = 1 << 20
	write(dir+"/a/file", mib)
	write(elsewhere+"/big", 8*mib)
	if err := errors.Join(os.Link(dir+"/a/file", dir+"/name"), os.Symlink(elsewhere, dir+"/away"),
		os.Symlink("a/file", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	expect := func(inodes, mibs int64, is error) {
		t.Helper()
		got, err := diskuse.Of(t.Context(), dir)
		if got.Inodes != inodes || got.Bytes < mibs*mib || got.Bytes >= (mibs+1)*mib || !errors.Is(err, is) {
			t.Errorf("%+v, %v; want %d files of some %d MiB, and %v", got, err, inodes, mibs, is)
		}
	}
	expect(5, 1, nil) // the directory, a, the file, and two links

	// A path of more than 4096 bytes is none: the file at its end has to be made step by step.
	deep, err := os.OpenRoot(dir)
	for range 20 {
		if err == nil {
			err = deep.Mkdir(strings.Repeat("d", 250), 0o700)
		}
		if err == nil {
			above := deep
			deep, err = above.OpenRoot(strings.Repeat("d", 250))
			above.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer deep.Close()
	if err := deep.WriteFile("file", make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(26, 2, nil)

	if os.Geteuid() != 0 { // who may read everything finds nothing closed
		write(dir+"/closed/file", mib)
		if err := os.Chmod(dir+"/closed", 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir+"/closed", 0o700) })
		expect(27, 2, fs.ErrPermission)
	}
	if got, err := diskuse.Of(t.Context(), dir+"/none"); err != nil || got != (diskuse.Size{}) {
		t.Errorf("what is not there: %+v, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := diskuse.Of(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
