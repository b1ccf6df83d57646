package cni

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The first file by name counts, whatever it is of the three, and must make sense.
func TestLoad(t *testing.T) {
	const list = `{"cniVersion":"1.0.0","name":"list","plugins":[{"type":"bridge","capabilities":{"portMappings":true}}]}`
	const single = `{"cniVersion":"0.3.1","name":"single","type":"bridge"}`
	for name, c := range map[string]struct {
		files map[string]string
		want  string // The network, or what the error says.
	}{
		"none":       {map[string]string{"README.md": "", "10-a.conflist.bak": list}, "no network is configured"},
		"list":       {map[string]string{"10-a.conflist": list, "20-b.conf": single}, "list"},
		"single":     {map[string]string{"10-a.conf": single, "20-b.conflist": list}, "single"},
		"json":       {map[string]string{"05-a.json": single, "10-b.conflist": list}, "single"},
		"broken":     {map[string]string{"10-a.conflist": "{", "20-b.conf": single}, "10-a.conflist"},
		"no plugin":  {map[string]string{"10-a.conflist": `{"name":"x","plugins":[]}`}, "no plugins"},
		"no name":    {map[string]string{"10-a.conf": `{"type":"bridge"}`}, "the name \"\""},
		"other name": {map[string]string{"10-a.conf": `{"type":"bridge","name":"../x"}`}, "the name \"../x\""},
		"no type":    {map[string]string{"10-a.conf": `{"name":"x"}`}, "type"},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := load(dir); err == nil && got.Name != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, got, err, c.want)
		}
	}
	if _, err := load(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, errNone) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// Plugins of a list may be in a directory of the network's name, too.
func TestLoadPluginFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10-a.conflist": `{"cniVersion":"1.1.0","name":"net"}`, "net/10-x.conf": `{"type":"x"}`,
		"net/20-y.conf": `{"type":"y","capabilities":{"bandwidth":true}}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(dir)
	if err != nil || len(got.Plugins) != 2 || got.Plugins[1].Network.Type != "y" {
		t.Fatalf("%v, %v", got, err)
	}
	if !asksFor(got, bandwidth) || asksFor(got, portMappings) {
		t.Error("plugin y asks for the bandwidth, and for nothing else")
	}
}
