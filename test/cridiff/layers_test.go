//go:build rootonly

package cridiff_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/test/containerd"
)

// refusal stands for what is in an image that is refused.
const refusal = "refused"

// outcome says how what containerd has of an image compares with what we have.
type outcome string

const (
	same outcome = "the same"
	// like: with containerd, a directory in the place of a link has the mode of what the link leads to.
	like outcome = "the same but for modes and what cannot be opened"
	// more: containerd shows what is below, too, where a layer removes a directory and then makes it, and where it hides
	// all at its root.
	more outcome = "more"
	none outcome = refusal
)

// layered are images whose layers name what is in those below them, by links, marks of removal and hard links.
var layered = []struct {
	name   string
	layers [][]tar.Header
	want   outcome
}{
	{"an implied directory over a link", above(regular("lib/b")), like},
	{"over an absolute link", above(regular("abs/b")), like},
	{"over a link that leads out", above(regular("out/b")), same},
	{"over a link to nowhere", above(regular("gone/b")), same},
	{"further down", above(regular("lib/d/e/b")), like},
	{"an explicit directory over a link", above(folder("lib"), regular("lib/b")), same},
	{"an explicit directory after the file", above(regular("lib/b"), folder("lib")), same},
	{"a whiteout behind a link", above(regular("lib/.wh.a")), like},
	{"an opaque directory behind a link", above(regular("lib/.wh..wh..opq"), regular("lib/b")), like},
	{"a link removed before", above(regular(".wh.lib"), regular("lib/b")), none},
	{"a link removed after", above(regular("lib/b"), regular(".wh.lib")), none},
	{"a link removed between", append(above(regular(".wh.lib")), []tar.Header{regular("lib/b")}), same},
	{"a link of its own to one below", above(symbolic("m", "lib"), regular("m/b")), like},
	{"a link of its own to a directory below", above(symbolic("m", "usr"), regular("m/b")), same},
	{"over a link that goes round", above(regular("round/b")), none},
	{"over a link to a file", above(regular("file/b")), same},
	{"over a file", above(regular("plain/b")), same},
	{"a file over a directory", above(regular("usr")), same},
	{"a directory over a file", above(folder("plain")), same},
	{"a link over a directory", above(symbolic("usr", "elsewhere")), same},
	{"a removed directory, and another", above(regular(".wh.usr"), folder("usr"), regular("usr/b")), more},
	{"a removed directory, and another later", append(above(regular(".wh.usr")), []tar.Header{regular("usr/b")}), same},
	{"an opaque directory", above(folder("usr"), regular("usr/.wh..wh..opq"), regular("usr/b")), same},
	{"an opaque directory, named last", above(folder("usr"), regular("usr/b"), regular("usr/.wh..wh..opq")), same},
	{"an opaque root", above(regular(".wh..wh..opq"), regular("b")), more},
	{"a hard link in a layer", above(regular("a"), hard("b", "a")), same},
	{"a hard link to a file below", above(hard("h", "usr/lib/a")), same},
	{"a hard link through a link", above(hard("lib/h", "lib/a")), same},
	{"a hard link to a link", above(hard("h", "lib")), same},
	{"a hard link to a directory", above(hard("h", "usr/lib")), same},
}

func regular(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640}
}

func folder(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o711}
}

func symbolic(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}
}

func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o640}
}

// above makes layers: a base, and one above it.
func above(entries ...tar.Header) [][]tar.Header {
	return [][]tar.Header{{
		folder("./"), folder("usr"), folder("usr/lib"), regular("usr/lib/a"), symbolic("lib", "usr/lib"),
		symbolic("abs", "/usr/lib"), symbolic("out", "../../../outside"), symbolic("gone", "not/there"),
		symbolic("round", "about"), symbolic("about", "round"), regular("plain"), symbolic("file", "plain"),
	}, entries}
}

// Layers come to the same files as with containerd and its usual snapshotter, overlayfs. Which attributes the root
// directory has is not compared: with containerd always the same, whatever the layers say.
func TestRootLayersLikeContainerd(t *testing.T) {
	if err := containerd.Missing(); err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp("", "cd") // Short, because of the sockets in it.
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(top)) })
	d, err := containerd.New(filepath.Join(top, "c"), "mp-cridiff")
	must(t, err)
	t.Cleanup(func() { must(t, d.End()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, d.Start(ctx))
	store, err := images.Open(images.Config{Dir: filepath.Join(top, "images")})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	for i, c := range layered {
		t.Run(c.name, func(t *testing.T) {
			archive, chain := layeredImage(t, c.layers, fmt.Sprintf("layered-%d", i))
			ours := ourFiles(t, store, archive)
			file := filepath.Join(top, "archive")
			must(t, os.WriteFile(file, archive, 0o600))
			theirs := theirFiles(t, d, file, chain, filepath.Join(top, "mounted"))
			got := outcome("something else")
			switch {
			case theirs == ours:
				got = same
			case theirs == refusal:
				got = none
			case names(theirs) == names(ours):
				got = like
			case isPartOf(ours, theirs):
				got = more
			}
			if got != c.want {
				t.Errorf("containerd has %s, want %s: %s", got, c.want,
					cmp.Diff(strings.Split(theirs, "\n"), strings.Split(ours, "\n")))
			}
		})
	}
}

// names are those of all files that can be opened.
func names(files string) string {
	var out strings.Builder
	for line := range strings.Lines(files) {
		if name, is, _ := strings.Cut(line, " "); !strings.HasPrefix(is, "cannot") {
			out.WriteString(name + "\n")
		}
	}
	return out.String()
}

// isPartOf tells whether all that some are is among others.
func isPartOf(some, others string) bool {
	all := strings.Split(others, "\n")
	return !slices.ContainsFunc(strings.Split(some, "\n"), func(line string) bool { return !slices.Contains(all, line) })
}

// layeredImage makes an archive of an image, and the name that containerd gives to its layers together.
func layeredImage(t *testing.T, layers [][]tar.Header, name string) (archive []byte, chain string) {
	t.Helper()
	files := make(map[string][]byte)
	var diffIDs, names []string
	for i, entries := range layers {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			must(t, w.WriteHeader(&h))
		}
		must(t, w.Close())
		id := digest(b.Bytes())
		if i == 0 {
			chain = id
		} else {
			chain = digest([]byte(chain + " " + id))
		}
		diffIDs, names = append(diffIDs, id), append(names, fmt.Sprintf("%d.tar", i))
		files[names[i]] = b.Bytes()
	}
	var err error
	files["config.json"], err = json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs}})
	must(t, err)
	files["manifest.json"], err = json.Marshal([]map[string]any{{"Config": "config.json",
		"RepoTags": []string{imageName(name)}, "Layers": names}})
	must(t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write(text)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes(), chain
}

func ourFiles(t *testing.T, store *images.Store, archive []byte) string {
	t.Helper()
	all, err := store.Load(t.Context(), bytes.NewReader(archive))
	if errors.Is(err, images.ErrInvalid) {
		return refusal
	}
	must(t, err)
	root, err := store.Mountable(t.Context(), images.RootRequest{ID: "c", Image: all[0].ID, Copy: true})
	must(t, err)
	out := allFiles(t, root.Copied)
	must(t, store.Release(t.Context(), "c"))
	must(t, store.Remove(t.Context(), all[0].ID))
	return out
}

// theirFiles returns what containerd has of an image. It is asked for the mount, which is made here.
func theirFiles(t *testing.T, d *containerd.Daemon, archive, chain, at string) string {
	t.Helper()
	const snapshotter = "overlayfs"
	if out, err := d.Ctr("images", "import", "--snapshotter", snapshotter, archive); err != nil {
		if !strings.Contains(out, "failed to extract layer") {
			t.Fatalf("%s: %v: %s", snapshotter, err, out)
		}
		return refusal
	}
	must(t, os.MkdirAll(at, 0o700))
	const tries = 20
	var said string
	var err error
	for range tries { // Until the mount is made, nothing keeps containerd from collecting the snapshot.
		key := fmt.Sprint("look-", time.Now().UnixNano())
		if said, err = d.Ctr("snapshots", "--snapshotter", snapshotter, "view", key, chain); err != nil {
			continue
		}
		if said, err = d.Ctr("snapshots", "--snapshotter", snapshotter, "mounts", at, key); err != nil {
			continue
		}
		var out []byte
		out, err = exec.Command("sh", "-c", said).CombinedOutput() //nolint:gosec // what it prints is a command
		if said = string(out); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", snapshotter, err, said)
	}
	defer func() { must(t, unix.Unmount(at, 0)) }()
	if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o755 { // whatever its entry says
		t.Errorf("%s: the root directory has the mode %v, %v", snapshotter, info.Mode(), err)
	}
	return allFiles(t, at)
}

// allFiles describes the files in a directory, one in a line.
func allFiles(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	first := make(map[uint64]string)
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(p, &s); errors.Is(err, unix.ENOENT) { // A mark of removal with nothing below can be listed.
			out = append(out, p[len(dir)+1:]+" cannot be opened")
			return nil
		} else if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d", p[len(dir)+1:], s.Mode, s.Uid, s.Gid)
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " to " + target
			fallthrough
		case !d.IsDir():
			if first[s.Ino] == "" {
				first[s.Ino] = p[len(dir)+1:]
			}
			line += " is " + first[s.Ino]
		}
		out = append(out, line)
		return nil
	}))
	slices.Sort(out)
	return strings.Join(out, "\n")
}
