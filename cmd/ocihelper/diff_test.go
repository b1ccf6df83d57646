//go:build linux && cgo

package main

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A layer has what a container has written, as it is: with names that are one file, links as links, attributes, ids as
// they are in the container, and marks of what is hidden. Of what links lead to nothing is in it.
func TestWriteDiff(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "layer.tar")
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "secret")
	write(t, filepath.Join(dir, "a"), "text")
	write(t, filepath.Join(dir, "hides/x"), "")
	long := strings.Repeat("long", 40) + "\xff\n"
	write(t, filepath.Join(dir, long), "")
	for _, err := range []error{
		os.Link(dir+"/a", dir+"/b"),
		os.Symlink(outside, dir+"/link"),
		os.Symlink(filepath.Dir(outside), dir+"/way"),
		os.Mkdir(dir+"/empty", 0o700),
		unix.Mkfifo(dir+"/pipe", 0o600),
		unix.Mknod(dir+"/gone", unix.S_IFCHR, 0), // Which needs no rights, unlike other devices.
		unix.Chmod(dir+"/a", 0o4750),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	marks := true
	for _, x := range [][3]string{{"a", "user.mood", "good\x00"}, {"hides", "user.overlay.opaque", "y"},
		{"empty", "user.overlay.opaque", "n"}, {"empty", "user.overlay.origin", "o"}} {
		if err := unix.Setxattr(filepath.Join(dir, x[0]), x[1], []byte(x[2]), 0); errors.Is(err, unix.ENOTSUP) {
			marks = false
		} else if err != nil {
			t.Fatal(err)
		}
	}
	uid := os.Getuid()
	b := &bundle{Layers: []string{dir}, UIDs: []specs.LinuxIDMapping{{ContainerID: 5, HostID: uint32(uid), Size: 1}}}
	if err := writeDiff(b, to); err != nil {
		t.Fatal(err)
	}
	has := readTar(t, to)
	want := []string{"./", ".wh.gone", "a", "b", "empty/", "hides/", "hides/x", "link", long, "pipe", "way"}
	if marks {
		want = append(want, "hides/.wh..wh..opq")
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(maps.Keys(has)), want) {
		t.Errorf("the layer has\n%q\nnot\n%q", slices.Sorted(maps.Keys(has)), want)
	}
	if a := has["a"]; a.Uid != 5 || a.Mode != 0o4750 || a.text != "text" || a.Uname != "" ||
		marks && a.PAXRecords["SCHILY.xattr.user.mood"] != "good\x00" {
		t.Errorf("%+v", a)
	}
	if b := has["b"]; b.Typeflag != tar.TypeLink || b.Linkname != "a" || b.text != "" {
		t.Errorf("%+v", b)
	}
	if l := has["link"]; l.Typeflag != tar.TypeSymlink || l.Linkname != outside {
		t.Errorf("%+v", l)
	}
	for name, h := range has {
		for record := range h.PAXRecords {
			if strings.Contains(record, "overlay") {
				t.Errorf("%s has %s", name, record)
			}
		}
	}
	if err := writeDiff(b, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("a layer is written over: %v", err)
	}
	if err := writeDiff(&bundle{Layers: []string{dir + "/none"}}, to+"2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// An attribute whose name a layer cannot say is an error that names the file, not one that is lost.
func TestWriteDiffOfWhatLayersCannotSay(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "odd"), "")
	if err := unix.Setxattr(filepath.Join(dir, "odd"), "user.a=b", nil, 0); err != nil {
		t.Skip(err)
	}
	err := writeDiff(&bundle{Layers: []string{dir}}, filepath.Join(t.TempDir(), "layer.tar"))
	if err == nil || !strings.HasPrefix(err.Error(), "the files of the container: odd: ") {
		t.Errorf("%v", err)
	}
}

func TestInside(t *testing.T) {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1000, Size: 1}, {ContainerID: 1, HostID: 200000, Size: 10}}
	for outside, want := range map[int]int{1000: 0, 1001: 1001, 200000: 1, 200009: 10, 200010: 200010, 0: 0} {
		if got := inside(ids, outside); got != want {
			t.Errorf("%d is %d, not %d", outside, got, want)
		}
	}
}

type entry struct {
	*tar.Header
	text string
}

func readTar(t *testing.T, name string) map[string]entry {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]entry{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, again := all[h.Name]; again {
			t.Errorf("%s is there twice", h.Name)
		}
		all[h.Name] = entry{h, string(text)}
	}
}
