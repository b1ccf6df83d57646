package images_test

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
)

// made is when the files of the tests' images were changed last.
var made = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// file is an entry of a layer: a regular file unless the header says something else.
func file(name, content string, more ...func(*tar.Header)) entry {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: made,
		Uid: os.Geteuid(), Gid: os.Getegid(), Format: tar.FormatPAX}
	for _, m := range more {
		m(h)
	}
	return entry{h, content}
}

func dir(name string, mode int64) entry {
	return file(name, "", func(h *tar.Header) { h.Typeflag, h.Mode = tar.TypeDir, mode })
}

func symlink(name, target string) entry {
	return file(name, "", func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeSymlink, target })
}

func hardlink(name, target string) entry {
	return file(name, "", func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeLink, target })
}

type entry struct {
	*tar.Header
	content string
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func layer(t testing.TB, c compression.Compression, entries ...entry) v1.Layer {
	t.Helper()
	return layerOf(t, c, archive(t, entries...))
}

func layerOf(t testing.TB, c compression.Compression, b []byte) v1.Layer {
	t.Helper()
	opts := []tarball.LayerOption{tarball.WithCompression(c), tarball.WithMediaType(types.OCILayer)}
	if c == compression.ZStd {
		opts = append(opts, tarball.WithMediaType(types.OCILayerZStd))
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
		opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// imageOf makes an image of layers, the lowest first.
func imageOf(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", machine().Architecture, v1.Time{Time: made}
	c.Config = v1.Config{
		User: "1000:100", Env: []string{"A=b"}, Entrypoint: []string{"/bin/a"}, Cmd: []string{"c"}, WorkingDir: "/w",
		StopSignal: "SIGQUIT", Labels: map[string]string{"l": "v"}, Volumes: map[string]struct{}{"/data": {}},
	}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// serve starts an in-process registry on a loopback address, behind the handlers, and returns its host.
func serve(t testing.TB, around ...func(http.Handler) http.Handler) string {
	t.Helper()
	h := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	for _, a := range around {
		h = a(h)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func push(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
}

// open opens a store in a new directory.
func open(t testing.TB, change ...func(*images.Config)) *images.Store {
	t.Helper()
	return openIn(t, filepath.Join(t.TempDir(), "images"), change...)
}

func openIn(t testing.TB, dir string, change ...func(*images.Config)) *images.Store {
	t.Helper()
	cfg := images.Config{Dir: dir, Registries: registry.Config{Attempts: 2}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := images.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func pull(t testing.TB, s *images.Store, ref string) images.Image {
	t.Helper()
	img, err := s.Pull(t.Context(), ref, images.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// remains lists what a store holds beside its fixed files and this process's folder.
func remains(t testing.TB, s *images.Store) []string {
	t.Helper()
	var out []string
	for _, folder := range []string{"blobs", "layers", "tops", "partial", "roots"} {
		entries, err := os.ReadDir(filepath.Join(s.Dir(), folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, folder+"/"+e.Name())
		}
	}
	entries, err := filepath.Glob(filepath.Join(s.Dir(), "tmp", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Base(e) != "lock" {
			out = append(out, e)
		}
	}
	return out
}
