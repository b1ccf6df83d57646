package ocinode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node whose pods another network has connected is not opened: what they have would never be given back.
//
// spec: NET-1
func TestOtherNetwork(t *testing.T) {
	byCNI := Config{CNI: &CNI{ConfDir: "/none"}}
	for name, c := range map[string]struct {
		file, text string
		cfg        Config
		want       string
	}{
		"CNI's":      {"cni/sandboxes/box.json", "{}", Config{}, "with the same CNI"},
		"CNI's left": {"cni/cache/x", "{}", Config{}, ""},
		"own":        {"network/addresses.json", `{"Owners":{"box":["10.0.0.3"]}}`, byCNI, "without CNI"},
		"own left":   {"network/addresses.json", `{"Released":["10.0.0.3"]}`, byCNI, ""},
		"same":       {"cni/sandboxes/box.json", "{}", byCNI, ""},
		"new":        {"other", "", Config{}, ""},
		"neither":    {"other", "", Config{HostNetwork: true, CNI: byCNI.CNI}, "machine's network"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := c.want
		if c.cfg.CNI != nil && os.Geteuid() != 0 {
			want = "as root only"
		}
		err := New(c.cfg).checkNetwork(dir)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
}
