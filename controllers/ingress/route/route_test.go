package route_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"monoplane.dev/controllers/ingress/route"
)

var seed = flag.Uint64("seed", 0, "seed of the random tables; 0 picks one")

// The examples of the documentation of Kubernetes about paths, and those of its description of hosts.
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		kind              route.Kind
		paths             string
		request, expected string
	}{
		{route.Prefix, "/", "/anything/at/all", "/"},
		{route.Prefix, "/", "/", "/"},
		{route.Exact, "/foo", "/foo", "/foo"},
		{route.Exact, "/foo", "/bar", ""},
		{route.Exact, "/foo", "/foo/", ""},
		{route.Exact, "/foo/", "/foo", ""},
		{route.Exact, "/foo", "/FOO", ""},
		{route.Prefix, "/foo", "/foo", "/foo"},
		{route.Prefix, "/foo", "/foo/", "/foo"},
		{route.Prefix, "/foo/", "/foo", "/foo/"},
		{route.Prefix, "/foo/", "/foo/", "/foo/"},
		{route.Prefix, "/aaa/bb", "/aaa/bbb", ""},
		{route.Prefix, "/aaa/bbb", "/aaa/bbb", "/aaa/bbb"},
		{route.Prefix, "/aaa/bbb/", "/aaa/bbb", "/aaa/bbb/"},
		{route.Prefix, "/aaa/bbb", "/aaa/bbb/", "/aaa/bbb"},
		{route.Prefix, "/aaa/bbb", "/aaa/bbb/ccc", "/aaa/bbb"},
		{route.Prefix, "/aaa/bbb", "/aaa/bbbxyz", ""},
		{route.Prefix, "/ /aaa", "/aaa/ccc", "/aaa"},
		{route.Prefix, "/ /aaa", "/ccc", "/"},
		{route.Prefix, "/aaa", "/ccc", ""},
		{route.Prefix, "/ /aaa /aaa/bbb", "/aaa/bbb", "/aaa/bbb"},
		{route.Prefix, "/open /closed", "/open/../closed/x", "/closed"},
		{route.Prefix, "/open /closed", "//closed", "/closed"},
		{route.Prefix, "/open /closed", "/../closed", "/closed"},
		{route.Exact, "/a/", "/b/../a/.", "/a/"},
		{route.Prefix, "/a%20b", "/a b/c", "/a%20b"},
		{route.Prefix, "/", "*", "/"},
		{route.Prefix, "/", "", "/"},
	} {
		var rules []route.Rule[string]
		for _, p := range strings.Fields(c.paths) {
			rules = append(rules, route.Rule[string]{Path: p, Kind: c.kind, Target: p})
		}
		table, ignored := route.New(rules, nil)
		if len(ignored) > 0 {
			t.Errorf("%s: ignored %v", c.paths, ignored)
		}
		if got, _ := table.Find("a.example", c.request); got != c.expected {
			t.Errorf("kind %d, rules %s: %s leads to %q; want %q", c.kind, c.paths, c.request, got, c.expected)
		}
	}
}

func TestHosts(t *testing.T) {
	other := "other"
	table, ignored := route.New([]route.Rule[string]{
		{Host: "foo.bar.com", Path: "/", Target: "foo"},
		{Host: "*.bar.com", Path: "/wild", Target: "wild"},
		{Host: "Upper.example", Path: "/", Target: "upper"},
		{Path: "/any", Target: "any"},
		{Host: "FOO.bar.com.", Path: "/", Target: "late"},
		{Host: "both.example", Path: "/a", Target: "prefix"},
		{Host: "both.example", Path: "/a", Kind: route.Exact, Target: "exact"},
		{Host: "own.example", Kind: route.Fallback, Target: "fallback"},
		{Host: "own.example", Path: "/x", Target: "x"},
		{Host: "own.example", Kind: route.Fallback, Target: "late"},
	}, &other)
	if fmt.Sprint(ignored) != "[{4 0} {9 7}]" {
		t.Errorf("ignored are %v", ignored)
	}
	for _, c := range []struct{ host, path, want string }{
		{"foo.bar.com", "/wild", "foo"},
		{"foo.bar.com:8080", "/", "foo"},
		{"FOO.bar.com.", "/", "foo"},
		{"baz.bar.com", "/wild", "wild"},
		{"baz.bar.com", "/any", "other"}, // the host's rules count, and none fits
		{"a.baz.bar.com", "/wild", "other"},
		{"bar.com", "/wild", "other"},
		{".bar.com", "/wild", "other"},
		{"*.bar.com", "/wild", "wild"},
		{"upper.EXAMPLE", "/", "upper"},
		{"elsewhere", "/any", "any"},
		{"", "/any", "any"},
		{"[::1]:80", "/any", "any"},
		{"10.0.0.1", "/any/more", "any"},
		{"elsewhere", "/", "other"},
		{"both.example", "/a", "exact"},
		{"both.example", "/a/", "prefix"},
		{"own.example", "/x", "x"},
		{"own.example", "/y", "fallback"},
	} {
		if got, _ := table.Find(c.host, c.path); got != c.want {
			t.Errorf("%s%s leads to %q; want %q", c.host, c.path, got, c.want)
		}
	}
	if got, ok := new(route.Table[string]).Find("a", "/"); ok {
		t.Errorf("an empty table finds %q", got)
	}
}

// naive finds what a table must find by trying all rules, with paths taken apart into elements.
func naive(rules []route.Rule[int], other *int, host, path string) (int, bool) {
	host = strings.ToLower(host)
	for _, candidate := range []string{host, route.Wildcard(host), ""} {
		var of []route.Rule[int]
		for _, r := range rules {
			if (candidate != "" || r.Host == "") && strings.ToLower(r.Host) == candidate {
				of = append(of, r)
			}
		}
		if len(of) == 0 {
			continue
		}
		best, rank := -1, -1
		for i, r := range of {
			score := -1
			switch {
			case r.Kind == route.Fallback:
				score = 0
			case r.Kind == route.Exact && r.Path == path:
				score = 1 << 20
			case r.Kind == route.Prefix && under(elements(r.Path), elements(path)):
				score = 1 + len(elements(r.Path))
			}
			if score > rank {
				best, rank = i, score
			}
		}
		if best >= 0 {
			return of[best].Target, true
		}
		break
	}
	if other != nil {
		return *other, true
	}
	return 0, false
}

func elements(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

func under(prefix, path []string) bool {
	return len(prefix) <= len(path) && strings.Join(prefix, "/") == strings.Join(path[:len(prefix)], "/")
}

// A table finds what trying all rules finds, over random rules and requests.
func TestTableIsAsTryingAllRules(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", s)
	random := rand.New(rand.NewPCG(s, 0))
	hosts := []string{"", "a.x", "b.x", "*.x", "A.x", "c.y", "*.a.x", "z"}
	path := func() string {
		var p strings.Builder
		for range random.IntN(5) {
			p.WriteString("/" + string("abA"[random.IntN(3)]))
		}
		if p.Len() == 0 || random.IntN(4) == 0 {
			p.WriteString("/")
		}
		return p.String()
	}
	for range 3000 {
		var rules []route.Rule[int]
		for i := range random.IntN(12) {
			rules = append(rules, route.Rule[int]{
				Host: hosts[random.IntN(len(hosts))], Path: path(), Kind: route.Kind(random.IntN(3)), Target: i,
			})
		}
		var other *int
		if random.IntN(2) == 0 {
			other = new(int)
			*other = -1
		}
		table, _ := route.New(rules, other)
		for range 20 {
			host, at := hosts[random.IntN(len(hosts))], path()
			if host == "*.x" || host == "*.a.x" {
				host = "d" + host[1:]
			}
			want, found := naive(rules, other, host, at)
			if got, ok := table.Find(host, at); got != want || ok != found {
				t.Fatalf("%s%s leads to %d, %t; want %d, %t by %+v", host, at, got, ok, want, found, rules)
			}
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add("a.example:80", "/a/b/../c//d/.")
	f.Add("[::1", "//")
	f.Add("*.x.", "/%2f")
	table, _ := route.New([]route.Rule[string]{
		{Host: "*.x", Path: "/a/b", Target: "wild"}, {Path: "/a", Kind: route.Exact, Target: "exact"},
		{Path: "/a/b/c", Target: "prefix"},
	}, nil)
	f.Fuzz(func(t *testing.T, host, path string) {
		target, ok := table.Find(host, path)
		if ok != (target != "") {
			t.Errorf("%q%q: %q, %t", host, path, target, ok)
		}
		if target == "wild" && !strings.HasSuffix(strings.ToLower(route.Host(host)), ".x") {
			t.Errorf("%q is taken for a host of *.x", host)
		}
	})
}

// A long path costs no more than the rules are deep.
func BenchmarkLongPath(b *testing.B) {
	table, _ := route.New([]route.Rule[int]{{Path: "/a/b", Target: 1}, {Path: "/x", Target: 2}}, nil)
	long := "/a" + strings.Repeat("/b", 16<<10)
	for b.Loop() {
		table.Find("a.example", long)
	}
}
