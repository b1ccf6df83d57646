package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"monoplane.dev/internal/datadir"
)

// A lock that somebody has made a link of is refused, and what it leads to stays as it is.
func TestLinkIsNotFollowed(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, Name)); err != nil {
		t.Fatal(err)
	}
	var unsafe *datadir.UnsafeError
	if _, err := Acquire(dir); !errors.As(err, &unsafe) || unsafe.Path != filepath.Join(dir, Name) {
		t.Errorf("%v, want an UnsafeError that names the link", err)
	}
	if err := WaitFree(t.Context(), dir); !errors.As(err, &unsafe) {
		t.Errorf("WaitFree: %v", err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the link's target holds %q, %v", text, err)
	}
}

// Who looks whether a directory is in use neither writes in it nor keeps others out.
func TestHeld(t *testing.T) {
	d, err := datadir.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := Held(d); err != nil {
		t.Errorf("never used: %v", err)
	}
	if entries, err := os.ReadDir(d.Path()); err != nil || len(entries) > 0 {
		t.Errorf("a look left %v, %v", entries, err)
	}
	l, err := AcquireIn(d)
	if err != nil {
		t.Fatal(err)
	}
	var used *InUseError
	if err := Held(d); !errors.As(err, &used) || used.PID != os.Getpid() {
		t.Errorf("in use: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := Held(d); err != nil {
		t.Errorf("free again: %v", err)
	}
	synctest.Test(t, func(t *testing.T) { // the time that AcquireIn waits is virtual
		look, err := d.OpenFile(Name, os.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(look.Fd()), syscall.LOCK_SH); err != nil {
			t.Fatal(err)
		}
		if _, err := AcquireIn(d); !errors.As(err, &used) {
			t.Errorf("while the lock stays held: %v", err)
		}
		got := make(chan error, 1)
		go func() {
			l, err := AcquireIn(d)
			if err == nil {
				err = l.Release()
			}
			got <- err
		}()
		synctest.Wait()
		look.Close()
		if err := <-got; err != nil {
			t.Errorf("while somebody looks: %v", err)
		}
	})
}

// A line that was only half replaced does not give a wrong number.
func TestTornPID(t *testing.T) {
	dir := t.TempDir()
	for _, old := range []string{"", "1\n", "4194304\n", "99\n4304\n", "garbage", "\n\n\n\n\n\n\n\n\n\n"} {
		if err := os.WriteFile(filepath.Join(dir, Name), []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Acquire(dir)
		if err != nil {
			t.Fatalf("%q: %v", old, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, Name)); err != nil || string(text) != fmt.Sprintln(os.Getpid()) {
			t.Errorf("after %q the lock holds %q, %v", old, text, err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
