package dirlock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A process that was killed while it made a child leaves the lock to the child for a moment. That is not another
// owner.
func TestLockOfADeadProcess(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	child, err := os.Create(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	if err := syscall.Flock(int(child.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(child, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	var used *InUseError
	if _, err := Acquire(dir); !errors.As(err, &used) {
		t.Errorf("a living owner: %v", err)
	}
	if _, err := child.WriteAt([]byte(fmt.Sprintln(dead.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if err := child.Truncate(int64(len(fmt.Sprintln(dead.Process.Pid)))); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := Acquire(dir)
		if err == nil {
			err = l.Release()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if err := child.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
