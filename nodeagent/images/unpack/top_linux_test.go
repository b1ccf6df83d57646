package unpack_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images/unpack"
)

// usualMode is that of a directory which no layer has an entry for.
const usualMode = "755"

// model is what an image should have: the mode of each directory by its path, and empty for a file.
type model map[string]string

// remove removes what is below a path.
func (m model) remove(below string) {
	for p := range m {
		if strings.HasPrefix(p, below+"/") {
			delete(m, p)
		}
	}
}

// apply does to an image what a layer says: it removes first, since that is about lower layers only.
func (m model) apply(layer []entry) {
	for _, e := range layer {
		d, base := path.Split(e.name)
		switch removed, is := strings.CutPrefix(base, unpack.Whiteout); {
		case base == unpack.Opaque:
			m.remove(path.Clean(d))
		case is:
			delete(m, d+removed)
			m.remove(d + removed)
		}
	}
	for _, e := range layer {
		for i, c := range e.name {
			if c == '/' && m[e.name[:i]] == "" {
				m[e.name[:i]] = usualMode
			}
		}
		switch {
		case strings.HasPrefix(path.Base(e.name), unpack.Whiteout):
		case e.kind == tar.TypeDir:
			m[e.name] = fmt.Sprintf("%o", e.mode)
		default:
			m.remove(e.name)
			m[e.name] = ""
		}
	}
}

// randomLayer has entries that get along with each other, and removes what lower layers have.
func randomLayer(r *rand.Rand, lower model) []entry {
	names := []string{"a", "b", "c"}
	has := make(model)
	var out []entry
	for range 1 + r.IntN(6) {
		parts := make([]string, 1+r.IntN(4))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		e := entry{name: strings.Join(parts, "/")}
		switch r.IntN(6) {
		case 0:
			e.name += "/" + unpack.Opaque
		case 1:
			all := slices.Sorted(maps.Keys(lower))
			if len(all) == 0 {
				continue
			}
			gone := all[r.IntN(len(all))]
			e.name = path.Join(path.Dir(gone), unpack.Whiteout+path.Base(gone))
		case 2, 3:
			e.kind, e.mode = tar.TypeDir, int64(0o1000*r.IntN(8)+0o700+r.IntN(0o100))
		default:
			e.name += "/f"
		}
		with := maps.Clone(has)
		with.apply([]entry{e})
		before, after := has.files(), with.files()
		if slices.Equal(slices.Compact(slices.Sorted(slices.Values(append(before, after...)))), after) {
			has, out = with, append(out, e)
		}
	}
	return out
}

// files are the paths of files, sorted.
func (m model) files() []string {
	var out []string
	for p, mode := range m {
		if mode == "" {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// modes are those of the directories below one.
func modes(t *testing.T, dir string) model {
	t.Helper()
	out := make(model)
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(p, &s); err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		out[name] = ""
		if d.IsDir() {
			out[name] = fmt.Sprintf("%o", s.Mode&0o7777)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stacked unpacks layers, the lowest first, and returns them with their top: the uppermost first.
func stacked(t *testing.T, o unpack.Options, layers [][]entry) []string {
	t.Helper()
	top := t.TempDir()
	var all []unpack.Layer
	var dirs []string
	for i, l := range layers {
		dir := filepath.Join(top, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stats, err := unpack.Tar(t.Context(), dir, archive(t, l), o)
		if err != nil {
			t.Fatal(err)
		}
		all, dirs = slices.Insert(all, 0, unpack.Layer{Dir: dir, Implied: stats.Implied}), slices.Insert(dirs, 0, dir)
	}
	dir := filepath.Join(top, "top")
	if err := unpack.Top(t.Context(), dir, all, unpack.MergeOptions{Flavour: o.Flavour, Owners: o.Owners}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		dirs = slices.Insert(dirs, 0, dir)
	}
	return dirs
}

// Whatever layers there are, directories have the modes that they would have if each layer was unpacked on top of
// those below it.
func TestTopOfRandomLayers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	tops := 0
	for i := range 100 {
		o := options(t)
		if i%2 == 0 {
			o.Flavour = unpack.Plain
		}
		want := make(model)
		var layers [][]entry
		for range 1 + r.IntN(5) {
			l := randomLayer(r, want)
			layers = append(layers, l)
			want.apply(l)
		}
		dirs := stacked(t, o, layers)
		tops += len(dirs) - len(layers)
		slices.Reverse(dirs)
		dst := filepath.Join(t.TempDir(), "copy")
		err := unpack.Merge(t.Context(), dst, dirs, unpack.MergeOptions{Flavour: o.Flavour, Owners: o.Owners})
		if err != nil {
			t.Fatal(err)
		}
		if got := modes(t, dst); !maps.Equal(got, want) {
			t.Errorf("image %d, %s: %v, want %v, of %+v", i, o.Flavour, got, want, layers)
		}
	}
	if tops == 0 {
		t.Error("no image has a top")
	}
}

// A top has no more than it takes.
func TestTopIsSmall(t *testing.T) {
	below := []entry{{name: "a", kind: tar.TypeDir, mode: 0o711}, {name: "a/b", kind: tar.TypeDir, mode: 0o700},
		{name: "a/c", kind: tar.TypeDir, mode: 0o700}, {name: "d", kind: tar.TypeDir, mode: 0o700}, {name: "a/b/e/f"}}
	dirs := stacked(t, options(t), [][]entry{below, {{name: "a", kind: tar.TypeDir, mode: 0o755}, {name: "a/b/e/g"},
		{name: "g/h/i"}}})
	if len(dirs) != 3 {
		t.Fatalf("there is no top: %v", dirs)
	}
	if got, want := modes(t, dirs[0]), (model{"a": "755", "a/b": "700"}); !maps.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
}

// Directories without entries are bounded, in a layer and in what is made of them for an image.
func TestManyImplied(t *testing.T) {
	if _, err := os.Lstat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // A disk takes a minute for so many.
	}
	o := options(t)
	o.Entries, o.Bytes = 1<<20, 1<<20
	long := strings.Repeat(strings.Repeat("d", 250)+"/", 15)
	var deep []entry
	for i := range 9000 {
		deep = append(deep, entry{name: fmt.Sprint(long, i, "/f")})
	}
	if _, err := unpack.Tar(t.Context(), t.TempDir(), archive(t, deep), o); !errors.Is(err, unpack.ErrTooLarge) {
		t.Errorf("9000 directories with long paths: %v", err)
	}

	// Two layers in one: the upper one implies what is there.
	dir, names := t.TempDir(), []string(nil)
	for i := range 1<<14 + 1 {
		names = append(names, fmt.Sprint(i))
		if err := os.Mkdir(filepath.Join(dir, names[i]), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	layers := []unpack.Layer{{Dir: dir, Implied: names}, {Dir: dir}}
	top := filepath.Join(t.TempDir(), "top")
	m := unpack.MergeOptions{Flavour: o.Flavour, Owners: o.Owners}
	if err := unpack.Top(t.Context(), top, layers, m); !errors.Is(err, unpack.ErrTooLarge) {
		t.Errorf("a top of too many directories: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := unpack.Top(ctx, top, layers, m); !errors.Is(err, context.Canceled) {
		t.Errorf("it goes on: %v", err)
	}
	if _, err := os.Lstat(top); err == nil {
		t.Error("something was made")
	}
}
