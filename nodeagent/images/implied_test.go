package images_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
)

// attribute is an extended attribute that files of the layers may have.
const attribute = "user.monoplane-test"

// earlier is when the directories of the tests of implied ones were changed last.
var earlier = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// kept is a directory with attributes that are not the usual ones.
func kept(name string, mode int64) entry {
	e := dir(name, mode)
	e.ModTime = earlier
	e.PAXRecords = map[string]string{"SCHILY.xattr." + attribute: name}
	if os.Geteuid() == 0 {
		e.Uid, e.Gid = 12, 34
	}
	return e
}

// whole are the attributes of such a directory, as attributesOf describes them.
func whole(name string, mode int64) string {
	owner := "12:34"
	if os.Geteuid() != 0 {
		owner = fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
	}
	return fmt.Sprintf("%o %s 2020 %q", mode, owner, name)
}

// usual are the attributes of a directory that no layer says anything of, and plain those of one with an entry.
func usual() string { return fmt.Sprintf(`755 %d:%d ? ""`, os.Geteuid(), os.Getegid()) }

func plain(mode int64) string {
	return fmt.Sprintf(`%o %d:%d 2026 ""`, mode, os.Geteuid(), os.Getegid())
}

// attributesOf says which mode, owner, time and extended attribute a file has. The time is that of the tests' layers,
// or the question mark.
func attributesOf(path string) string {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return err.Error()
	}
	when := "?"
	for _, t := range []time.Time{made, earlier} {
		if s.Mtim.Sec == t.Unix() {
			when = fmt.Sprint(t.Year())
		}
	}
	value := make([]byte, 100)
	n, err := unix.Lgetxattr(path, attribute, value)
	if err != nil {
		n = 0
	}
	return fmt.Sprintf("%o %d:%d %s %q", s.Mode&0o7777, s.Uid, s.Gid, when, value[:n])
}

// impliedCase is an image of layers, the lowest first, with what its directories are to be like.
type impliedCase struct {
	name   string
	layers [][]entry
	want   map[string]string
}

func impliedCases() []impliedCase {
	opaque := func(name string) entry { return file(name+"/.wh..wh..opq", "") }
	gone := func(name string) entry {
		return file(filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name)), "")
	}
	return []impliedCase{
		{"only implied", [][]entry{{file("a/b/f", "")}, {file("a/b/g", "")}},
			map[string]string{"a": usual(), "a/b": usual()}},
		{"above an entry", [][]entry{{kept("a", 0o700)}, {file("a/f", "")}},
			map[string]string{"a": whole("a", 0o700)}},
		{"above an entry and another one that implies it", [][]entry{
			{kept("a", 0o700)}, {file("a/f", "")}, {file("a/g", "")}},
			map[string]string{"a": whole("a", 0o700)}},
		{"an entry above", [][]entry{{file("a/f", "")}, {kept("a", 0o700)}},
			map[string]string{"a": whole("a", 0o700)}},
		{"between entries", [][]entry{{kept("a", 0o700)}, {dir("a", 0o711)}, {file("a/f", "")}},
			map[string]string{"a": plain(0o711)}},
		{"below an entry", [][]entry{{kept("a", 0o700)}, {file("a/f", "")}, {dir("a", 0o711)}},
			map[string]string{"a": plain(0o711)}},
		{"sticky, setgid, closed", [][]entry{{kept("tmp", 0o1777), kept("group", 0o2775), kept("shut", 0o600)},
			{file("tmp/f", ""), file("group/f", ""), file("shut/f", "")}},
			map[string]string{"tmp": whole("tmp", 0o1777), "group": whole("group", 0o2775), "shut": whole("shut", 0o600)}},
		{"further down", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750), kept("a/b/c", 0o705)}, {file("a/b/c/f", "")}},
			map[string]string{"a": whole("a", 0o700), "a/b": whole("a/b", 0o750), "a/b/c": whole("a/b/c", 0o705)}},
		{"below one that has an entry", [][]entry{
			{dir("a", 0o711), kept("a/b", 0o750)}, {kept("a", 0o701), file("a/b/f", "")}},
			map[string]string{"a": whole("a", 0o701), "a/b": whole("a/b", 0o750)}},
		{"of several layers", [][]entry{{kept("a", 0o700)}, {kept("a/b", 0o750)}, {file("a/b/f", "")}},
			map[string]string{"a": whole("a", 0o700), "a/b": whole("a/b", 0o750)}},
		{"what the image has last", [][]entry{{kept("a", 0o700)}, {file("a/f", "")}, {gone("a")}},
			map[string]string{"a": "no such file or directory"}},
		{"beside it", [][]entry{{kept("a", 0o700), kept("b", 0o700)}, {file("a/f", ""), file("c/f", "")}},
			map[string]string{"a": whole("a", 0o700), "b": whole("b", 0o700), "c": usual()}},
		{"removed between", [][]entry{{kept("a", 0o700), kept("a/b", 0o750)}, {gone("a")}, {file("a/b/f", "")}},
			map[string]string{"a": usual(), "a/b": usual()}},
		{"removed between, and there again", [][]entry{
			{kept("a", 0o700)}, {gone("a")}, {dir("a", 0o711)}, {file("a/f", "")}},
			map[string]string{"a": plain(0o711)}},
		{"removed and implied by one layer", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750)}, {gone("a"), file("a/b/f", "")}},
			map[string]string{"a": usual(), "a/b": usual()}},
		{"implied and removed by one layer", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750)}, {file("a/b/f", ""), gone("a")}},
			map[string]string{"a": usual(), "a/b": usual()}},
		{"the one above removed", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750)}, {gone("a")}, {dir("a", 0o711)}, {file("a/b/f", "")}},
			map[string]string{"a": plain(0o711), "a/b": usual()}},
		{"opaque between", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750)}, {dir("a", 0o711), opaque("a")}, {file("a/b/f", "")}},
			map[string]string{"a": plain(0o711), "a/b": usual()}},
		{"opaque without an entry", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750)}, {opaque("a"), file("a/b/f", "")}},
			map[string]string{"a": whole("a", 0o700), "a/b": usual()}},
		{"opaque without an entry between", [][]entry{
			{kept("a", 0o700), kept("a/b", 0o750)}, {opaque("a")}, {file("a/b/f", "")}},
			map[string]string{"a": whole("a", 0o700), "a/b": usual()}},
		{"a file between", [][]entry{{kept("a", 0o700), kept("a/b", 0o750)}, {file("a", "")}, {file("a/b/f", "")}},
			map[string]string{"a": usual(), "a/b": usual()}},
		{"a link between", [][]entry{{kept("a", 0o700), kept("c", 0o700)}, {symlink("a", "c")}, {file("a/f", "")}},
			map[string]string{"a": usual(), "c": whole("c", 0o700)}},
		{"through a link of the layer", [][]entry{{kept("a", 0o700)}, {symlink("l", "a"), file("l/f", "")}},
			map[string]string{"a": whole("a", 0o700)}},
		{"an entry after the file", [][]entry{{kept("a", 0o700)}, {file("a/f", ""), dir("a", 0o711)}},
			map[string]string{"a": plain(0o711)}},
	}
}

// eachImplied makes the image of each case, and gives it to do.
func eachImplied(t *testing.T, s *images.Store, do func(t *testing.T, c impliedCase, image string)) {
	host := serve(t)
	for i, c := range impliedCases() {
		t.Run(c.name, func(t *testing.T) {
			var layers []v1.Layer
			for _, l := range c.layers {
				layers = append(layers, layer(t, compression.None, l...))
			}
			ref := fmt.Sprintf("%s/app:v%d", host, i)
			push(t, ref, imageOf(t, layers...))
			pull(t, s, ref)
			do(t, c, ref)
		})
	}
}

// check compares the directories below a root with those of a case.
func (c impliedCase) check(t *testing.T, root string) {
	t.Helper()
	for p, want := range c.want {
		if got := attributesOf(filepath.Join(root, p)); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
}

// A directory for which a layer has no entry is in a copy as the layers below have it.
func TestImpliedDirectoriesOfCopies(t *testing.T) {
	s := open(t)
	eachImplied(t, s, func(t *testing.T, c impliedCase, image string) {
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: image, Copy: true, Mounts: []string{image}})
		if err != nil {
			t.Fatal(err)
		}
		c.check(t, root.Copied)
		c.check(t, root.Mounts[0].Copied)
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	})
}

// tops are the images for which there is something above their layers, or nothing that belongs there.
func tops(t *testing.T, s *images.Store) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Dir(), "tops"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, "sha256:"+e.Name())
	}
	return out
}

// What belongs above an image's layers is made once, by whomever, and anew after a boot. It goes with the image, whose
// layers other images have, too. Of a layer that was unpacked before such directories were noted nothing is known.
func TestTops(t *testing.T) {
	host, path := serve(t), filepath.Join(t.TempDir(), "images")
	below, above := layer(t, compression.None, kept("a", 0o711)), layer(t, compression.None, file("a/f", ""))
	ref, other := host+"/app:v1", host+"/other:v1"
	push(t, ref, imageOf(t, below, above))
	push(t, other, imageOf(t, layer(t, compression.None, dir("a", 0o700)), above))
	stores := []*images.Store{openIn(t, path), openIn(t, path)}
	img := pull(t, stores[0], ref)
	second := pull(t, stores[0], other)
	made := make(chan string)
	for i := range 8 {
		go func() {
			req := images.RootRequest{ID: fmt.Sprint("c", i), Image: ref}
			root, err := stores[i%2].Mountable(t.Context(), req)
			if err != nil || len(root.Lower) != 3 {
				t.Errorf("%+v, %v", root, err)
				root.Lower = []string{""}
			}
			made <- root.Lower[0]
		}()
	}
	for range 8 {
		if got := attributesOf(filepath.Join(<-made, "a")); got != whole("a", 0o711) {
			t.Errorf("it is %s", got)
		}
	}
	if got := tops(t, stores[0]); !slices.Equal(got, []string{img.ID}) {
		t.Errorf("there are tops of %v, want %s", got, img.ID)
	}
	for i := range 8 {
		if err := stores[0].Release(t.Context(), fmt.Sprint("c", i)); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(path, "boot"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openIn(t, path)
	if got := tops(t, s); len(got) > 0 {
		t.Errorf("after a boot there are tops of %v", got)
	}
	for _, image := range []string{ref, other} {
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: image[len(host)+1 : len(host)+4], Image: image})
		if err != nil || len(root.Lower) != 3 {
			t.Fatalf("%+v, %v", root, err)
		}
		if err := s.Release(t.Context(), root.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if got := tops(t, s); !slices.Equal(got, []string{second.ID}) {
		t.Errorf("there are tops of %v, want %s", got, second.ID)
	}

	info := filepath.Join(path, "layers", strings.TrimPrefix(second.Layers[1], "sha256:"), "info.json")
	if err := os.WriteFile(info, []byte(`{"bytes":0,"inodes":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(path, "tops", strings.TrimPrefix(second.ID, "sha256:"))); err != nil {
		t.Fatal(err)
	}
	root, err := s.Mountable(t.Context(), images.RootRequest{ID: "old", Image: other})
	if err != nil || len(root.Lower) != 2 {
		t.Errorf("%+v, %v", root, err)
	}
	if err := s.Release(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if left := remains(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
