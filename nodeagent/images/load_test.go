package images_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/klauspost/compress/zstd"

	"monoplane.dev/nodeagent/images"
)

// layoutOf writes an OCI layout, as other programs do, into a new directory.
func layoutOf(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	return dir
}

// indexOf makes an index of an image.
func indexOf(img v1.Image, d v1.Descriptor) v1.ImageIndex {
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: d})
}

// pack makes a tar of a directory.
func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// removeBlob takes a blob out of a layout.
func removeBlob(t *testing.T, dir string, digest v1.Hash) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "blobs", digest.Algorithm, digest.Hex)); err != nil {
		t.Fatal(err)
	}
}

func digestOf(t *testing.T, of interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// dockerIndex is what docker's image store of containerd saves: an index that leads to an index with an image for
// this machine, one for another, of which nothing was pulled, and attestations of both, the first's with and the
// second's without its blobs.
func dockerIndex(t *testing.T, img v1.Image) string {
	t.Helper()
	other := v1.Platform{OS: "linux", Architecture: "s390x"}
	far := imageFor(t, other, types.OCIManifestSchema1)
	inner := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: far, Descriptor: v1.Descriptor{Platform: &other}})
	here := machine()
	inner = mutate.AppendManifests(inner, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &here}})
	unknown := v1.Platform{OS: "unknown", Architecture: "unknown"}
	var attestations []v1.Image
	for i, of := range []v1.Image{img, far} {
		attestation := mutate.MediaType(imageOf(t, layer(t, compression.None,
			file("attestation", strings.Repeat("a", i+1)))), types.OCIManifestSchema1)
		attestations = append(attestations, attestation)
		inner = mutate.AppendManifests(inner, mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
			Platform: &unknown, Annotations: map[string]string{
				"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digestOf(t, of).String(),
			},
		}})
	}
	dir := layoutOf(t, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: inner, Descriptor: v1.Descriptor{
		Annotations: map[string]string{"io.containerd.image.name": "docker.io/library/app:v1",
			"org.opencontainers.image.ref.name": "v1"},
	}}))
	for _, img := range []v1.Image{far, attestations[1]} {
		removeImage(t, dir, img)
	}
	return dir
}

// removeImage takes an image out of a layout, with all that its manifest names.
func removeImage(t *testing.T, dir string, img v1.Image) {
	t.Helper()
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	removeBlob(t, dir, digestOf(t, img))
	removeBlob(t, dir, m.Config.Digest)
	for _, l := range m.Layers {
		removeBlob(t, dir, l.Digest)
	}
}

// What other programs write is loaded, from directories and archives, compressed or not: with the names that are in
// it, and of several platforms the image for this machine.
func TestLoadLayouts(t *testing.T) {
	here, other := machine(), v1.Platform{OS: "linux", Architecture: "s390x"}
	unknown := v1.Platform{OS: "unknown", Architecture: "unknown"}
	img := imageOf(t, layer(t, compression.GZip, file("f", "lower")), layer(t, compression.ZStd, file("g", "upper")))
	far := imageFor(t, other, types.OCIManifestSchema1)
	named := func(name string) v1.Descriptor {
		return v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": name}}
	}
	on := func(p v1.Platform) v1.Descriptor { return v1.Descriptor{Platform: &p} }
	many := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: far, Descriptor: on(other)}, mutate.IndexAddendum{Add: img, Descriptor: on(here)},
		mutate.IndexAddendum{Add: imageOf(t, layer(t, compression.None, file("a", "a"))), Descriptor: on(unknown)})
	gz := imageOf(t, layer(t, compression.GZip, file("f", "lower")), layer(t, compression.GZip, file("g", "upper")))
	var docker bytes.Buffer
	if err := tarball.Write(name.MustParseReference("app:v1"), gz, &docker); err != nil {
		t.Fatal(err)
	}
	plain := layoutOf(t, indexOf(img, named("registry.example/app:v1")))
	for what, c := range map[string]struct {
		dir     string
		archive []byte
		tags    []string
		foreign bool
	}{
		"full name":        {dir: plain, tags: []string{"registry.example/app:v1"}},
		"bare tag":         {dir: layoutOf(t, indexOf(img, named("v1")))},
		"no name":          {dir: layoutOf(t, indexOf(img, v1.Descriptor{}))},
		"several":          {dir: layoutOf(t, many)},
		"docker's index":   {dir: dockerIndex(t, img), tags: []string{"docker.io/library/app:v1"}},
		"another platform": {dir: layoutOf(t, indexOf(far, on(other))), foreign: true},
		"docker's, gzip":   {archive: docker.Bytes(), tags: []string{"docker.io/library/app:v1"}},
	} {
		t.Run(what, func(t *testing.T) {
			loads := map[string]func(*images.Store) ([]images.Image, error){}
			if c.dir != "" {
				c.archive = pack(t, c.dir)
				loads["directory"] = func(s *images.Store) ([]images.Image, error) { return s.LoadDir(t.Context(), c.dir) }
			}
			for form, b := range map[string][]byte{
				"tar": c.archive, "tar.gz": gzipped(t, c.archive), "tar.zst": zstandard(t, c.archive),
			} {
				loads[form] = func(s *images.Store) ([]images.Image, error) { return s.Load(t.Context(), bytes.NewReader(b)) }
			}
			for form, load := range loads {
				s := open(t)
				loaded, err := load(s)
				if err != nil || len(loaded) != 1 || !slices.Equal(loaded[0].Tags, c.tags) || loaded[0].RunsHere() == c.foreign {
					t.Errorf("%s: %+v, %v; want one with the names %v", form, loaded, err, c.tags)
					continue
				}
				want := map[string]string{"f": "lower", "g": "upper"}
				if c.foreign {
					want = map[string]string{"platform": other.String()}
				}
				root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: loaded[0].ID, Copy: true})
				if err != nil {
					t.Fatal(err)
				}
				for f, text := range want {
					if got, err := os.ReadFile(filepath.Join(root.Copied, f)); err != nil || string(got) != text {
						t.Errorf("%s: %s: %q, %v", form, f, got, err)
					}
				}
			}
		})
	}
}

// What is no image keeps those beside it from nothing, and is told; where nothing else is, the error says what is.
func TestLoadBesideArtifacts(t *testing.T) {
	img := imageOf(t, layer(t, compression.GZip, file("f", "lower")))
	chart := mutate.ConfigMediaType(imageOf(t, layer(t, compression.GZip, file("c", "chart"))),
		"application/vnd.cncf.helm.config.v1+json")
	payload, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("{}")), nil
	}, tarball.WithMediaType("application/vnd.dev.cosign.simplesigning.v1+json"))
	if err != nil {
		t.Fatal(err)
	}
	signature := imageOf(t, payload)
	other := v1.Platform{OS: "linux", Architecture: "s390x"}
	var beside []mutate.IndexAddendum
	for i, d := range []v1.Descriptor{
		{ArtifactType: "application/spdx+json"},
		{Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"}},
	} {
		beside = append(beside, mutate.IndexAddendum{
			Add: imageOf(t, layer(t, compression.None, file("a", strings.Repeat("a", i+1)))), Descriptor: d})
	}
	beside = append(beside, mutate.IndexAddendum{Add: chart}, mutate.IndexAddendum{Add: signature},
		mutate.IndexAddendum{Add: indexOf(imageFor(t, other, types.OCIManifestSchema1), v1.Descriptor{Platform: &other})})
	with := func(index v1.ImageIndex) string { // a blob of an unknown kind, which need not be there
		dir := layoutOf(t, index)
		path := filepath.Join(dir, "index.json")
		var x v1.IndexManifest
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &x)
		}
		if err != nil {
			t.Fatal(err)
		}
		x.Manifests = append([]v1.Descriptor{{MediaType: "application/vnd.example+json", Size: 1,
			Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}}, x.Manifests...)
		if text, err = json.Marshal(x); err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	only := with(mutate.AppendManifests(empty.Index, beside...))
	all := with(mutate.AppendManifests(empty.Index, append(beside, mutate.IndexAddendum{Add: img,
		Descriptor: v1.Descriptor{Annotations: map[string]string{"io.containerd.image.name": "docker.io/library/app:v1"}},
	})...))
	want := []string{"of the media type application/vnd.example+json", "an artifact of the type application/spdx+json",
		"of the kind attestation-manifest", "an artifact of the type application/vnd.cncf.helm.config.v1+json",
		"an artifact with a layer of the media type application/vnd.dev.cosign.simplesigning.v1+json",
		"there are: linux/s390x"}
	var skipped []string
	loaded, err := open(t).LoadDir(t.Context(), all, images.TellSkipped(func(what string) {
		skipped = append(skipped, what)
	}))
	if err != nil || len(loaded) != 1 || !slices.Equal(loaded[0].Tags, []string{"docker.io/library/app:v1"}) {
		t.Errorf("%+v, %v; want one image", loaded, err)
	}
	s := open(t)
	_, err = s.LoadDir(t.Context(), only)
	if !errors.Is(err, images.ErrInvalid) || len(remains(t, s)) > 0 || len(skipped) != len(want) {
		t.Fatalf("nothing but others: %v; left behind: %v; skipped: %q", err, remains(t, s), skipped)
	}
	for i, what := range want {
		if !strings.Contains(skipped[i], what) || !strings.Contains(err.Error(), what) {
			t.Errorf("%q, %v; want %q in both", skipped[i], err, what)
		}
	}
	host := serve(t)
	pushIndex(t, host+"/app:v1", mutate.AppendManifests(empty.Index, append(beside[:2:2],
		mutate.IndexAddendum{Add: img})...))
	pull(t, open(t), host+"/app:v1")
}

// A load says how far it is, from the first byte of the archive on, and which names the archive gives an image that
// has had others before.
func TestLoadTellsOfTheArchive(t *testing.T) {
	var archive bytes.Buffer
	gz := imageOf(t, layer(t, compression.GZip, file("f", "lower")), layer(t, compression.GZip, file("g", "upper")))
	if err := tarball.Write(name.MustParseReference("app:v1"), gz, &archive); err != nil {
		t.Fatal(err)
	}
	s, size := open(t), int64(archive.Len())
	var told []images.Progress
	for range 2 {
		told = nil
		loaded, err := s.Load(t.Context(), bytes.NewReader(archive.Bytes()), images.OfSize(size),
			images.TellProgress(func(at images.Progress) { told = append(told, at) }))
		if err != nil || len(loaded) != 1 || !slices.Equal(loaded[0].Tags, []string{"docker.io/library/app:v1"}) {
			t.Fatalf("%+v, %v", loaded, err)
		}
		if err := s.Tag(t.Context(), loaded[0].ID, "other:v1"); err != nil {
			t.Fatal(err)
		}
	}
	complete := map[string]bool{}
	for _, at := range told {
		complete[at.Digest] = at.Phase == images.Complete && at.Done == at.Total
		if at.Phase == images.Downloading || at.Digest == images.Archive && at.Total != size {
			t.Errorf("%+v", at)
		}
	}
	if first := told[0]; first.Digest != images.Archive || first.Phase != images.Reading || len(complete) != 3 ||
		slices.Contains(slices.Collect(maps.Values(complete)), false) {
		t.Errorf("%+v", told)
	}
}

// A layout without a blob of its image, and one that has no image for this machine in its index, are refused, and
// nothing stays.
func TestLoadIncompleteLayouts(t *testing.T) {
	img := imageOf(t, layer(t, compression.GZip, file("f", "lower")))
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	noLayer, noConfig := layoutOf(t, indexOf(img, v1.Descriptor{})), layoutOf(t, indexOf(img, v1.Descriptor{}))
	noManifest := dockerIndex(t, img)
	removeBlob(t, noLayer, m.Layers[0].Digest)
	removeBlob(t, noConfig, m.Config.Digest)
	removeBlob(t, noManifest, digestOf(t, img))
	other := v1.Platform{OS: "linux", Architecture: "s390x"}
	far := imageFor(t, other, types.OCIManifestSchema1)
	elsewhere := layoutOf(t, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: indexOf(far, v1.Descriptor{Platform: &other})}))
	for dir, want := range map[string]string{noLayer: "is missing", noConfig: "is missing", noManifest: "is missing",
		elsewhere: "there are: linux/s390x"} {
		s := open(t)
		if _, err := s.LoadDir(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q in it", err, want)
		}
		if left := remains(t, s); len(left) > 0 {
			t.Errorf("%s: left behind: %v", want, left)
		}
	}
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// What is saved is whole and right for readers that are not ours: of OCI layouts, and of archives of docker save.
func TestSavedIsReadByOthers(t *testing.T) {
	host, s := serve(t), open(t)
	img := imageOf(t, layer(t, compression.GZip, file("f", "lower")), layer(t, compression.GZip, file("g", "upper")))
	push(t, host+"/app:v1", img)
	pulled := pull(t, s, host+"/app:v1")
	if err := s.Tag(t.Context(), pulled.ID, "app:v2"); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := s.Save(t.Context(), &saved, pulled.ID); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	extract(t, dir, saved.Bytes())
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range m.Manifests {
		names = append(names, d.Annotations["io.containerd.image.name"])
		if d.Digest != digestOf(t, img) {
			t.Errorf("the layout has the image %s, not %s", d.Digest, digestOf(t, img))
		}
	}
	want := []string{host + "/app:v1", "docker.io/library/app:v2"}
	if !slices.Equal(names, want) {
		t.Errorf("the layout has the names %v, not %v", names, want)
	}

	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(saved.Bytes())), nil }
	for _, ref := range want {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tarball.Image(opener, &tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(got); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
		if id, err := got.ConfigName(); err != nil || id.String() != pulled.ID {
			t.Errorf("%s: the archive has the image %v, %v; not %s", ref, id, err, pulled.ID)
		}
	}
	var docker []struct{ RepoTags []string }
	text, err := fs.ReadFile(os.DirFS(dir), "manifest.json")
	if err == nil {
		err = json.Unmarshal(text, &docker)
	}
	if err != nil || len(docker) != 1 || !slices.Equal(docker[0].RepoTags, want) {
		t.Errorf("the archive has the images %v, %v; want one with the names %v", docker, err, want)
	}
}

// extract writes the files of a tar into a directory.
func extract(t *testing.T, dir string, b []byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
