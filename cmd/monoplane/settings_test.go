package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func testFlags(t *testing.T, args ...string) (*pflag.FlagSet, *string, *int) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	listen := flags.String("listen", "default", "")
	nodes := flags.Int("nodes", 1, "")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags, listen, nodes
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A flag wins over a variable, a variable over the file, the file over the default.
func TestSettingsPrecedence(t *testing.T) {
	env := map[string]string{"MONOPLANE_LISTEN": "env"}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	file := writeFile(t, "listen: file\nnodes: 7\n")

	flags, listen, nodes := testFlags(t)
	if err := applyEnvironment(flags, lookup); err != nil {
		t.Fatal(err)
	}
	if err := applyFile(flags, file); err != nil {
		t.Fatal(err)
	}
	if *listen != "env" || *nodes != 7 {
		t.Errorf("listen = %q, nodes = %d, want env, 7", *listen, *nodes)
	}

	flags, listen, _ = testFlags(t, "--listen=flag")
	if err := applyEnvironment(flags, lookup); err != nil {
		t.Fatal(err)
	}
	if err := applyFile(flags, file); err != nil {
		t.Fatal(err)
	}
	if *listen != "flag" {
		t.Errorf("listen = %q, want flag", *listen)
	}
}

func TestSettingsErrorsSayWhereAndWhat(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown":   {"lisen: x\n", []string{`unknown setting "lisen"`, "listen, nodes"}},
		"type":      {"nodes: many\n", []string{"nodes:", `"many"`}},
		"duplicate": {"nodes: 1\nnodes: 2\n", []string{"nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, c.text)
			flags, _, _ := testFlags(t)
			err := applyFile(flags, path)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
	flags, _, _ := testFlags(t)
	err := applyEnvironment(flags, func(k string) (string, bool) { return "x", k == "MONOPLANE_NODES" })
	if err == nil || !strings.Contains(err.Error(), "MONOPLANE_NODES") {
		t.Errorf("error %v does not name the variable", err)
	}
}
