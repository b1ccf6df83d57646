package store

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// A full disk ends the store with one clear line, and nothing acknowledged is lost.
// spec: DEL-13
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=20m,mode=0700"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	run := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), fullDir+"="+dir)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it says where it hangs
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		t.Logf("%s", out)
		return string(out)
	}
	out := run()
	acknowledged := wantFull(t, out)
	if acknowledged == 0 {
		t.Error("nothing was written")
	}
	// What is left is filled, too.
	fill, err := os.Create(dir + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	fill.Close()
	acknowledged += wantFull(t, run())
	if err := os.Remove(dir + "/filler"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	items, err := s.List(t.Context(), corev1.PodKind, ListOptions{})
	if err != nil || len(items.Objects) < acknowledged {
		t.Errorf("%d of %d acknowledged pods, %v", len(items.Objects), acknowledged, err)
	}
	create(t, s, pod("default", "again"))
}

// wantFull checks that each line names the cause, and returns how many writes were acknowledged.
func wantFull(t *testing.T, out string) int {
	t.Helper()
	n := 0
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if _, err := fmt.Sscanf(line, "acknowledged %d", &n); err == nil {
			continue
		}
		if !strings.Contains(line, "no space left on device") {
			t.Errorf("does not name the cause: %s", line)
		}
	}
	return n
}
