package images_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monoplane.dev/nodeagent/images"
)

// dockerArchive is what docker save writes of an image that it calls app:loaded.
func dockerArchive(t *testing.T, img v1.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := tarball.Write(name.MustParseReference("app:loaded"), img, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// uncompressed makes a layer that is not compressed, as docker save writes them.
func uncompressed(t *testing.T, entries ...entry) v1.Layer {
	t.Helper()
	return static.NewLayer(archive(t, entries...), types.OCIUncompressedLayer)
}

func blobName(t *testing.T, l v1.Layer) string {
	t.Helper()
	return "blobs/" + digestOf(t, l).Hex
}

// An image that comes a second time with another manifest, its layers compressed in another way, needs the blobs of
// the second only: those of the first go at once, and removing the image leaves nothing.
func TestAnotherManifestOfAnImage(t *testing.T) {
	host := serve(t)
	packed, plain := layer(t, compression.GZip, file("f", big(10_000))), uncompressed(t, file("f", big(10_000)))
	push(t, host+"/app:v1", imageOf(t, packed))
	archive := dockerArchive(t, imageOf(t, plain))
	pulls := func(s *images.Store) string { return pull(t, s, host+"/app:v1").ID }
	loads := func(s *images.Store) string {
		loaded, err := s.Load(t.Context(), bytes.NewReader(archive))
		if err != nil || len(loaded) != 1 {
			t.Fatalf("%v, %v", loaded, err)
		}
		return loaded[0].ID
	}
	for what, c := range map[string]struct {
		first, second func(*images.Store) string
		layer         v1.Layer
	}{
		"pulled, then loaded": {pulls, loads, plain},
		"loaded, then pulled": {loads, pulls, packed},
	} {
		s := open(t)
		first, second := c.first(s), c.second(s)
		if first != second {
			t.Fatalf("%s: the images %s and %s are not the same", what, first, second)
		}
		left := remains(t, s)
		const needed = 4 // manifest, configuration, layer, and the layer unpacked
		if len(left) != needed || !slices.Contains(left, blobName(t, c.layer)) {
			t.Errorf("%s: there are %v; want %d with %s", what, left, needed, blobName(t, c.layer))
		}
		if _, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: first, Copy: true}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if left := remains(t, s); len(left) > 0 {
			t.Errorf("%s: left behind: %v", what, left)
		}
	}
}

// What a running pull of another process needs stays when the only image that names it comes with another manifest.
func TestAnotherManifestLeavesPullsAlone(t *testing.T) {
	shared, slow := layer(t, compression.GZip, file("f", big(10_000))), layer(t, compression.GZip, file("g", big(10_000)))
	asked, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, digestOf(t, slow).String()) {
				once.Do(func() { close(asked) })
				<-released
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/app:v1", imageOf(t, shared))
	push(t, host+"/both:v1", imageOf(t, shared, slow))
	s := open(t)
	first := pull(t, s, host+"/app:v1")
	other := openIn(t, s.Dir())
	pulled := make(chan error, 1)
	go func() {
		_, err := other.Pull(t.Context(), host+"/both:v1", images.PullOptions{})
		pulled <- err
	}()
	select {
	case <-asked:
	case err := <-pulled:
		t.Fatal(err)
	}
	archive := dockerArchive(t, imageOf(t, uncompressed(t, file("f", big(10_000)))))
	if _, err := s.Load(t.Context(), bytes.NewReader(archive)); err != nil {
		t.Error(err)
	}
	left := remains(t, s)
	for _, want := range []string{blobName(t, shared), "partial/" + digestOf(t, slow).Hex} {
		if !slices.Contains(left, want) {
			t.Errorf("a running pull needs %s; there are %v", want, left)
		}
	}
	close(released)
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{first.ID, host + "/both:v1"} {
		if err := s.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if left := remains(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// An image that comes with another manifest while it is saved is saved whole, as it was.
func TestAnotherManifestWhileItIsSaved(t *testing.T) {
	host := serve(t)
	packed, plain := layer(t, compression.GZip, file("f", big(10_000))), uncompressed(t, file("f", big(10_000)))
	push(t, host+"/app:v1", imageOf(t, packed))
	s := open(t)
	first := pull(t, s, host+"/app:v1")
	var archive bytes.Buffer
	var once sync.Once
	err := s.Save(t.Context(), writerFunc(func(b []byte) (int, error) {
		once.Do(func() {
			push(t, host+"/app:v1", imageOf(t, plain))
			if second := pull(t, s, host+"/app:v1"); second.ID != first.ID {
				t.Errorf("the images %s and %s are not the same", first.ID, second.ID)
			}
		})
		return archive.Write(b)
	}), host+"/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	if left := remains(t, s); !slices.Contains(left, blobName(t, plain)) {
		t.Errorf("the other manifest has not come: there are %v", left)
	}
	other := open(t)
	loaded, err := other.Load(t.Context(), &archive)
	if err != nil || len(loaded) != 1 || loaded[0].ID != first.ID {
		t.Fatalf("what was saved is %v, %v", loaded, err)
	}
	if left := remains(t, other); !slices.Contains(left, blobName(t, packed)) {
		t.Errorf("what was saved is not what there was: %v", left)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
