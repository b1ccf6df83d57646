package pages_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/pages"
)

// The pages of one file leave the process, what is in them does not change, and other memory is left alone.
func TestReleasePages(t *testing.T) {
	const size = 1 << 20
	mapped := map[string][]byte{}
	for _, name := range []string{"db", "other"} {
		path := filepath.Join(t.TempDir(), "a name with spaces", name)
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
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
		if err := pages.Release(path, pages.Shared); err != nil {
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

// Of a file that is mapped as programs are, what was only read is released, and what was written stays.
func TestReleaseReadOnly(t *testing.T) {
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 2*size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped := func(offset int64, protection int) []byte {
		data, err := unix.Mmap(int(f.Fd()), offset, size, protection, unix.MAP_PRIVATE|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(data) })
		return data
	}
	code, data := mapped(0, unix.PROT_READ), mapped(size, unix.PROT_READ|unix.PROT_WRITE)
	data[0] = 'y'
	if kb := residentAt(t, code); kb != size>>10 {
		t.Fatalf("%d KB are resident at first", kb)
	}
	if err := pages.Release(path, pages.ReadOnly); err != nil {
		t.Fatal(err)
	}
	if kb := residentAt(t, code); kb != 0 {
		t.Errorf("%d KB are still resident", kb)
	}
	if code[0] != 'x' || data[0] != 'y' {
		t.Errorf("the content has changed: %c, %c", code[0], data[0])
	}
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]pages.Mapping{
		"7f0000001000-7f0000003000 r--s 00000000 fd:01 1234                       /a/b c/db\n": {0x7f0000001000,
			0x7f0000003000, "r--s", "/a/b c/db"},
		"c000000000-c000400000 rw-p 00000000 00:00 0 \n": {0xc000000000, 0xc000400000,
			"rw-p", ""},
		"1000-2000 r--p 00000000 fd:01 7 /a\\012b\n": {0x1000, 0x2000, "r--p",
			"/a\nb"},
	} {
		if m, err := pages.Parse(line); err != nil || m != want {
			t.Errorf("%q: %+v, %v, want %+v", line, m, err, want)
		}
	}
	for _, line := range []string{"", "x", "1000 r--s 0 0 0 /a", "2000-1000 r--s 0 0 0 /a", "1000-2000 r 0 0 0 /a",
		"zz-yy r--s 0 0 0 /a"} {
		if m, err := pages.Parse(line); err == nil {
			t.Errorf("%q is read as %+v", line, m)
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

// residentAt is how many kilobytes are resident of the mapping that b is.
func residentAt(t *testing.T, b []byte) (kb int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(smaps), fmt.Sprintf("\n%x-", unsafe.Pointer(&b[0])))
	_, rest, _ = strings.Cut(rest, "\nRss:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
