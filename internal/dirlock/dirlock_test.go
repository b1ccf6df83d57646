package dirlock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSecondOwnerIsRefusedByName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	first, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(dir)
	var used *InUseError
	if !errors.As(err, &used) || used.PID != os.Getpid() || used.Dir != dir {
		t.Fatalf("second Acquire: %v, want an InUseError that names process %d", err, os.Getpid())
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := Acquire(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestWaitFree(t *testing.T) {
	dir := t.TempDir()
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := WaitFree(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("WaitFree of a locked directory: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- WaitFree(t.Context(), dir) }()
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
