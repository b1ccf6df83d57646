package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The pages of one file leave the process, what is in them does not change, and other memory is left alone.
func TestReleasePages(t *testing.T) {
	const size = 1 << 20
	mapped := map[string][]byte{}
	for _, name := range []string{"db", "other"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, bytes.Repeat([]byte(name+" "), size/len(name)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(data)
		mapped[path] = data
	}
	for path, data := range mapped {
		if kb := residentKB(t, path); kb != size>>10 {
			t.Fatalf("%s: %d KB are resident at first", path, kb)
		}
		if filepath.Base(path) != "db" {
			continue
		}
		if err := releasePages(path); err != nil {
			t.Fatal(err)
		}
		if kb := residentKB(t, path); kb != 0 {
			t.Errorf("%d KB are still resident", kb)
		}
		if want := bytes.Repeat([]byte("db "), size/2)[:size]; !bytes.Equal(data, want) {
			t.Error("the content has changed")
		}
	}
	for path := range mapped {
		if filepath.Base(path) == "other" && residentKB(t, path) != size>>10 {
			t.Error("another file was released, too")
		}
	}
}

// residentKB is how much of a mapped file is resident.
func residentKB(t *testing.T, path string) (kb int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(smaps), path+"\n")
	if !ok {
		t.Fatalf("%s is not mapped", path)
	}
	_, rest, _ = strings.Cut(rest, "\nRss:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
