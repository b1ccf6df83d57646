//go:build rootonly

package images_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
)

// overlay calls do with a mounted root. The mount is in a namespace of a thread that ends afterwards.
func overlay(t *testing.T, root images.Root, do func(dir string)) {
	t.Helper()
	merged := t.TempDir()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(ended)
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			ended <- fmt.Errorf("unshare: %w", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			ended <- fmt.Errorf("private mounts: %w", err)
			return
		}
		data := "lowerdir=" + strings.Join(root.Lower, ":")
		if root.Upper != "" {
			data += ",upperdir=" + root.Upper + ",workdir=" + root.Work
		}
		data = strings.Join(append([]string{data}, root.Options...), ",")
		if err := unix.Mount("overlay", merged, "overlay", 0, data); err != nil {
			ended <- fmt.Errorf("mount: %w", err)
			return
		}
		do(merged)
		if err := unix.Unmount(merged, 0); err != nil { // The end of the thread would do it, but later.
			ended <- fmt.Errorf("unmount: %w", err)
		}
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// tree describes what is in a directory, each file in a line.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	first := make(map[uint64]string)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(p, &s); err != nil {
			return err
		}
		line := fmt.Sprintf("mode %o, owner %d:%d", s.Mode, s.Uid, s.Gid)
		value := make([]byte, 100)
		if n, err := unix.Lgetxattr(p, attribute, value); err == nil {
			line += fmt.Sprintf(", attribute %q", value[:n])
		} else if !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EPERM) { // links have none of users
			return fmt.Errorf("attribute of %s: %w", name, err)
		}
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(", time %d, %q", s.Mtim.Sec, b)
			if s.Nlink > 1 {
				if first[s.Ino] == "" {
					first[s.Ino] = name
				}
				line += ", same as " + first[s.Ino]
			}
		case unix.S_IFLNK:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += ", to " + target
		}
		out[name] = line
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

// Whatever layers an image has, overlayfs shows of them what a copy holds.
func TestRootOverlayIsLikeCopy(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	host, s := serve(t), open(t)
	names := []string{"a", "b", "c"}
	name := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		return strings.Join(parts, "/")
	}
	// lower are what the layers below have; only that is removed, as tools do.
	random := func(lower []string) entry {
		n := name()
		owner := func(h *tar.Header) {
			h.Uid, h.Gid, h.Mode = r.IntN(3), r.IntN(3), 0o600|int64(r.IntN(0o200))
			if v := r.IntN(4); v > 0 {
				h.PAXRecords = map[string]string{"SCHILY.xattr." + attribute: fmt.Sprint(v)}
			}
		}
		switch r.IntN(8) {
		case 0:
			return dir(n, 0o700|int64(r.IntN(0o100)))
		case 1, 2:
			if len(lower) > 0 {
				n = lower[r.IntN(len(lower))]
				return file(filepath.Join(filepath.Dir(n), ".wh."+filepath.Base(n)), "")
			}
			return dir(n, 0o755)
		case 3:
			return file(n+"/.wh..wh..opq", "")
		case 4:
			return symlink(n+"/l", "/nowhere/"+n)
		default:
			return file(n, fmt.Sprint(r.IntN(1000)), owner)
		}
	}
	attributes := 0
	for i := range 40 {
		var layers []v1.Layer
		var lower []string
		for range 1 + r.IntN(4) {
			var entries []entry
			for range 1 + r.IntN(8) {
				entries = append(entries, random(lower))
			}
			layers = append(layers, layer(t, compression.GZip, entries...))
			// What is there is what this test is about, so ask the copy.
			push(t, host+"/below:v1", imageOf(t, layers...))
			pull(t, s, host+"/below:v1")
			below, err := s.Mountable(t.Context(), images.RootRequest{ID: "below", Image: host + "/below:v1", Copy: true})
			if err != nil {
				t.Fatal(err)
			}
			lower = slices.Sorted(maps.Keys(tree(t, below.Copied)))[1:]
			if err := s.Release(t.Context(), "below"); err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 0 { // An image can have a layer several times, such as that without files.
			for range 2 {
				layers = append(layers, layers[0], layer(t, compression.None))
			}
		}
		ref := fmt.Sprintf("%s/app:v%d", host, i)
		push(t, ref, imageOf(t, layers...))
		pull(t, s, ref)
		stacked, err := s.Mountable(t.Context(), images.RootRequest{ID: fmt.Sprint("o", i), Image: ref})
		if err != nil {
			t.Fatal(err)
		}
		copied, err := s.Mountable(t.Context(), images.RootRequest{ID: fmt.Sprint("c", i), Image: ref, Copy: true})
		if err != nil {
			t.Fatal(err)
		}
		want := tree(t, copied.Copied)
		for _, line := range want {
			attributes += strings.Count(line, "attribute")
		}
		overlay(t, stacked, func(dir string) {
			got := tree(t, dir)
			for _, p := range slices.Sorted(maps.Keys(union(got, want))) {
				if got[p] != want[p] {
					t.Errorf("image %d, %s: overlayfs: %q, copy: %q", i, p, got[p], want[p])
				}
			}
		})
	}
	if attributes == 0 {
		t.Error("no file has an extended attribute")
	}
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// A layer that hides all that is below it, at the root of the image, does so in overlays as in copies.
func TestRootOpaqueRoot(t *testing.T) {
	host, s := serve(t), open(t)
	push(t, host+"/app:v1", imageOf(t,
		layer(t, compression.GZip, dir("d", 0o700), file("d/below", "x"), file("gone", "x")),
		layer(t, compression.GZip, file(".wh..wh..opq", ""), file(".wh.gone", ""), file("d/own", "y")),
		layer(t, compression.GZip, file("above", "z"))))
	pull(t, s, host+"/app:v1")
	stacked, err := s.Mountable(t.Context(), images.RootRequest{ID: "o", Image: host + "/app:v1"})
	if err != nil {
		t.Fatal(err)
	}
	copied, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: host + "/app:v1", Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	want := tree(t, copied.Copied)
	if got := slices.Sorted(maps.Keys(want)); !slices.Equal(got, []string{".", "above", "d", "d/own"}) {
		t.Errorf("a copy has %v", got)
	}
	if !strings.HasPrefix(want["d"], "mode 40755") {
		t.Errorf("a directory has its attributes of one that is hidden: %s", want["d"])
	}
	overlay(t, stacked, func(dir string) {
		if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
			t.Errorf("an overlay is not like a copy: %s", diff)
		}
	})
}

// A directory for which a layer has no entry takes the place of a link of a lower layer: layers are unpacked
// independently of each other.
func TestRootImpliedOverLink(t *testing.T) {
	host, s := serve(t), open(t)
	push(t, host+"/app:v1", imageOf(t, layer(t, compression.GZip, dir("usr/lib", 0o755), file("usr/lib/a", "x"),
		symlink("lib", "usr/lib")), layer(t, compression.GZip, file("lib/b", "y"))))
	pull(t, s, host+"/app:v1")
	for id, copied := range map[string]bool{"o": false, "c": true} {
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: id, Image: host + "/app:v1", Copy: copied})
		if err != nil {
			t.Fatal(err)
		}
		look := func(dir string) {
			want := []string{".", "lib", "lib/b", "usr", "usr/lib", "usr/lib/a"}
			if got := slices.Sorted(maps.Keys(tree(t, dir))); !slices.Equal(got, want) {
				t.Errorf("copied %v: %v, want %v", copied, got, want)
			}
		}
		if copied {
			look(root.Copied)
			continue
		}
		overlay(t, root, look)
	}
}
