package podlog_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/nodeagent/podlog"
)

// A process of the container may put a pipe where its log was: nobody waits for its other end.
func TestPipeInTheLogsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		if text := podlog.Last(path, 10, 100); text != "" {
			t.Errorf("the end of the log is %q", text)
		}
		done <- podlog.Read(t.Context(), path, podlog.Options{Tail: -1, Limit: -1}, nil, func([]byte) error { return nil })
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a pipe was read as a log")
		}
	case <-time.After(time.Minute):
		t.Fatal("the reader waits for the pipe")
	}
}
