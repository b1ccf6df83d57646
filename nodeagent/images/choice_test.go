package images_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
)

// imageFor is an image of a file with the platform in it.
func imageFor(t *testing.T, p v1.Platform, form types.MediaType) v1.Image {
	t.Helper()
	img := mutate.MediaType(imageOf(t, layer(t, compression.GZip, file("platform", p.String()))), form)
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Variant = p.OS, p.Architecture, p.Variant
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// Of an index, OCI's or Docker's, comes the image for this machine, or for the platform that was asked for;
// attestations are no images.
func TestIndex(t *testing.T) {
	platforms := []v1.Platform{{OS: "unknown", Architecture: "unknown"}, {OS: "windows", Architecture: "amd64"},
		{OS: "linux", Architecture: "s390x"}, {OS: "linux", Architecture: "arm", Variant: "v7"}, machine()}
	for form, of := range map[types.MediaType]types.MediaType{
		types.OCIImageIndex: types.OCIManifestSchema1, types.DockerManifestList: types.DockerManifestSchema2,
	} {
		t.Run(string(form), func(t *testing.T) {
			host := serve(t)
			index := mutate.IndexMediaType(empty.Index, form)
			for _, p := range platforms {
				index = mutate.AppendManifests(index, mutate.IndexAddendum{
					Add: imageFor(t, p, of), Descriptor: v1.Descriptor{Platform: &p},
				})
			}
			pushIndex(t, host+"/app:v1", index)
			digest, err := index.Digest()
			if err != nil {
				t.Fatal(err)
			}
			for asked, want := range map[string]string{"": machine().String(), "linux/s390x": "linux/s390x",
				"linux/arm/v7": "linux/arm/v7"} {
				s := open(t)
				img, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{Platform: asked})
				if err != nil {
					t.Errorf("%q: %v", asked, err)
					continue
				}
				root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: img.ID, Copy: true})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(root.Copied, "platform")); err != nil || string(got) != want {
					t.Errorf("%q: the image is for %q, %v; want %s", asked, got, err, want)
				}
				if pinned := host + "/app@" + digest.String(); len(img.Digests) != 1 || img.Digests[0] != pinned {
					t.Errorf("%q: it is pinned as %v; want %s", asked, img.Digests, pinned)
				}
			}
			s := open(t)
			_, err = s.Pull(t.Context(), host+"/app:v1", images.PullOptions{Platform: "linux/riscv64"})
			const none = "no image for the platform linux/riscv64"
			if !errors.Is(err, registry.ErrNotFound) || !strings.Contains(err.Error(), none) ||
				!strings.Contains(err.Error(), "linux/s390x") || strings.Contains(err.Error(), "unknown") {
				t.Errorf("a platform that is not there: %v", err)
			}
		})
	}
}

// pushIndex writes an index to a registry, with all that is in it.
func pushIndex(t *testing.T, ref string, index v1.ImageIndex) {
	t.Helper()
	to, err := name.ParseReference(ref)
	if err == nil {
		err = remote.WriteIndex(to, index)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An index can lead to the image by others, which need not say for which platform they are: from a registry as from a
// layout. The image is pinned by the first, and there are not many.
func TestIndexInAnIndex(t *testing.T) {
	host := serve(t)
	here, far := machine(), v1.Platform{OS: "linux", Architecture: "s390x"}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageFor(t, far, types.OCIManifestSchema1), Descriptor: v1.Descriptor{Platform: &far}},
		mutate.IndexAddendum{Add: imageFor(t, here, types.OCIManifestSchema1), Descriptor: v1.Descriptor{Platform: &here}})
	const most = 3
	for depth := 1; depth <= most+1; depth++ {
		ref := fmt.Sprintf("%s/app:v%d", host, depth)
		pushIndex(t, ref, index)
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		pulled, err := open(t).Pull(t.Context(), ref, images.PullOptions{})
		// index.json is one more.
		loaded, loadErr := open(t).LoadDir(t.Context(), layoutOf(t, mutate.AppendManifests(empty.Index,
			mutate.IndexAddendum{Add: index})))
		if depth > most {
			for _, err := range []error{err, loadErr} {
				if !errors.Is(err, images.ErrInvalid) || !strings.Contains(err.Error(), "indexes within indexes") {
					t.Errorf("%d indexes: %v", depth, err)
				}
			}
			break
		}
		if err != nil || pulled.Platform != here.String() || len(pulled.Digests) != 1 ||
			pulled.Digests[0] != host+"/app@"+digest.String() {
			t.Errorf("%d indexes: %+v, %v", depth, pulled, err)
		}
		if loadErr != nil || len(loaded) != 1 || loaded[0].Platform != here.String() {
			t.Errorf("%d indexes in a layout: %+v, %v", depth, loaded, loadErr)
		}
		index = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index})
	}
}

// Of an index with several variants of a processor comes the usual one, wherever it stands, unless another is asked
// for; one that is there alone comes all the same. The usual one need not say that it is.
func TestVariants(t *testing.T) {
	on := func(architecture, variant string) v1.Platform {
		return v1.Platform{OS: "linux", Architecture: architecture, Variant: variant}
	}
	for i, c := range []struct {
		has   []v1.Platform
		asked string
		want  v1.Platform
	}{
		{[]v1.Platform{on("amd64", "v3"), on("amd64", ""), on("amd64", "v2")}, "linux/amd64", on("amd64", "")},
		{[]v1.Platform{on("amd64", "v3"), on("amd64", "v1")}, "linux/amd64", on("amd64", "v1")},
		{[]v1.Platform{on("amd64", "v3"), on("amd64", "")}, "linux/amd64/v3", on("amd64", "v3")},
		{[]v1.Platform{on("amd64", "v2")}, "linux/amd64", on("amd64", "v2")},
		{[]v1.Platform{on("arm64", "v9"), on("arm64", "v8")}, "linux/arm64", on("arm64", "v8")},
		{[]v1.Platform{on("arm64", "")}, "linux/arm64/v8", on("arm64", "")},
		{[]v1.Platform{on("arm", "v6"), on("arm", "v7")}, "linux/arm", on("arm", "v7")},
		{[]v1.Platform{on("arm64", "v8")}, "linux/arm64/v9", v1.Platform{}},
	} {
		host := serve(t)
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, p := range c.has {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: imageFor(t, p, types.OCIManifestSchema1),
				Descriptor: v1.Descriptor{Platform: &p}})
		}
		pushIndex(t, host+"/app:v1", index)
		img, err := open(t).Pull(t.Context(), host+"/app:v1", images.PullOptions{Platform: c.asked})
		if c.want.OS == "" && !errors.Is(err, registry.ErrNotFound) || c.want.OS != "" &&
			(err != nil || img.Platform != c.want.String()) {
			t.Errorf("%d: %q of %v: %q, %v; want %q", i, c.asked, c.has, img.Platform, err, c.want.String())
		}
	}
}

// Credentials come from the user's docker configuration, as docker login writes it, and from helpers that it names.
func TestDockerConfiguration(t *testing.T) {
	const user, password = "tester", "s3cret-password"
	var guarded atomic.Bool
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, _ := r.BasicAuth(); guarded.Load() && (u != user || p != password) {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/app:v1", plainImage(t))
	guarded.Store(true)
	bin := t.TempDir()
	helper := fmt.Sprintf(`#!/bin/sh
read -r host
[ "$1 $host" = "get %s" ] || { echo credentials not found in native keychain; exit 1; }
echo '{"Username":"%s","Secret":"%s"}'
`, host, user, password)
	program := filepath.Join(bin, "docker-credential-test")
	if err := os.WriteFile(program, []byte(helper), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, c := range map[string]struct {
		config map[string]any
		ok     bool
	}{
		"nothing": {map[string]any{}, false},
		"login": {map[string]any{"auths": map[string]any{host: map[string]string{"username": user,
			"password": password}}}, true},
		"another registry": {map[string]any{"auths": map[string]any{"example.com": map[string]string{"username": user,
			"password": password}}}, false},
		"helper":                {map[string]any{"credHelpers": map[string]string{host: "test"}}, true},
		"helper of another":     {map[string]any{"credHelpers": map[string]string{"example.com": "test"}}, false},
		"store":                 {map[string]any{"credsStore": "test"}, true},
		"helper that is no one": {map[string]any{"credHelpers": map[string]string{host: "missing"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text, err := json.Marshal(c.config)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("DOCKER_CONFIG", dir)
			s := open(t, func(cfg *images.Config) { cfg.Registries.DockerConfig = true })
			_, err = s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
			if c.ok != (err == nil) || err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("%v", err)
			}
			// They are used only where the store is told so, which the agent's is not.
			if _, err := open(t).Pull(t.Context(), host+"/app:v1", images.PullOptions{}); !errors.Is(err,
				registry.ErrUnauthorized) {
				t.Errorf("without the docker configuration: %v", err)
			}
		})
	}
}

// A registry with a certificate of an authority that is not the system's is trusted where its file is named.
func TestAuthorityOfARegistry(t *testing.T) {
	plain := serve(t)
	push(t, plain+"/app:v1", plainImage(t))
	// Loopback addresses may be asked without TLS: this one answers nobody who does.
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := r.Clone(r.Context())
		req.RequestURI, req.URL.Scheme, req.URL.Host = "", "http", plain
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	host := strings.TrimPrefix(secure.URL, "https://")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: secure.Certificate().Raw,
	}), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, ok := range map[string]bool{"": false, ca: true} {
		s := open(t, func(c *images.Config) { c.Registries.Hosts = map[string]registry.Host{host: {CAFile: file}} })
		_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
		if ok != (err == nil) {
			t.Errorf("with the authority %q: %v", file, err)
		}
	}
}
