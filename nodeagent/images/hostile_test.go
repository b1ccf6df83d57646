package images_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
)

// on changes what a registry answers to requests whose path contains a part, and counts them.
func on(part string, n *atomic.Int64, do http.HandlerFunc) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, part) {
				next.ServeHTTP(w, r)
				return
			}
			n.Add(1)
			recorded := httptest.NewRecorder()
			next.ServeHTTP(recorded, r)
			do(edit{w, recorded}, r)
		})
	}
}

// edit is an answer that is about to be changed.
type edit struct {
	http.ResponseWriter
	honest *httptest.ResponseRecorder
}

func honest(w http.ResponseWriter) []byte {
	e, _ := w.(edit)
	return e.honest.Body.Bytes()
}

// big is content that does not become small.
func big(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", uint64(i)*0x9e3779b97f4a7c15)
	}
	return b.String()[:n]
}

// A registry that lies, stalls or is out of order ends a pull with the reason; nothing that is wrong stays, and what
// was tried was bounded.
func TestHostileRegistry(t *testing.T) {
	const attempts = 2
	for name, c := range map[string]struct {
		part string
		do   http.HandlerFunc
		want error
		said string
		// most is how often the part may be asked for.
		most int64
		// kept is whether something may be kept for the next try.
		kept bool
	}{
		"another manifest than was pinned": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(append(honest(w), '\n'))
		}, registry.ErrWrong, "the manifest's digest is", 1, false},
		"another blob": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			b := append([]byte(nil), honest(w)...)
			b[len(b)/2] ^= 1
			_, _ = w.Write(b)
		}, registry.ErrWrong, "has the digest", 1, false},
		"more than it says": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			for range 1000 {
				if _, err := w.Write(honest(w)); err != nil {
					return
				}
			}
		}, registry.ErrWrong, "more than the", 1, false},
		"a length that is too large": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(1<<40))
			_, _ = w.Write(honest(w))
		}, registry.ErrWrong, "more than the", 1, false},
		"less than it says": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(honest(w)[:len(honest(w))/2])
		}, registry.ErrUnavailable, "ended after", 3 * attempts, true},
		"nothing": {"/blobs/", func(http.ResponseWriter, *http.Request) {},
			registry.ErrUnavailable, "ended after 0 of", attempts, true},
		"silence": {"/blobs/", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(honest(w))))
			_, _ = w.Write(honest(w)[:1])
			_ = http.NewResponseController(w.(edit).ResponseWriter).Flush()
			<-r.Context().Done()
		}, registry.ErrUnavailable, "sent less than", 3 * attempts, true},
		"no answer": {"/manifests/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			registry.ErrUnavailable, "", attempts, true},
		"out of order": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "boom", http.StatusInternalServerError)
		}, registry.ErrUnavailable, "boom", attempts, true},
		"not found": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such thing"}]}`)
		}, registry.ErrNotFound, "no such thing", 1, true},
		"refused": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}, registry.ErrUnauthorized, "", 1, true},
		"later": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}, registry.ErrTooManyRequests, "429", 1, true},
		"a manifest without end": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			for range 200 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, registry.ErrWrong, "more than", 1, false},
		"no manifest": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"schemaVersion":2,"config":[]}`)
		}, images.ErrInvalid, "manifest", 1, false},
		"a manifest of version 1": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v1+prettyjws")
			fmt.Fprint(w, `{"schemaVersion":1,"name":"app","tag":"v1","architecture":"amd64","fsLayers":[{"blobSum":"sha256:`+
				strings.Repeat("a", 64)+`"}],"history":[{"v1Compatibility":"{}"}],"signatures":[{"signature":"x"}]}`)
		}, images.ErrInvalid, "of Docker's version 1, which has been given up", 1, false},
		"a digest that is a path": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			text := strings.Replace(string(honest(w)), `"digest":"sha256:`, `"digest":"sha256:../../`, 1)
			fmt.Fprint(w, text)
		}, images.ErrInvalid, "", 1, false},
		"too many layers": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			var m map[string]any
			if err := json.Unmarshal(honest(w), &m); err != nil {
				panic(err)
			}
			layers, _ := m["layers"].([]any)
			for len(layers) < 1000 {
				layers = append(layers, layers[0])
			}
			m["layers"] = layers
			_ = json.NewEncoder(w).Encode(m)
		}, images.ErrInvalid, "1000 layers", 1, false},
		"a redirection in a circle": {"/blobs/", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, nil, "redirects", 30 * attempts, true},
		"a challenge that nobody knows": {"/v2/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Magic")
			w.WriteHeader(http.StatusUnauthorized)
		}, nil, "", 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, ready atomic.Int64
			host := serve(t, func(next http.Handler) http.Handler {
				evil := on(c.part, &asked, c.do)(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if ready.Load() == 0 {
						next.ServeHTTP(w, r)
						return
					}
					evil.ServeHTTP(w, r)
				})
			})
			img := imageOf(t, layer(t, compression.GZip, file("f", big(100_000))))
			push(t, host+"/app:v1", img)
			ready.Store(1)
			ref := host + "/app:v1"
			if strings.Contains(name, "pinned") {
				ref = host + "/app@" + digestOf(t, img).String()
			}
			stall := time.Minute
			if name == "silence" || name == "no answer" { // Others are not to be given up because the machine is busy.
				stall = 500 * time.Millisecond
			}
			s := open(t, func(cfg *images.Config) {
				cfg.Registries = registry.Config{Attempts: attempts, Stall: stall}
			})
			var again atomic.Int64
			_, err := s.Pull(t.Context(), ref, images.PullOptions{Again: func(err error) {
				if again.Add(1); !strings.Contains(err.Error(), host) {
					t.Errorf("what is tried again does not say where: %v", err)
				}
			}})
			if n := again.Load(); n > 0 != errors.Is(err, registry.ErrUnavailable) {
				t.Errorf("%d requests were made again", n)
			}
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.said) {
				t.Errorf("%v; want %v, and %q in it", err, c.want, c.said)
			}
			if n := asked.Load(); n > c.most {
				t.Errorf("asked %d times, more than %d", n, c.most)
			}
			if left := remains(t, s); len(left) > 0 && !c.kept {
				t.Errorf("left behind: %v", left)
			}
			if all, err := s.List(); err != nil || len(all) > 0 {
				t.Errorf("the store has %+v, %v", all, err)
			}
		})
	}
}

// A download that breaks off goes on where it was, within a pull and from one to the next.
func TestResume(t *testing.T) {
	var asked, sent atomic.Int64
	broken := on("/blobs/", &asked, func(w http.ResponseWriter, r *http.Request) {
		b := honest(w)
		var from int
		if n, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); n == 1 && err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
			b = b[from:]
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		}
		n, _ := w.Write(b[:min(len(b), 200_000)]) // the server closes a connection that was promised more
		sent.Add(int64(n))
	})
	// The registry behind does not do ranges itself.
	whole := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner := r.Clone(r.Context())
			inner.Header.Del("Range")
			next.ServeHTTP(w, inner)
		})
	}
	// After so many bytes it answers nobody until it is mended.
	var silentAfter atomic.Int64
	silent := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if most := silentAfter.Load(); most > 0 && sent.Load() > most {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	host := serve(t, whole, broken, silent)
	push(t, host+"/app:v1", imageOf(t, layer(t, compression.None, file("f", big(1_000_000)))))
	s := open(t)
	img := pull(t, s, host+"/app:v1")
	if n := sent.Load(); n > img.Size {
		t.Errorf("%d bytes were sent for an image of %d", n, img.Size)
	}
	if asked.Load() < 4 { // the configuration, and 200 000 bytes of the layer at a time
		t.Errorf("asked %d times, want at least 4: the test's registry did not break off", asked.Load())
	}

	// A pull fails with half of the layer, and the next one, of another process, goes on from there.
	dir := filepath.Join(t.TempDir(), "images")
	sent.Store(0)
	silentAfter.Store(img.Size / 2)
	first := openIn(t, dir)
	if _, err := first.Pull(t.Context(), host+"/app:v1", images.PullOptions{}); !errors.Is(err, registry.ErrUnavailable) {
		t.Fatalf("the registry is out of order: %v", err)
	}
	if n := sent.Load(); n < img.Size/2 || n > img.Size*9/10 {
		t.Fatalf("%d bytes of %d were sent: the pull did not fail half-way", n, img.Size)
	}
	silentAfter.Store(0)
	pull(t, openIn(t, dir), host+"/app:v1")
	if n := sent.Load(); n > img.Size {
		t.Errorf("%d bytes were sent by two pulls for an image of %d", n, img.Size)
	}
}

// A layer that is right for the registry, and hostile all the same, leaves nothing.
func TestHostileLayers(t *testing.T) {
	for name, c := range map[string]struct {
		layer []byte
		c     compression.Compression
		want  string
	}{
		"escapes":   {archive(t, file("../../victim", "evil")), compression.GZip, "leads outside of the layer"},
		"long name": {archive(t, file(strings.Repeat("n", 300), "x")), compression.GZip, "file name too long"},
		"bomb":      {archive(t, file("f", strings.Repeat("\x00", 3<<20))), compression.GZip, "more than 1048576 bytes"},
		"zstd bomb": {archive(t, file("f", strings.Repeat("\x00", 3<<20))), compression.ZStd, "more than 1048576 bytes"},
		"no tar":    {[]byte(strings.Repeat("this is no archive\n", 100)), compression.GZip, "not a layer"},
		"cut off":   {archive(t, file("f", strings.Repeat("x", 10_000)))[:5000], compression.GZip, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := serve(t)
			push(t, host+"/app:v1", imageOf(t, layer(t, compression.GZip, file("good", "x")), layerOf(t, c.c, c.layer)))
			s := open(t, func(cfg *images.Config) { cfg.Limits.Unpacked = 1 << 20 })
			_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
			if !errors.Is(err, images.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q in it", err, c.want)
			}
			if left := remains(t, s); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(s.Dir()), "victim")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the victim: %v", err)
			}
		})
	}
}

// A layer that is another one than the image's configuration says is refused, and nothing of the image stays.
func TestAnotherLayerThanConfigured(t *testing.T) {
	img := imageOf(t, layer(t, compression.GZip, file("f", "x")))
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.RootFS.DiffIDs[0].Hex = strings.Repeat("a", 64)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	host, s := serve(t), open(t)
	push(t, host+"/app:v1", img)
	_, err = s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
	if !errors.Is(err, images.ErrInvalid) || !strings.Contains(err.Error(), "as the image's configuration says") {
		t.Errorf("%v", err)
	}
	if left := remains(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A token service is asked as the pull's credentials say; a registry without one gets them itself. Without the right
// ones the error says so.
func TestCredentials(t *testing.T) {
	const user, password = "tester", "s3cret-password"
	right := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	token := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/token":
				if r.Header.Get("Authorization") != right || r.URL.Query().Get("scope") != "repository:app:pull" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				fmt.Fprint(w, `{"token":"abc"}`)
			case r.Method == http.MethodGet && r.Header.Get("Authorization") != "Bearer abc":
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="test"`)
				w.WriteHeader(http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
	basic := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Header.Get("Authorization") != right {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	for name, around := range map[string]func(http.Handler) http.Handler{"token": token, "basic": basic} {
		t.Run(name, func(t *testing.T) {
			var guarded atomic.Bool
			host := serve(t, func(next http.Handler) http.Handler {
				inner := around(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if guarded.Load() {
						inner.ServeHTTP(w, r)
					} else {
						next.ServeHTTP(w, r)
					}
				})
			})
			push(t, host+"/app:v1", plainImage(t))
			guarded.Store(true)
			for what, c := range map[string]struct {
				auth *registry.Auth
				ok   bool
			}{
				"nobody":   {nil, false},
				"wrong":    {&registry.Auth{Username: user, Password: "wrong-" + password}, false},
				"right":    {&registry.Auth{Username: user, Password: password}, true},
				"one word": {&registry.Auth{Auth: strings.TrimPrefix(right, "Basic ")}, true},
			} {
				s := open(t)
				_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{Auth: c.auth})
				if c.ok && err != nil || !c.ok && !errors.Is(err, registry.ErrUnauthorized) {
					t.Errorf("%s: %v", what, err)
				}
				if err != nil && strings.Contains(err.Error(), password) {
					t.Errorf("%s: the password is in %v", what, err)
				}
			}
		})
	}
}

// Who brings a token for the registry itself is asked for no other one; who brings one that stands for a user gets an
// access token for it. Wrong ones are said to be wrong, and are not in the error.
func TestTokens(t *testing.T) {
	var guarded atomic.Bool
	var asked atomic.Int32
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/token":
				asked.Add(1)
				if r.Method != http.MethodPost || r.FormValue("grant_type") != "refresh_token" ||
					r.FormValue("refresh_token") != "right-identity" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				fmt.Fprint(w, `{"access_token":"right-access"}`)
			case guarded.Load() && r.Header.Get("Authorization") != "Bearer right-access":
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="test"`)
				w.WriteHeader(http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	push(t, host+"/app:v1", plainImage(t))
	guarded.Store(true)
	for what, c := range map[string]struct {
		auth registry.Auth
		ok   bool
		asks bool
	}{
		"access":         {registry.Auth{RegistryToken: "right-access"}, true, false},
		"wrong access":   {registry.Auth{RegistryToken: "wrong-access"}, false, false},
		"identity":       {registry.Auth{IdentityToken: "right-identity"}, true, true},
		"wrong identity": {registry.Auth{IdentityToken: "wrong-identity"}, false, true},
	} {
		asked.Store(0)
		_, err := open(t).Pull(t.Context(), host+"/app:v1", images.PullOptions{Auth: &c.auth})
		if c.ok && err != nil || !c.ok && !errors.Is(err, registry.ErrUnauthorized) || (asked.Load() > 0) != c.asks {
			t.Errorf("%s: %v; the token service was asked %d times", what, err, asked.Load())
		}
		if err != nil && (strings.Contains(err.Error(), "wrong-access") || strings.Contains(err.Error(), "wrong-identity")) {
			t.Errorf("%s: the token is in %v", what, err)
		}
	}
}

// Mirrors are asked first, and the registry itself when they fail.
func TestMirrors(t *testing.T) {
	good, dead := serve(t), httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	push(t, good+"/group/app:v1", plainImage(t))
	hosts := map[string]registry.Host{"registry.invalid": {Mirrors: []string{dead.URL, "http://" + good}}}
	s := open(t, func(cfg *images.Config) { cfg.Registries.Hosts = hosts })
	img := pull(t, s, "registry.invalid/group/app:v1")
	if img.Tags[0] != "registry.invalid/group/app:v1" {
		t.Errorf("%v", img.Tags)
	}
	hosts = map[string]registry.Host{good: {Mirrors: []string{dead.URL}}}
	s = open(t, func(cfg *images.Config) { cfg.Registries.Hosts = hosts })
	pull(t, s, good+"/group/app:v1")
	_, err := images.Open(images.Config{Dir: filepath.Join(t.TempDir(), "i"), Registries: registry.Config{
		Hosts: map[string]registry.Host{"a": {Mirrors: []string{"mirror.example.com"}}}}})
	if err == nil || !strings.Contains(err.Error(), "https://mirror.example.com") {
		t.Errorf("a mirror that is no URL: %v", err)
	}
}

// A mirror that keeps what it mirrors below a path is asked there, as whom its own entry says, and never as whoever
// asks the registry.
func TestMirrorWithPathAndCredentials(t *testing.T) {
	const user, password = "robot", "s3cret-of-the-mirror"
	var guarded atomic.Bool
	var others atomic.Int32
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, word, given := r.BasicAuth()
			switch {
			case guarded.Load() && name == user && word == password, !guarded.Load():
				next.ServeHTTP(w, r)
				return
			case given:
				others.Add(1)
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	push(t, host+"/hub/cache/group/app:v1", plainImage(t))
	guarded.Store(true)
	pod := &registry.Auth{Username: "pod", Password: "s3cret-of-the-pod"}
	for auth, ok := range map[registry.Auth]bool{{Username: user, Password: password}: true, {}: false} {
		s := open(t, func(cfg *images.Config) {
			cfg.Registries.Attempts = 1
			cfg.Registries.Hosts = map[string]registry.Host{
				"registry.invalid": {Mirrors: []string{"http://" + host + "/hub/cache"}}, host: {Auth: auth},
			}
		})
		_, err := s.Pull(t.Context(), "registry.invalid/group/app:v1", images.PullOptions{Auth: pod})
		if ok != (err == nil) {
			t.Errorf("with %q: %v", auth.Username, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("a password is in %v", err)
		}
	}
	if n := others.Load(); n > 0 {
		t.Errorf("the mirror was asked as somebody else %d times", n)
	}
	// The same entry counts where the host is asked as a registry, unless a pod brings credentials of its own.
	s := open(t, func(cfg *images.Config) {
		cfg.Registries.Hosts = map[string]registry.Host{host: {Auth: registry.Auth{Username: user, Password: password}}}
	})
	pull(t, s, host+"/hub/cache/group/app:v1")
	_, err := s.Pull(t.Context(), host+"/hub/cache/group/app:v1", images.PullOptions{Auth: pod})
	if !errors.Is(err, registry.ErrUnauthorized) {
		t.Errorf("as a pod that may not: %v", err)
	}
}

// The images of an archive that is no such thing are refused, and nothing stays.
func TestHostileArchives(t *testing.T) {
	digest := strings.Repeat("a", 64)
	for name, b := range map[string][]byte{
		"empty":          nil,
		"no archive":     []byte(strings.Repeat("x", 4096)),
		"no image":       archive(t, file("a", "b")),
		"no JSON":        archive(t, file("manifest.json", "{")),
		"missing files":  archive(t, file("manifest.json", `[{"Config":"c.json","Layers":["../../etc/passwd"]}]`)),
		"missing blobs":  archive(t, file("index.json", `{"manifests":[{"digest":"sha256:`+digest+`","size":1}]}`)),
		"another digest": archive(t, file("index.json", `{"manifests":[{"digest":"sha256:`+digest+`","size":1}]}`), file("blobs/sha256/"+digest, "{}")),
		"links in a circle": archive(t, file("manifest.json", `[{"Config":"a","Layers":[]}]`), symlink("a", "b"),
			symlink("b", "a")),
	} {
		s := open(t)
		if _, err := s.Load(t.Context(), strings.NewReader(string(b))); !errors.Is(err, images.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if left := remains(t, s); len(left) > 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

// Archives of docker save from before it wrote OCI layouts can be loaded, with their layers as links too.
func TestLoadDockerArchive(t *testing.T) {
	lower, upper := archive(t, file("f", "lower")), archive(t, file("g", "upper"))
	img := imageOf(t, layerOf(t, compression.None, lower), layerOf(t, compression.None, upper))
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	b := archive(t, file("c.json", string(config)), file("1/layer.tar", string(lower)),
		symlink("2/layer.tar", "../x/layer.tar"), file("x/layer.tar", string(upper)), hardlink("y.tar", "x/layer.tar"),
		file("manifest.json", `[{"Config":"c.json","RepoTags":["app:dev","app@sha256:`+strings.Repeat("a", 64)+
			`"],"Layers":["1/layer.tar","2/layer.tar"]}]`))
	s := open(t)
	loaded, err := s.Load(t.Context(), strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != 1 || !slices.Equal(loaded[0].Tags, []string{"docker.io/library/app:dev"}) {
		t.Errorf("%+v", loaded)
	}
	root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: "app:dev", Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"f": "lower", "g": "upper"} {
		if got, err := os.ReadFile(filepath.Join(root.Copied, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var saved strings.Builder
	if err := s.Save(t.Context(), io.Writer(&saved), "app:dev"); err != nil {
		t.Fatal(err)
	}
}

// Of entries of an archive that have the same name the last one counts, whatever kind they are.
func TestLoadNamesTwice(t *testing.T) {
	lower, upper := archive(t, file("f", "lower")), archive(t, file("g", "upper"))
	img := imageOf(t, layerOf(t, compression.None, lower), layerOf(t, compression.None, upper))
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(tag string) entry {
		return file("manifest.json", `[{"Config":"c.json","RepoTags":["`+tag+`"],"Layers":["1.tar","2.tar"]}]`)
	}
	b := archive(t, manifest("app:first"), file("1.tar", strings.Repeat("longer than the last one", 1000)),
		symlink("2.tar", "1.tar"), file("c.json", "a file, then a link"), file("d.json", string(config)),
		file("1.tar", string(lower)), file("2.tar", string(upper)), symlink("c.json", "d.json"), hardlink("1.tar", "1.tar"),
		manifest("app:last"))
	s := open(t)
	loaded, err := s.Load(t.Context(), strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := img.ConfigName(); err != nil || len(loaded) != 1 || loaded[0].ID != id.String() ||
		!slices.Equal(loaded[0].Tags, []string{"docker.io/library/app:last"}) {
		t.Errorf("%+v, %v", loaded, err)
	}
}

// Of an archive, or a layer, that is compressed in a way that is not understood, the error says so, and how to unpack
// the archive. A tar whose first file has a name that begins like such an archive is none.
func TestUnknownCompression(t *testing.T) {
	for b, want := range map[string]string{
		"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F": "xz", "BZh91AY&SY\x00\x00": "bzip2",
	} {
		s := open(t)
		_, err := s.Load(t.Context(), strings.NewReader(b))
		said := "it is compressed with " + want + ", and only gzip and zstd are understood"
		if !errors.Is(err, images.ErrInvalid) || !strings.HasSuffix(err.Error(), said+"; unpack it with "+want+" -d") {
			t.Errorf("an archive: %v; want %q", err, said)
		}
		host := serve(t)
		push(t, host+"/app:v1", imageOf(t, static.NewLayer([]byte(b), types.OCILayer)))
		_, err = s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
		if !errors.Is(err, images.ErrInvalid) || !strings.HasSuffix(err.Error(), said) {
			t.Errorf("a layer: %v; want %q", err, said)
		}
	}
	s := open(t)
	_, err := s.Load(t.Context(), strings.NewReader(string(archive(t, file("BZh91", "")))))
	if err == nil || !strings.Contains(err.Error(), "it has neither") {
		t.Errorf("a tar: %v", err)
	}
}
