package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOwnAddress(t *testing.T) {
	for ip, want := range map[string]bool{
		"127.0.0.1": true, "127.8.8.8": true, "::1": true, "0.0.0.0": true, "::": true, "169.254.169.254": true,
		"::ffff:127.0.0.1": true, "fe80::1": true, "192.0.2.1": false, "2001:db8::1": false,
	} {
		if got := ownAddress(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: %v, want %v", ip, got, want)
		}
	}
}

// A registry elsewhere leads nobody to this machine, by whichever name.
func TestGuardRefusesThisMachine(t *testing.T) {
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	defer here.Close()
	port := here.URL[strings.LastIndexByte(here.URL, ':'):]
	g, err := newGuard("192.0.2.1", true, "", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1.2.3"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+port, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.RoundTrip(req)
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", host, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}

// A registry on this machine may lead to others here. Without TLS nobody is asked who was not named.
func TestGuardAllows(t *testing.T) {
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	defer here.Close()
	for host, plain := range map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, "127.0.0.2": false} {
		g, err := newGuard(host, plain, "", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, here.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.RoundTrip(req)
		if plain != (err == nil) || !plain && !errors.Is(err, ErrRefused) {
			t.Errorf("registry %s, plain %v: %v", host, plain, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}

func TestBackoff(t *testing.T) {
	for n := 1; n < 100; n++ {
		if d := backoff(n, 0); d < 100*time.Millisecond || d > 10*time.Second {
			t.Errorf("after %d failures: %v", n, d)
		}
	}
	if d := backoff(1, time.Minute); d != time.Minute {
		t.Errorf("less than the registry asked for: %v", d)
	}
}

// What may help is tried again, a bounded number of times; the rest is not.
func TestAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"unavailable": {ErrUnavailable, 3}, "not found": {ErrNotFound, 1}, "wrong": {ErrWrong, 1},
		"soon": {&laterError{ErrTooManyRequests, 30 * time.Second}, 3}, "in an hour": {&laterError{ErrTooManyRequests, time.Hour}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, err := New(Config{Attempts: 3})
			if err != nil {
				t.Fatal(err)
			}
			ref, err := ParseReference("registry.example.com/app")
			if err != nil {
				t.Fatal(err)
			}
			repo, err := client.Repository(t.Context(), ref, nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			err = repo.each(t.Context(), func(*source) (bool, error) {
				n++
				return false, c.err
			})
			if n != c.want || !errors.Is(err, c.err) {
				t.Errorf("%s: %d attempts, %v; want %d", name, n, err, c.want)
			}
			n = 0
			if err := repo.each(t.Context(), func(*source) (bool, error) {
				n++
				return true, ErrUnavailable // something comes each time
			}); err == nil || n != 100 {
				t.Errorf("%s: %d attempts, %v", name, n, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := repo.each(ctx, func(*source) (bool, error) { return false, ErrUnavailable }); !errors.Is(err,
				context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestParseReference(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for in, want := range map[string]string{
		"nginx":                      "docker.io/library/nginx:latest",
		"docker.io/nginx:1":          "docker.io/library/nginx:1",
		"index.docker.io/library/a":  "docker.io/library/a:latest",
		"team/app":                   "docker.io/team/app:latest",
		"localhost:5000/a/b/c:t":     "localhost:5000/a/b/c:t",
		"localhost/a":                "localhost/a:latest",
		"[::1]:5000/a":               "[::1]:5000/a:latest",
		"a" + digest:                 "docker.io/library/a" + digest,
		"r.example.com/a:t" + digest: "r.example.com/a:t" + digest,
		"r.example.com:1/a" + digest: "r.example.com:1/a" + digest,
		"a@sha512:" + digest[8:]:     "",
		"":                           "",
		"A":                          "",
		"https://r.example.com/a:t":  "",
		"a:b:c":                      "",
		"a:-":                        "",
		"a:.t" + digest:              "",
		"a:_t.-":                     "docker.io/library/a:_t.-",
		"a/../b":                     "",
		"r.example.com/a/./b":        "",
	} {
		got, err := ParseReference(in)
		if want == "" && err == nil || want != "" && got.String() != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registries.yaml")
	const two = "registries:\n  docker.io:\n    mirrors: [https://m.example.com, https://m.example.com/a/b/]\n" +
		"  r:5000: {plainHTTP: true"
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{two + "}\n", 0o644, ""},
		{two + ", auth: {username: u, password: s3cret}}\n", 0o600, ""},
		{two + ", auth: {username: u, password: s3cret}}\n", 0o640, "chmod 600"},
		{two + ", auth: {identityToken: s3cret}}\n", 0o644, "chmod 600"},
		{two + ", auth: {user: s3cret}}\n", 0o600, `unknown field "user"`},
		{"registries:\n  docker.io:\n    mirror: [https://m.example.com]\n", 0o600, "mirror"},
		{"registries:\n  docker.io:\n    mirrors: [m.example.com]\n", 0o600, "not like https://"},
		{"registries:\n  docker.io:\n    mirrors: [https://m.example.com/../x]\n", 0o600, "not like https://"},
		{"registries:\n  docker.io:\n    mirrors: [\"https://m.example.com/a?b\"]\n", 0o600, "not like https://"},
		{"registries:\n  https://docker.io: {}\n", 0o600, "is no registry"},
		{"- a\n", 0o600, "cannot unmarshal"},
	} {
		if err := errors.Join(os.WriteFile(path, []byte(c.text), c.mode), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		hosts, err := ReadFile(path)
		if c.want == "" && (err != nil || len(hosts) != 2 || !hosts["r:5000"].PlainHTTP) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %+v, %v", c.text, hosts, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the secret is in %v", err)
		}
	}
}

// A registry elsewhere that redirects to this machine, or sends us here for a token, is refused, by whichever name it
// does so: the machine is not asked.
func TestRedirectionToThisMachine(t *testing.T) {
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	defer here.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(here.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254"}
	// Those of the machine's own interfaces, too.
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			all = append(all, p.Addr().String())
		}
	}
	for _, to := range all {
		at := "http://" + to + ":" + port
		for name, answer := range map[string]http.HandlerFunc{
			"blob": func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, at+"/secret", http.StatusTemporaryRedirect)
				}
			},
			"token": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+at+`/token",service="test"`)
				w.WriteHeader(http.StatusUnauthorized)
			},
		} {
			elsewhere := httptest.NewServer(answer)
			client, err := New(Config{Attempts: 2, Hosts: map[string]Host{"192.0.2.1": {PlainHTTP: true}}})
			if err != nil {
				t.Fatal(err)
			}
			ref, err := ParseReference("192.0.2.1/app:v1")
			if err != nil {
				t.Fatal(err)
			}
			repo, err := client.Repository(t.Context(), ref, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := repo.sources[0].guard
			g.next.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if strings.HasPrefix(addr, "192.0.2.1:") { // This one address leads to the test's registry.
					return new(net.Dialer).DialContext(ctx, network, elsewhere.Listener.Addr().String())
				}
				return g.dial(ctx, network, addr)
			}
			_, err = repo.sources[0].get(t.Context(), "/blobs/sha256:"+strings.Repeat("a", 64), http.Header{})
			if !errors.Is(err, ErrRefused) && (name != "token" || !errors.Is(err, ErrWrong)) {
				t.Errorf("%s by %s: %v", to, name, err)
			}
			repo.Close()
			elsewhere.Close()
		}
	}
}
