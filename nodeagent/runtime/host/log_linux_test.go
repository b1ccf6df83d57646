package host

import (
	"fmt"
	"os"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// spec: CTR-8
func TestThousandsOfLines(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	n := newNode(t)
	const lines = 20000
	id := n.shell("many", fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done", lines))
	n.wait(id)
	got := strings.Split(strings.TrimSuffix(n.logText(id), "\n"), "\n")
	if len(got) != lines {
		t.Fatalf("%d lines, want %d", len(got), lines)
	}
	for i, l := range got {
		if want := fmt.Sprintf("stdout F line %d", i); l != want {
			t.Fatalf("line %d is %q", i, l)
		}
	}
}

// What a process wrote last is in the log before the container is exited.
//
// spec: CTR-8
func TestLastWords(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	n := newNode(t)
	sb := n.sandbox("last")
	const size = 60_000 // It fits into the pipe, so that the process does not wait for its reader.
	for i := range 20 {
		id := n.run(sb, containerConfig(fmt.Sprint("c", i), "head", "-c", fmt.Sprint(size), "/dev/zero"))
		n.wait(id)
		if got := strings.Count(n.logText(id), "\x00"); got != size {
			t.Fatalf("%d of %d bytes are in the log", got, size)
		}
	}
}

// spec: CTR-8
func TestRotation(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	n := newNode(t)
	id := n.shell("rotated", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.001; done")
	path := n.status(id).GetLogPath()
	lines := func(name string) []string {
		b, err := os.ReadFile(name)
		if err != nil || len(b) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	}
	var all []string
	for i := range 5 {
		eventually(t, "something is logged", func() bool { return len(lines(path)) > 5 })
		old := fmt.Sprintf("%s.%d", path, i)
		if err := os.Rename(path, old); err != nil {
			t.Fatal(err)
		}
		if _, err := n.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		all = append(all, lines(old)...)
	}
	n.stop(id, 0)
	all = append(all, lines(path)...)
	for i, l := range all {
		if want := fmt.Sprintf(" stdout F line %d", i); !strings.HasSuffix(l, want) {
			t.Fatalf("entry %d is %q", i, l)
		}
	}
	if _, err := n.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err == nil {
		t.Error("the log of an exited container was reopened")
	}
}

// A container without a log path, or whose log cannot be opened.
func TestNoLog(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	n := newNode(t)
	sb := n.sandbox("nolog")
	config := containerConfig("silent", "/bin/sh", "-c",
		"i=0; while [ $i -lt 20000 ]; do echo 1234567890; i=$((i+1)); done")
	config.LogPath = ""
	if st := n.wait(n.run(sb, config)); st.GetExitCode() != 0 {
		t.Errorf("status %v", st)
	}
	config = containerConfig("blocked", "/bin/true")
	config.LogPath = "blocked"
	if err := os.MkdirAll(n.logs+"/nolog/blocked", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.start(n.create(sb, config)); err == nil || !strings.Contains(err.Error(), "log file") {
		t.Errorf("a log that is a directory: %v", err)
	}
}
