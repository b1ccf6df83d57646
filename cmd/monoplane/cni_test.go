package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Plugins of CNI are asked for, and only where they can be had.
func TestCNIOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args    string
		runtime string
		uid     int
		want    string // What the error says; empty for none.
		dirs    []string
	}{
		{runtime: "host"},
		{args: "--cni-bin-dir=/a", runtime: "oci", want: "it goes with --cni-conf-dir"},
		{args: "--cni-conf-dir=/a", runtime: "auto", want: "--runtime=oci"},
		{args: "--cni-conf-dir=/a", want: "--runtime=oci"},
		{args: "--cni-conf-dir=/a", runtime: "oci", uid: 7, want: "user 7"},
		{args: "--cni-conf-dir=/a --cni-bin-dir=", runtime: "oci", want: "no directory"},
		{args: "--cni-conf-dir=" + file, runtime: "oci", want: "not a directory"},
		{args: "--cni-conf-dir=/a --cni-bin-dir=" + file, runtime: "oci", want: "--cni-bin-dir"},
		{args: "--cni-conf-dir=/a", runtime: "oci", dirs: []string{"/opt/cni/bin", "/usr/lib/cni"}},
		{args: "--cni-conf-dir=/a --cni-bin-dir=/b,/c/../d", runtime: "oci", dirs: []string{"/b", "/d"}},
	} {
		flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
		var o cniOptions
		o.add(flags)
		if err := flags.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		got, err := o.config(c.runtime, c.uid)
		switch {
		case c.want != "" || err != nil:
			if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q with the runtime %q: %v; want %q", c.args, c.runtime, err, c.want)
			}
		case (got != nil) != (c.dirs != nil), got != nil && (got.ConfDir != "/a" || !slices.Equal(got.BinDirs, c.dirs)):
			t.Errorf("%q with the runtime %q: %+v", c.args, c.runtime, got)
		}
	}
}

// Another runtime is not asked for what it cannot do.
func TestCNIWithAnotherRuntime(t *testing.T) {
	for _, args := range [][]string{{"--runtime=fake"}, {"--runtime-endpoint=unix:///x"},
		{"--runtime=oci", "--runtime-endpoint=unix:///x"}} {
		_, _, err := upConfig(t, append(args, "--cni-conf-dir=/a")...)
		if err == nil || !strings.Contains(err.Error(), "--cni-conf-dir") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
