package resolvconf_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"monoplane.dev/nodeagent/resolvconf"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]resolvconf.Config{
		"":                         {},
		"# nameserver 1.1.1.1\n;x": {},
		"nameserver\nnameserver 1.1.1.1 # first\n\tnameserver 2.2.2.2": {Servers: []string{"1.1.1.1", "2.2.2.2"}},
		"search a b. .\n":    {Searches: []string{"a", "b"}},
		"search a\nsearch b": {Searches: []string{"b"}},
		"options ndots:5 rotate\noptions ndots:2 rotate edns0\n": {Options: []string{"ndots:2", "rotate", "edns0"}},
		"domain example.com\nsortlist 1.2.3.4\nfamily inet4":     {},
	} {
		if got := resolvconf.Parse(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// The resolver on the loopback address of a machine is no use to a pod with a network of its own.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	plain, stub := file("plain", "nameserver 9.9.9.9"), file("stub", "nameserver 127.0.0.53")
	upstream, empty, missing := file("upstream", "nameserver 8.8.8.8"), file("empty", "\n"), file("missing", "")
	for _, c := range []struct{ path, upstream, want string }{
		{plain, upstream, "9.9.9.9"}, {stub, upstream, "8.8.8.8"}, {stub, missing, "127.0.0.53"},
		{stub, empty, "127.0.0.53"}, {missing, upstream, ""},
	} {
		got, err := resolvconf.Read(c.path, c.upstream)
		if err != nil || len(got.Servers) > 1 || len(got.Servers) == 1 != (c.want != "") ||
			c.want != "" && got.Servers[0] != c.want {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	if _, err := resolvconf.Read(dir, upstream); err == nil {
		t.Error("a directory was read")
	}
}
