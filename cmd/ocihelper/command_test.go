//go:build linux && cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/oci/spec"
)

// The runtime writes what the helper reads.
func TestBundleIsWhatTheRuntimeWrites(t *testing.T) {
	if spec.File != bundleFile || spec.SharedMemory != sharedMemory {
		t.Errorf("the runtime writes %s, where %q is the shared memory", spec.File, spec.SharedMemory)
	}
	fields := func(of any) map[string]string {
		all := map[string]string{}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if f.IsExported() {
				kind := strings.NewReplacer("spec.Files", "files", "main.files", "files").Replace(f.Type.String())
				all[f.Name] = kind + " " + string(f.Tag)
			}
		}
		return all
	}
	theirs, ours := fields(spec.Files{}), fields(files{})
	delete(theirs, "Image") // By which the runtime finds the layers.
	for _, pair := range [][2]map[string]string{{fields(spec.Bundle{}), fields(bundle{})}, {theirs, ours}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("the runtime writes\n%v\nand the helper reads\n%v", pair[0], pair[1])
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args string
		want command
		err  string
	}{
		{"create /b id", command{verb: "create", bundle: "/b", id: "id"}, ""},
		{"--console create --shm /b --width=80 --height=25 id",
			command{verb: "create", bundle: "/b", id: "id", console: true, shm: true, width: 80, height: 25}, ""},
		{"create /b id --width=-1 --height=65536", command{verb: "create", bundle: "/b", id: "id"}, ""},
		{"exec /b id -- --console", command{verb: "exec", bundle: "/b", id: "id", args: []string{"--console"}}, ""},
		{"exec /b id --", command{verb: "exec", bundle: "/b", id: "id"}, ""},
		{"exec /b -- id", command{}, "the helper needs a verb, a bundle and an ID"},
		{"", command{}, "the helper needs a verb, a bundle and an ID"},
		{"exec /b id more", command{}, `unexpected argument "more"`},
	} {
		got, err := parse(strings.Fields(c.args))
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%q: %v", c.args, err)
			}
		} else if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v", c.args, got, err)
		}
	}
}

// A description that is missing, or says too little, ends the helper with words, before anything is done.
func TestRunRefuses(t *testing.T) {
	for _, c := range []struct{ args, bundle, process, err string }{
		{"burn BUNDLE id", "", "", `unknown verb "burn"`},
		{"create", "", "", "the helper needs"},
		{"create BUNDLE id", "", "", "the description of the container: open"},
		{"create BUNDLE id", "{", "", "the description of the container: unexpected end of JSON input"},
		{"create BUNDLE id", "{}", "", "the description of the container is incomplete"},
		{"create BUNDLE id", `{"Spec": {"process": {}}}`, "", "the description of the container is incomplete"},
		{"create BUNDLE id", `{"Spec": {"process": {}, "linux": {}}}`, "", "the image has no layers"},
		{"exec BUNDLE id -- true", "{}", "", "the description of the container: open"},
		{"exec BUNDLE id", "{}", "{}", "no command"},
		{"exec BUNDLE id -- true", "{}", "{}", "container does not exist"},
		{"checkpoint BUNDLE id -- only", "{}", "", "a checkpoint needs a directory, and the program that makes it"},
		{"checkpoint BUNDLE id -- dir criu", "", "", "the description of the container: open"},
		{"checkpoint BUNDLE id -- dir criu", "{}", "", "container does not exist"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{bundleFile: c.bundle, processFile: c.process} {
			if text != "" {
				write(t, filepath.Join(dir, name), text)
			}
		}
		args := strings.Fields(strings.ReplaceAll(c.args, "BUNDLE", dir))
		if _, err := run(args); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q of %s: %v, want %q", c.args, c.bundle, err, c.err)
		}
	}
}

func TestProcess(t *testing.T) {
	as := &specs.Process{Cwd: "/", Env: []string{"A=b"}, NoNewPrivileges: true, ApparmorProfile: "p",
		User:         specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3, 4}},
		Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}, Ambient: []string{"CAP_CHOWN"}},
		Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 5, Hard: 6}}}
	p, err := command{}.process(as, []string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != 1 || p.GID != 2 || !slices.Equal(p.AdditionalGroups, []int{3, 4}) || !*p.NoNewPrivileges ||
		p.AppArmorProfile != "p" || p.Cwd != "/" || p.Stdin != os.Stdin || p.ConsoleSocket != nil {
		t.Errorf("%+v", p)
	}
	if !slices.Equal(p.Capabilities.Bounding, []string{"CAP_KILL"}) || p.Capabilities.Effective != nil ||
		!slices.Equal(p.Capabilities.Ambient, []string{"CAP_CHOWN"}) {
		t.Errorf("%+v", p.Capabilities)
	}
	if len(p.Rlimits) != 1 ||
		p.Rlimits[0].Type != unix.RLIMIT_NOFILE || p.Rlimits[0].Soft != 5 || p.Rlimits[0].Hard != 6 {
		t.Errorf("%+v", p.Rlimits)
	}
	as.Rlimits[0].Type = "RLIMIT_MOOD"
	if _, err := (command{}).process(as, nil); err == nil || err.Error() != `unknown limit "RLIMIT_MOOD"` {
		t.Errorf("%v", err)
	}
}

// Parts, volumes, images and shared mounts are named by their indices: one that does not exist is an error.
func TestMountsThatDoNotExist(t *testing.T) {
	for _, i := range []int{-1, 1} {
		b := &bundle{Spec: &specs.Spec{Mounts: make([]specs.Mount, 1)}, Shared: []int{i}, Parts: map[int]string{i: "."},
			Volumes: map[int]string{i: "/"}}
		want := fmt.Sprintf("the description of the container: there is no mount %d", i)
		for name, err := range map[string]error{"shared": b.takeShared("/"), "parts": b.placeParts("/"),
			"volumes": b.fillVolumes("/")} {
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// What is set is below /proc/sys, and what cannot be set is told by the name that users know.
func TestWriteSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "as it was")
	out := strings.Repeat("../", 20) + file
	for setting, want := range map[string]string{
		out + "=gone":        "is below no directory of /proc/sys",
		file + "=gone":       "is below no directory of /proc/sys",
		"=gone":              "is below no directory of /proc/sys",
		"kernel/none/such=1": "sysctl kernel.none.such cannot be set",
	} {
		if err := writeSettings([]string{setting}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", setting, err, want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "as it was" {
		t.Errorf("%q, %v", text, err)
	}
	if err := writeSettings(nil); err != nil {
		t.Error(err)
	}
}

// Whatever is long or no text is cut to what people can read.
func TestLastLines(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if got := lastLines(log); got != "" {
		t.Errorf("%q", got)
	}
	write(t, log, strings.Repeat("line\n", 20)+"a \xff b\nend\n\n")
	want := "; the last lines of its log: " + strings.Repeat("line | ", 6) + "a ? b | end"
	if got := lastLines(log); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	write(t, log, strings.Repeat("x", 1<<20))
	if got := lastLines(log); len(got) > 3<<10 {
		t.Errorf("%d bytes", len(got))
	}
}

// CRIU and what it calls are found first by the names that libcontainer knows them by.
func TestChoosePrograms(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH"))
	dir := filepath.Join(t.TempDir(), programsDir)
	if err := choosePrograms(dir, "/opt/criu"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(os.Getenv("PATH"), dir+":/") {
		t.Errorf("PATH is %s", os.Getenv("PATH"))
	}
	if to, err := os.Readlink(filepath.Join(dir, "criu")); err != nil || to != "/opt/criu" {
		t.Errorf("%q, %v", to, err)
	}
	if err := choosePrograms(dir, "/opt/criu"); err == nil {
		t.Error("programs of another checkpoint are taken for its own")
	}
}

// Nothing is removed before somebody says so, and then nothing that links lead to.
func TestRemove(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept", "file")
	write(t, kept, "")
	dir := filepath.Join(t.TempDir(), "dir")
	write(t, filepath.Join(dir, "shut", "file"), "")
	if err := os.Symlink(filepath.Dir(kept), filepath.Join(dir, "shut", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "shut"), 0); err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	t.Cleanup(func() { os.Stdin = stdin })
	for _, c := range []struct {
		says string
		code int
	}{{"", 1}, {"x", 0}, {"x", 0}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(c.says); err != nil {
			t.Fatal(err)
		}
		w.Close()
		os.Stdin = r
		code := remove(dir)
		r.Close()
		_, err = os.Lstat(dir)
		if code != c.code || os.IsNotExist(err) != (c.code == 0) {
			t.Errorf("told %q it ends with %d, and then there is %v", c.says, code, err)
		}
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
