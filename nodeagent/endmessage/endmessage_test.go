package endmessage_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/endmessage"
)

func ended(file string) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		ExitCode: 1, Annotations: map[string]string{criconfig.AnnotationMessagePath: "/dev/termination-log",
			criconfig.AnnotationMessagePolicy: "FallbackToLogsOnError"},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: file}},
	}
}

func all(string) bool { return true }

// What processes may have put in the place of their file is not followed, and not waited for. spec: CTR-1
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	secret, link, pipe := filepath.Join(dir, "secret"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{link, pipe, dir, filepath.Join(dir, "missing")} {
		if got := endmessage.Of(ended(file), all); got != "" {
			t.Errorf("%s: %q", file, got)
		}
	}
	if got := endmessage.Of(ended(secret), all); got != "secret" {
		t.Errorf("a file of its own: %q", got)
	}
	// The runtime's word does not make a file the node's own.
	s := ended(secret)
	s.LogPath = secret
	if got := endmessage.Of(s, func(string) bool { return false }); got != "" {
		t.Errorf("a file that is not the node's own: %q", got)
	}
}

// Of a long file the end counts, as UTF-8; what the runtime says comes first. spec: CTR-1
func TestTheEndCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(file, []byte(strings.Repeat("a", 5000)+"\xffthe end"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := ended(file)
	s.Message = "killed"
	got := endmessage.Of(s, all)
	const says = "killed: "
	if !strings.HasPrefix(got, says+"aaa") || !strings.HasSuffix(got, "aaa?the end") || len(got) != len(says)+4096 {
		t.Errorf("%d bytes: %.20q ... %q", len(got), got, got[max(0, len(got)-20):])
	}
	// A runtime that mounts no file has read what it says in one of its own.
	s.Mounts = nil
	s.LogPath = file
	if got := endmessage.Of(s, all); got != "killed" {
		t.Errorf("without a mount: %q", got)
	}
}
