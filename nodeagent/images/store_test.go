package images_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
)

func machine() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

func plainImage(t testing.TB) v1.Image {
	t.Helper()
	return imageOf(t,
		layer(t, compression.GZip, dir("etc", 0o755), file("etc/a", "lower"), file("etc/gone", "x")),
		layer(t, compression.ZStd, file("etc/a", "upper"), file("etc/.wh.gone", "")),
		layer(t, compression.None, file("top", strings.Repeat("t", 100_000))))
}

// An image comes with all that CRI and containers ask for, once; names lead to it, and removing it leaves nothing.
func TestPullAndRemove(t *testing.T) {
	host, s := serve(t), open(t)
	ref := host + "/group/app:v1"
	img := plainImage(t)
	push(t, ref, img)
	got := pull(t, s, ref)
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	want := images.Image{
		ID: id.String(), Tags: []string{ref}, Digests: []string{host + "/group/app@" + digest.String()},
		Platform: machine().String(), Created: made,
		Config: images.RunConfig{
			User: "1000:100", Env: []string{"A=b"}, Entrypoint: []string{"/bin/a"}, Cmd: []string{"c"}, WorkingDir: "/w",
			StopSignal: "SIGQUIT", Labels: map[string]string{"l": "v"}, Volumes: []string{"/data"},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(images.Image{}, "Size", "Came", "Layers")); diff != "" {
		t.Error(diff)
	}
	again := pull(t, s, ref)
	for _, name := range []string{ref, got.Digests[0], got.ID, got.ID[:15], strings.TrimPrefix(got.ID, "sha256:")} {
		found, err := s.Image(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(again, found); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if all, err := s.List(); err != nil || len(all) != 1 {
		t.Errorf("%d images, %v; want 1", len(all), err)
	}
	if _, err := s.Image(host + "/group/other:v1"); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("an image that is not there: %v", err)
	}
	if err := s.Tag(t.Context(), ref, host+"/group/app:v2"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Image(host + "/group/app:v2"); err != nil {
		t.Errorf("the image went with its first tag: %v", err)
	}
	if err := s.Remove(t.Context(), got.ID[:19]); err != nil {
		t.Fatal(err)
	}
	if left := remains(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Progress is told of what is done: of layers that are there already only that they are complete.
func TestProgressOfLayersThatAreThere(t *testing.T) {
	host, s := serve(t), open(t)
	here, further := layer(t, compression.GZip, file("f", "here")), layer(t, compression.GZip, file("g", "further"))
	push(t, host+"/app:v1", imageOf(t, here))
	push(t, host+"/app:v2", imageOf(t, here, further))
	pull(t, s, host+"/app:v1")
	phases := make(map[string][]images.Phase)
	_, err := s.Pull(t.Context(), host+"/app:v2", images.PullOptions{Progress: func(at images.Progress) {
		if told := phases[at.Digest]; !slices.Contains(told, at.Phase) { // a download is told of as often as some has come
			phases[at.Digest] = append(told, at.Phase)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]images.Phase{
		digestOf(t, here).String():    {images.Complete},
		digestOf(t, further).String(): {images.Downloading, images.Unpacking, images.Complete},
	}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Error(diff)
	}
}

// A tag that has moved is the new image's.
func TestTagMoves(t *testing.T) {
	host, s := serve(t), open(t)
	ref := host + "/app:latest"
	push(t, ref, plainImage(t))
	old := pull(t, s, ref)
	push(t, ref, imageOf(t, layer(t, compression.GZip, file("other", "x"))))
	pull(t, s, host+"/app") // the tag is latest without
	if got, err := s.Image(old.ID); err != nil || len(got.Tags) > 0 || len(got.Digests) != 1 {
		t.Errorf("the old image: %+v, %v; want no tags, and its digest", got, err)
	}
	if got, err := s.Image(ref); err != nil || got.ID == old.ID {
		t.Errorf("the tag leads to %s, %v", got.ID, err)
	}
}

// A container's root keeps its image; what was made is found again, and released.
func TestRoots(t *testing.T) {
	host, s := serve(t), open(t)
	ref := host + "/app:v1"
	push(t, ref, plainImage(t))
	img := pull(t, s, ref)
	root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c1", Image: ref, Volumes: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(root.Volumes) != 2 || root.Volumes[0] == root.Volumes[1] {
		t.Fatalf("it has the volumes %q, not two", root.Volumes)
	}
	for _, dir := range root.Volumes {
		if info, err := os.Lstat(dir); err != nil || info.Mode() != os.ModeDir|0o755 {
			t.Errorf("%v, %v", info, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("written"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(root.Lower) != 4 || root.Image != img.ID || root.Upper == "" || root.Work == "" {
		t.Errorf("%+v", root)
	}
	// The first is the image's own, with the directory that only its lowest layer has an entry for.
	for i, want := range []string{"etc", "top", "etc/a", "etc/gone"} {
		if _, err := os.Lstat(filepath.Join(root.Lower[i], want)); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root.Upper, "f"), []byte("written"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := s.Mountable(t.Context(), images.RootRequest{ID: "c1", Image: img.ID})
	if diff := cmp.Diff(root, again); err != nil || diff != "" {
		t.Errorf("asked again: %v, %s", err, diff)
	}
	if u, err := s.RootUsage(t.Context(), "c1"); err != nil || u.Inodes != 6 || u.Bytes == 0 {
		t.Errorf("usage of a root and two volumes with a file each: %+v, %v", u, err)
	}
	if err := s.Remove(t.Context(), ref); !errors.Is(err, images.ErrInUse) {
		t.Errorf("an image in use was removed: %v", err)
	}
	_, err = s.Mountable(t.Context(), images.RootRequest{ID: "../c1", Image: ref})
	if !errors.Is(err, images.ErrInvalid) {
		t.Errorf("an id with a path: %v", err)
	}
	if all, err := s.Roots(); err != nil || len(all) != 1 || all[0].ID != "c1" {
		t.Errorf("%+v, %v", all, err)
	}
	for range 2 {
		if err := s.Release(t.Context(), "c1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Root("c1"); !errors.Is(err, images.ErrNotFound) {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if left := remains(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Whatever a power failure leaves of its files, a store can be opened, and a container's root be made or removed; only
// of its index, which is on the disk before it counts, it asks to be rid.
func TestBrokenFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := openIn(t, dir)
	loaded, err := s.LoadDir(t.Context(), layoutOf(t, indexOf(plainImage(t), v1.Descriptor{})))
	if err = errors.Join(err, s.Close()); err != nil { // it has reached the disk
		t.Fatal(err)
	}
	s = openIn(t, dir)
	broken := func(name string, try func(size int)) {
		t.Helper()
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for size := range len(whole) {
			if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			try(size)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opens := func(size int) {
		again, err := images.Open(images.Config{Dir: dir})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	makes := func() {
		t.Helper()
		if root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: loaded[0].ID}); err != nil ||
			root.Made.IsZero() {
			t.Fatalf("%+v, %v", root, err)
		}
	}
	makes()
	broken("roots/c/root.json", func(size int) {
		if roots, err := s.Roots(); err != nil || len(roots) != 1 || roots[0].ID != "c" {
			t.Errorf("%d bytes: roots %+v, %v", size, roots, err)
		}
		if size%2 == 0 {
			makes()
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		makes()
	})
	broken("format", opens)
	broken("boot", opens)
	broken("index.json", func(size int) {
		if _, err := s.List(); err == nil ||
			!strings.Contains(err.Error(), "without the file, images are pulled and loaded anew") {
			t.Errorf("%d bytes: %v", size, err)
		}
	})
}

// The images that a container mounts are held with its own: their layers, of which overlayfs needs two, or copies.
func TestMountedImages(t *testing.T) {
	host, s := serve(t), open(t)
	app, flat, files := host+"/app:v1", host+"/flat:v1", host+"/files:v1"
	push(t, app, plainImage(t))
	push(t, flat, imageOf(t, layer(t, compression.GZip, file("flat", "one layer"))))
	push(t, files, imageOf(t, layer(t, compression.GZip, file("a", "below")),
		layer(t, compression.GZip, file("b", "above"))))
	ids := map[string]string{}
	for _, ref := range []string{app, flat, files} {
		ids[ref] = pull(t, s, ref).ID
	}
	req := images.RootRequest{ID: "c1", Image: app, Mounts: []string{flat, files, flat}}
	root, err := s.Mountable(t.Context(), req)
	if err != nil || len(root.Mounts) != 3 {
		t.Fatalf("%+v, %v", root, err)
	}
	for i, want := range []struct{ ref, top string }{{flat, "flat"}, {files, "b"}, {flat, "flat"}} {
		m := root.Mounts[i]
		if m.Image != ids[want.ref] || m.Copied != "" || len(m.Lower) != 2 {
			t.Errorf("mount %d: %+v", i, m)
		}
		if _, err := os.Lstat(filepath.Join(m.Lower[0], want.top)); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(root.Mounts[0].Lower[1]); err != nil || len(entries) > 0 {
		t.Errorf("the second layer of an image with one has %v, %v", entries, err)
	}
	again, err := s.Mountable(t.Context(), req)
	if diff := cmp.Diff(root, again); err != nil || diff != "" {
		t.Errorf("asked again: %v, %s", err, diff)
	}
	if _, err := s.Mountable(t.Context(), images.RootRequest{ID: "c1", Image: app}); err == nil {
		t.Error("it has a root with images, and one without")
	}
	req = images.RootRequest{ID: "c2", Image: app, Mounts: []string{host + "/none:v1"}}
	if _, err := s.Mountable(t.Context(), req); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("an image that there is not: %v", err)
	}
	copied, err := s.Mountable(t.Context(), images.RootRequest{ID: "c3", Image: app, Mounts: []string{files}, Copy: true})
	if err != nil || len(copied.Mounts) != 1 || len(copied.Mounts[0].Lower) > 0 {
		t.Fatalf("%+v, %v", copied, err)
	}
	for name, want := range map[string]string{"a": "below", "b": "above"} {
		if b, err := os.ReadFile(filepath.Join(copied.Mounts[0].Copied, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, ref := range []string{app, flat, files} {
		if err := s.Remove(t.Context(), ref); !errors.Is(err, images.ErrInUse) {
			t.Errorf("%s in use was removed: %v", ref, err)
		}
	}
	for _, id := range []string{"c1", "c3"} {
		if err := s.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, ref := range []string{app, flat, files} {
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	if left := remains(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A copy holds what overlayfs would show.
func TestCopiedRoot(t *testing.T) {
	host, s := serve(t), open(t)
	ref := host + "/app:v1"
	push(t, ref, plainImage(t))
	pull(t, s, ref)
	root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c1", Image: ref, Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root.Copied, "etc/a")); err != nil || string(b) != "upper" {
		t.Errorf("etc/a: %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(root.Copied, "etc/gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
	if info, err := os.Lstat(filepath.Join(root.Copied, "top")); err != nil || !info.ModTime().Equal(made) {
		t.Errorf("top: %v, %v", info, err)
	}
}

// Where overlayfs cannot be mounted each root is a copy, which is said once.
func TestRootsWithoutOverlay(t *testing.T) {
	host := serve(t)
	ref := host + "/app:v1"
	push(t, host+"/app:v1", plainImage(t))
	for _, fails := range []error{nil, errors.New("it is one itself")} {
		var said bytes.Buffer
		tried := 0
		s := open(t, func(c *images.Config) {
			c.Log = slog.New(slog.NewTextHandler(&said, nil))
			c.Overlay = func(dir string, _ bool) error {
				tried++
				return errors.Join(fails, os.Mkdir(filepath.Join(dir, "work"), 0o700))
			}
		})
		pull(t, s, ref)
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				root, err := s.Mountable(t.Context(), images.RootRequest{ID: fmt.Sprint("c", i), Image: ref})
				if err != nil || (root.Copied != "") != (fails != nil) || (root.Upper != "") == (fails != nil) {
					t.Errorf("overlays fail: %v; %+v, %v", fails, root, err)
				}
			})
		}
		all.Wait()
		if times := strings.Count(said.String(), "it is one itself"); tried != 1 || (times == 1) != (fails != nil) {
			t.Errorf("overlays fail: %v; tried %d times, said: %s", fails, tried, &said)
		}
		for i := range 5 {
			if err := s.Release(t.Context(), fmt.Sprint("c", i)); err != nil {
				t.Error(err)
			}
		}
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Error(err)
		}
		if left := remains(t, s); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// What is saved can be loaded, with its names, by us and by others.
func TestSaveAndLoad(t *testing.T) {
	host, s := serve(t), open(t)
	push(t, host+"/a:v1", plainImage(t))
	push(t, host+"/b:v1", imageOf(t, layer(t, compression.GZip, file("b", "b"))))
	a, b := pull(t, s, host+"/a:v1"), pull(t, s, host+"/b:v1")
	if err := s.Tag(t.Context(), a.ID, "a:v2"); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := s.Save(t.Context(), &saved, host+"/b:v1", a.ID); err != nil {
		t.Fatal(err)
	}
	other := open(t)
	loaded, err := other.Load(t.Context(), bytes.NewReader(saved.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != 2 || loaded[0].ID != b.ID || loaded[1].ID != a.ID ||
		!slices.Equal(loaded[1].Tags, []string{host + "/a:v1", "docker.io/library/a:v2"}) {
		t.Errorf("%+v", loaded)
	}
	if _, err := other.Mountable(t.Context(), images.RootRequest{ID: "c", Image: "a:v2"}); err != nil {
		t.Error(err)
	}
	if left, err := json.Marshal(remains(t, other)); err != nil || strings.Contains(string(left), "tmp") {
		t.Errorf("left behind: %s, %v", left, err)
	}
}

// Whoever cannot be understood is told so.
func TestInvalidReferences(t *testing.T) {
	s := open(t)
	for _, ref := range []string{"", "UPPER/case", "https://example.com/a", "a b", "a@sha256:12", "a:b:c:d"} {
		if _, err := s.Pull(t.Context(), ref, images.PullOptions{}); !errors.Is(err, images.ErrInvalid) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	host := serve(t)
	push(t, host+"/app:v1", plainImage(t))
	_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{Platform: "linux/s390x"})
	if !errors.Is(err, registry.ErrNotFound) || !strings.Contains(err.Error(), "not linux/s390x") {
		t.Errorf("an image for another platform: %v", err)
	}
	if left := remains(t, s); len(left) != 2 { // manifest and configuration, for an hour
		t.Errorf("left behind: %v", left)
	}
}

// What runs under a name is told by the digest that the name's repository has for it.
func TestReference(t *testing.T) {
	const id = "sha256:0"
	a, b := "a.example/app@sha256:1", "b.example:5000/app@sha256:2"
	for _, c := range []struct {
		digests    []string
		name, want string
	}{
		{nil, "a.example/app:v1", id},
		{[]string{a, b}, "a.example/app:v1", a},
		{[]string{a, b}, "b.example:5000/app", b},
		{[]string{a, b}, "b.example:5000/app@sha256:" + strings.Repeat("2", 64), b},
		{[]string{a, b}, "c.example/app", a},
		{[]string{a, b}, id, a},
	} {
		if got := (&images.Image{ID: id, Digests: c.digests}).Reference(c.name); got != c.want {
			t.Errorf("%s with %v: %s, want %s", c.name, c.digests, got, c.want)
		}
	}
}
