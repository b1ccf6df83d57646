package unpack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images/unpack"
)

type entry struct {
	name, content string
	kind          byte
	link          string
	mode          int64
	pax           map[string]string
	major, minor  int64
}

func archive(t testing.TB, entries []entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.content)),
			PAXRecords: e.pax, Devmajor: e.major, Devminor: e.minor, ModTime: time.Unix(1e9, 0), Format: tar.FormatPAX,
			Uid: os.Geteuid(), Gid: os.Getegid()}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func flavour(t testing.TB) unpack.Flavour {
	t.Helper()
	f, err := unpack.Probe(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func options(t testing.TB) unpack.Options {
	return unpack.Options{Flavour: flavour(t), Owners: os.Geteuid() == 0, Bytes: 1 << 20, Entries: 1000}
}

// describe says what is at a path, in a word.
func describe(t testing.TB, f unpack.Flavour, path string) string {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return "none"
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		var b [1]byte
		if n, err := unix.Lgetxattr(path, f.Attribute("opaque"), b[:]); err == nil && n == 1 {
			return "opaque"
		}
		return "dir"
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return "-> " + target
	case unix.S_IFCHR:
		return fmt.Sprintf("char %d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	case unix.S_IFBLK:
		return fmt.Sprintf("block %d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	case unix.S_IFREG:
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return "file " + string(b)
	default:
		return "other"
	}
}

// What an archive says becomes what overlayfs understands, in whichever order it says so.
func TestForms(t *testing.T) {
	f := flavour(t)
	if f == unpack.Plain {
		t.Skip("this file system can hold no layers of overlayfs")
	}
	for name, c := range map[string]struct {
		entries []entry
		want    map[string]string
	}{
		"removed":              {[]entry{{name: "a/.wh.b"}}, map[string]string{"a/b": "char 0:0", "a": "dir"}},
		"opaque":               {[]entry{{name: "a/.wh..wh..opq"}, {name: "a/f"}}, map[string]string{"a": "opaque", "a/f": "file "}},
		"removed and made":     {[]entry{{name: ".wh.a"}, {name: "a", content: "x"}}, map[string]string{"a": "file x"}},
		"made and removed":     {[]entry{{name: "a", content: "x"}, {name: ".wh.a"}}, map[string]string{"a": "file x"}},
		"removed, a directory": {[]entry{{name: ".wh.a"}, {name: "a/b"}}, map[string]string{"a": "opaque", "a/b": "file "}},
		"a directory, removed": {[]entry{{name: "a/b"}, {name: ".wh.a"}}, map[string]string{"a": "opaque", "a/b": "file "}},
		"aufs's books":         {[]entry{{name: ".wh..wh.plnk", kind: tar.TypeDir}, {name: ".wh..wh.aufs"}}, nil},
		"overlayfs's own mark": {[]entry{{name: "a", kind: tar.TypeChar}}, map[string]string{"a": "char 0:0"}},
		"link to the root":     {[]entry{{name: "l", kind: tar.TypeSymlink, link: "/d"}, {name: "l/f", content: "x"}}, map[string]string{"d/f": "file x", "l": "-> /d"}},
		"link out of it":       {[]entry{{name: "l", kind: tar.TypeSymlink, link: "../../../d"}, {name: "l/f"}}, map[string]string{"d/f": "file "}},
		"hard link":            {[]entry{{name: "f", content: "x"}, {name: "d/g", kind: tar.TypeLink, link: "f"}}, map[string]string{"d/g": "file x"}},
		"hard link, rooted":    {[]entry{{name: "f", content: "x"}, {name: "g", kind: tar.TypeLink, link: "/f"}}, map[string]string{"g": "file x"}},
		"hard link to itself":  {[]entry{{name: "f", content: "x"}, {name: "f", kind: tar.TypeLink, link: "./f"}}, map[string]string{"f": "file x"}},
		"file for directory":   {[]entry{{name: "a/b/c"}, {name: "a", content: "x"}}, map[string]string{"a": "file x"}},
		"directory for file":   {[]entry{{name: "a", content: "x"}, {name: "a/b", content: "y"}}, map[string]string{"a/b": "file y"}},
		"directory for link":   {[]entry{{name: "a", kind: tar.TypeSymlink, link: "b"}, {name: "a", kind: tar.TypeDir}}, map[string]string{"a": "dir", "b": "none"}},
		"the last one counts":  {[]entry{{name: "a", content: "x"}, {name: "./a", content: "y"}}, map[string]string{"a": "file y"}},
		"rooted name":          {[]entry{{name: "/etc/passwd", content: "x"}}, map[string]string{"etc/passwd": "file x"}},
		"pipe":                 {[]entry{{name: "p", kind: tar.TypeFifo}}, map[string]string{"p": "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := unpack.Tar(t.Context(), dir, archive(t, c.entries), options(t)); err != nil {
				t.Fatal(err)
			}
			for path, want := range c.want {
				if got := describe(t, f, filepath.Join(dir, path)); got != want {
					t.Errorf("%s: %s, want %s", path, got, want)
				}
			}
			if c.want == nil {
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("%v, %v; want nothing", left, err)
				}
			}
		})
	}
}

// What breaks the rules is refused, and nothing outside is touched.
func TestHostile(t *testing.T) {
	deep := strings.Repeat("d/", 1500) + "f"
	var loop []entry
	for i := range 50 {
		loop = append(loop, entry{name: fmt.Sprint("l", i), kind: tar.TypeSymlink, link: fmt.Sprint("l", i+1)})
	}
	for name, c := range map[string]struct {
		entries []entry
		want    error
	}{
		"name above":          {[]entry{{name: "../victim", content: "evil"}}, unpack.ErrHostile},
		"name above, inside":  {[]entry{{name: "a/../../victim", content: "evil"}}, unpack.ErrHostile},
		"hard link above":     {[]entry{{name: "v", kind: tar.TypeLink, link: "../victim"}}, unpack.ErrHostile},
		"hard link, nowhere":  {[]entry{{name: "v", kind: tar.TypeLink, link: "not/here"}}, unpack.ErrHostile},
		"hard link to a dir":  {[]entry{{name: "d", kind: tar.TypeDir}, {name: "e", kind: tar.TypeLink, link: "d"}}, unpack.ErrHostile},
		"hard link by a link": {[]entry{{name: "l", kind: tar.TypeSymlink, link: "/proc/self"}, {name: "v", kind: tar.TypeLink, link: "l/exe"}}, unpack.ErrHostile},
		"hard link over it":   {[]entry{{name: "d/f"}, {name: "d", kind: tar.TypeLink, link: "d/f"}}, unpack.ErrHostile},
		"links without end":   {append(loop, entry{name: "l0/f"}), unpack.ErrHostile},
		"link to itself":      {[]entry{{name: "l", kind: tar.TypeSymlink, link: "l"}, {name: "l/f"}}, unpack.ErrHostile},
		"deep":                {[]entry{{name: deep}}, unpack.ErrHostile},
		"removes the parent":  {[]entry{{name: "a/.wh..."}, {name: "a/.wh.."}}, unpack.ErrHostile},
		"root is a file":      {[]entry{{name: "./", kind: tar.TypeSymlink, link: "x"}}, unpack.ErrHostile},
		"unknown type":        {[]entry{{name: "a", kind: 'V'}}, unpack.ErrHostile},
		"long name":           {[]entry{{name: strings.Repeat("n", 256)}}, unpack.ErrHostile},
		"long name, above":    {[]entry{{name: strings.Repeat("n", 256) + "/f"}}, unpack.ErrHostile},
		"long target":         {[]entry{{name: "l", kind: tar.TypeSymlink, link: strings.Repeat("n/", 3000)}}, unpack.ErrHostile},
		"no target":           {[]entry{{name: "l", kind: tar.TypeSymlink}}, unpack.ErrHostile},
		"long attribute":      {[]entry{{name: "f", pax: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("x", 70_000)}}}, unpack.ErrHostile},
		"directory's, long":   {[]entry{{name: "d", kind: tar.TypeDir, pax: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("x", 70_000)}}}, unpack.ErrHostile},
		"attribute's name":    {[]entry{{name: "f", pax: map[string]string{"SCHILY.xattr.user." + strings.Repeat("n", 256): "x"}}}, unpack.ErrHostile},
		"attribute, no name":  {[]entry{{name: "f", pax: map[string]string{"SCHILY.xattr.user.": "x"}}}, unpack.ErrHostile},
		"too large":           {[]entry{{name: "a", content: strings.Repeat("x", 600_000)}, {name: "b", content: strings.Repeat("x", 600_000)}}, unpack.ErrTooLarge},
		"too many":            {slices.Repeat([]entry{{name: "a"}}, 1001), unpack.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir, victim := filepath.Join(top, "layer"), filepath.Join(top, "victim")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(victim, []byte("precious"), 0o600)); err != nil {
				t.Fatal(err)
			}
			_, err := unpack.Tar(t.Context(), dir, archive(t, c.entries), options(t))
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
				t.Errorf("the file outside: %q, %v", b, err)
			}
			if err := unpack.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(top); err != nil || len(left) != 1 {
				t.Errorf("left beside the layer: %v, %v", left, err)
			}
		})
	}
}

// A tar whose own words for an entry are too long, or contradict each other, is none.
func TestHostileTar(t *testing.T) {
	// typed makes the first entry of a tar another kind.
	typed := func(b []byte, kind byte) []byte {
		const at, sumAt, sumSize, header = 156, 148, 8, 512
		b[at] = kind
		copy(b[sumAt:], strings.Repeat(" ", sumSize))
		sum := 0
		for _, c := range b[:header] {
			sum += int(c)
		}
		copy(b[sumAt:], fmt.Sprintf("%06o\x00 ", sum))
		return b
	}
	for name, b := range map[string][]byte{
		"large words": typed(archive(t, []entry{{name: "x", content: strings.Repeat("x", 2<<20)}, {name: "f"}}).Bytes(),
			tar.TypeXHeader),
		"words that are none": typed(archive(t, []entry{{name: "x", content: "x"}, {name: "f"}}).Bytes(), tar.TypeXHeader),
		"a file with holes of which nothing is known": typed(archive(t, []entry{{name: "f", content: "x"}}).Bytes(),
			tar.TypeGNUSparse),
	} {
		if _, err := unpack.Tar(t.Context(), t.TempDir(), bytes.NewReader(b), options(t)); !errors.Is(err,
			unpack.ErrHostile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Attributes are kept, also of directories that are closed to their owner, except those that overlayfs would obey.
func TestAttributes(t *testing.T) {
	dir := t.TempDir()
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	_, err := unpack.Tar(t.Context(), dir, archive(t, []entry{
		{name: "closed", kind: tar.TypeDir, mode: 0o111},
		{name: "closed/inner", kind: tar.TypeDir, mode: 0o4751},
		{name: "closed/inner/f", content: "x", mode: 0o4755, pax: map[string]string{
			"SCHILY.xattr.user.kept": "v", "SCHILY.xattr.user.overlay.redirect": "/etc",
			"SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.security.capability": capability,
		}},
		{name: "closed/inner/g", content: "x", mode: 0o2755},
		{name: "shared", kind: tar.TypeDir, mode: 0o2775},
		{name: "shared/below", content: "x", mode: 0o644},
		{name: "tmp", kind: tar.TypeDir, mode: 0o1777},
		{name: ".", kind: tar.TypeDir, mode: 0o750},
	}), options(t))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{"": 0o750, "closed": 0o111, "tmp": 0o1777, "shared": 0o2775,
		"shared/below": 0o644} {
		var s unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, path), &s); err != nil || s.Mode&0o7777 != want || s.Mtim.Sec != 1e9 {
			t.Errorf("%q: mode %o, time %d, %v; want %o and %d", path, s.Mode, s.Mtim.Sec, err, want, int64(1e9))
		}
	}
	f := filepath.Join(dir, "closed/inner/f")
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{f: 0o755 | fs.ModeSetuid,
		filepath.Join(filepath.Dir(f), "g"): 0o755 | fs.ModeSetgid} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info, err, want)
		}
	}
	names := make([]byte, 1000)
	n, err := unix.Llistxattr(f, names)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.FieldsFunc(string(names[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(got)
	want := []string{"user.kept"}
	if os.Geteuid() == 0 {
		want = []string{"security.capability", "user.kept"}
	}
	if !slices.Equal(got, want) {
		t.Errorf("extended attributes: %q, want %q", got, want)
	}
}

// What even its owner may not write has its attributes, in a copy too, for a user who is not root.
func TestAttributesOfReadOnlyFiles(t *testing.T) {
	parent := t.TempDir()
	if os.Geteuid() == 0 {
		// Files are made, and allowed, as another user by this thread, which ends with the test.
		runtime.LockOSThread()
		const nobody = 65534
		t.Cleanup(func() { _ = unix.Setfsuid(0) }) // It always succeeds.
		if err := os.Chown(parent, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(filepath.Dir(parent), 0o755), unix.Setfsuid(nobody)); err != nil {
			t.Fatal(err)
		}
	}
	dir, merged := filepath.Join(parent, "layer"), filepath.Join(parent, "copy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{"SCHILY.xattr.user.kept": "v"}
	_, err := unpack.Tar(t.Context(), dir, archive(t, []entry{
		{name: "f", content: "x", mode: 0o444, pax: kept}, {name: "d", kind: tar.TypeDir, mode: 0o555, pax: kept},
	}), unpack.Options{Flavour: unpack.Plain, Bytes: 1 << 20, Entries: 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := unpack.Merge(t.Context(), merged, []string{dir}, unpack.MergeOptions{Flavour: unpack.Plain}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, merged} {
		for name, mode := range map[string]fs.FileMode{"f": 0o444, "d": 0o555} {
			var b [9]byte
			n, err := unix.Lgetxattr(filepath.Join(at, name), "user.kept", b[:])
			info, statErr := os.Lstat(filepath.Join(at, name))
			if err != nil || string(b[:max(n, 0)]) != "v" || statErr != nil || info.Mode().Perm() != mode {
				t.Errorf("%s of %s: %q, %v; %v, %v", name, at, b[:max(n, 0)], err, info, statErr)
			}
		}
	}
}

// Devices are made where files have owners, and left out, and counted, where they do not. Numbers that no device can
// have are refused.
func TestDevices(t *testing.T) {
	f := flavour(t)
	entries := []entry{{name: "null", kind: tar.TypeChar, major: 1, minor: 3},
		{name: "d/disk", kind: tar.TypeBlock, major: 259, minor: 1 << 16}, {name: "after", content: "x"}}
	for owners, want := range map[bool][]string{
		true:  {"char 1:3", "block 259:65536", "file x"},
		false: {"none", "none", "file x"},
	} {
		if owners && os.Geteuid() != 0 {
			continue // it takes root to make one
		}
		dir, o := t.TempDir(), options(t)
		o.Owners = owners
		stats, err := unpack.Tar(t.Context(), dir, archive(t, entries), o)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			if got := describe(t, f, filepath.Join(dir, e.name)); got != want[i] {
				t.Errorf("owners %t: %s: %s, want %s", owners, e.name, got, want[i])
			}
		}
		if left := map[bool]int64{true: 0, false: 2}[owners]; stats.Skipped != left {
			t.Errorf("owners %t: %d are said to be left out, not %d", owners, stats.Skipped, left)
		}
		if os.Geteuid() != 0 {
			continue
		}
		o.Owners = true
		for _, e := range []entry{{name: "a", kind: tar.TypeBlock, major: 1 << 12},
			{name: "a", kind: tar.TypeChar, minor: 1 << 20}} {
			if _, err := unpack.Tar(t.Context(), t.TempDir(), archive(t, []entry{e}), o); !errors.Is(err, unpack.ErrHostile) {
				t.Errorf("the device %d:%d: %v", e.major, e.minor, err)
			}
		}
	}
}

// Whatever bytes come, there is no panic, and nothing outside of the directory changes.
func TestRandomArchives(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "b", "a/b", "a/b/c", "b/a", ".wh.a", "a/.wh.b", "a/.wh..wh..opq", "l", "l/a", "./b", "/a/l/b"}
	links := []string{"a", "/b", "..", "../..", "a/b", "/", ".", "l", "../victim", "/a/l", "b/a"}
	kinds := []byte{tar.TypeReg, tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink, tar.TypeChar}
	for range 300 {
		top := t.TempDir()
		dir, victim := filepath.Join(top, "x", "layer"), filepath.Join(top, "victim")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(victim, []byte("precious"), 0o600)); err != nil {
			t.Fatal(err)
		}
		var entries []entry
		for range 1 + r.IntN(20) {
			entries = append(entries, entry{name: names[r.IntN(len(names))], kind: kinds[r.IntN(len(kinds))],
				link: links[r.IntN(len(links))]})
		}
		b := archive(t, entries).Bytes()
		if r.IntN(4) == 0 {
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
			b = b[:len(b)-r.IntN(len(b))]
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := unpack.Tar(ctx, dir, bytes.NewReader(b), options(t))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.EBADF) {
			t.Fatalf("%v: %+v", err, entries)
		}
		if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
			t.Fatalf("the file outside: %q, %v: %+v", b, err, entries)
		}
		for path, n := range map[string]int{top: 2, filepath.Join(top, "x"): 1} {
			if left, err := os.ReadDir(path); err != nil || len(left) != n {
				t.Fatalf("%s holds %v, %v: %+v", path, left, err, entries)
			}
		}
	}
}

// The directory of a layer itself may be closed, also to who unpacks it and is not root.
func TestClosedRoot(t *testing.T) {
	for _, mode := range []int64{0o444, 0o600, 0o111} {
		dir := filepath.Join(t.TempDir(), "layer")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := unpack.Tar(t.Context(), dir, archive(t, []entry{{name: "./", kind: tar.TypeDir, mode: mode}, {name: "f"}}),
			options(t))
		if err != nil {
			t.Errorf("%o: %v", mode, err)
		}
		if info, err := os.Lstat(dir); err != nil || int64(info.Mode().Perm()) != mode || info.ModTime().Unix() != 1e9 {
			t.Errorf("%o: %v, %v", mode, info, err)
		}
		if err := unpack.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// A link that has taken the place of a directory is not followed when the directories of a copy get their attributes.
func TestMergeFollowsNoLink(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "inside": "other"} {
		var layers []string
		for _, entries := range [][]entry{
			{{name: "d", kind: tar.TypeDir}, {name: "d/victim", kind: tar.TypeDir, mode: 0o777},
				{name: "other/victim", kind: tar.TypeDir, mode: 0o711}},
			{{name: "d", kind: tar.TypeSymlink, link: target}},
		} {
			dir := t.TempDir()
			if _, err := unpack.Tar(t.Context(), dir, archive(t, entries), options(t)); err != nil {
				t.Fatal(err)
			}
			layers = append(layers, dir)
		}
		to := filepath.Join(t.TempDir(), name)
		if err := unpack.Merge(t.Context(), to, layers, unpack.MergeOptions{Flavour: flavour(t)}); err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string]os.FileMode{victim: 0o700, filepath.Join(to, "other/victim"): 0o711} {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
				t.Errorf("a link that leads %s: %s has the mode %v, %v; want %v", name, dir, info.Mode(), err, want)
			}
		}
	}
}

// Marks of removal are looked for in directories of the layer only, and not behind a link that has taken the place of
// one.
func TestPruneFollowsNoLink(t *testing.T) {
	if flavour(t) == unpack.Plain {
		t.Skip("this file system cannot hold the marks of overlayfs")
	}
	outside := t.TempDir()
	mark := filepath.Join(outside, "d", "mark")
	if err := errors.Join(os.Mkdir(filepath.Dir(mark), 0o700), unix.Mknod(mark, unix.S_IFCHR, 0)); err != nil {
		t.Fatal(err)
	}
	for _, entries := range [][]entry{
		{{name: "l/d/" + unpack.Opaque}, {name: "l", kind: tar.TypeSymlink, link: outside}},
		{{name: "d/" + unpack.Opaque}, {name: "d", kind: tar.TypeSymlink, link: filepath.Dir(mark)}},
	} {
		if _, err := unpack.Tar(t.Context(), t.TempDir(), archive(t, entries), options(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(mark); err != nil {
			t.Errorf("%v have removed what is outside: %v", entries, err)
		}
	}
}
