package oom_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/nodeagent/oom"
)

func TestParse(t *testing.T) {
	for record, want := range map[string]oom.Victim{
		"3,9,1,-;Out of memory: Killed process 4711 (stress) total-vm:1kB, anon-rss:2kB\n": {PID: 4711, Process: "stress"},
		"3,9,1,-;Memory cgroup out of memory: Killed process 4711 (stress) total-vm:1kB\n": {},
		"Out of memory: Killed process 1 (x)":                                              {},
		"6,8081,22602082609,-;veth0c36a165: entered allmulticast mode\n":                   {},
		"4,1,1,-;Out of memory: Killed process 99999999999999999999 (big) x":               {},
		"4,1,1,-;said: Out of memory: Killed process 5 (not by the kernel)":                {},
	} {
		if got, ok := oom.Parse(record); ok != (want.PID != 0) || ok && got != want {
			t.Errorf("%q: %+v, %v", record, got, ok)
		}
	}
}

// A pipe stands for the kernel's log but cannot be sought, so that only the end and the failures are tried on files.
func TestWatchEnds(t *testing.T) {
	if err := oom.Watch(t.Context(), filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
	if f, err := os.OpenFile(oom.Log, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		t.Skipf("the kernel's log cannot be read here: %v", err)
	} else {
		f.Close()
	}
	for range 1000 { // at times the file is closed before it was sought, and at times while it is read
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- oom.Watch(ctx, oom.Log, func(oom.Victim) {}) }()
		runtime.Gosched()
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it goes on after its context has ended")
		}
	}
}
