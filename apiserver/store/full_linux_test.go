package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/apierrors"
)

// On a full disk each write is refused with one clear error, and so is readiness; reads go on, nothing acknowledged is
// lost, and once there is room the same store writes again. A store that is opened then works so, or says why not.
// spec: DEL-13
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=0700"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s := open(t, fsyncConfig(dir))
	written := 0
	write := func(s *Store) error {
		p := benchPod(fmt.Sprintf("pod-%05d", written))
		_, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
		if err == nil {
			written++
		}
		return err
	}
	refused := func(err error) {
		t.Helper()
		wantReason(t, err, apierrors.ServiceUnavailable)
		if !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "\n") {
			t.Errorf("does not name the cause: %v", err)
		}
	}
	all := func(s *Store) {
		t.Helper()
		if n := len(list(t, s, ListOptions{}).Objects); n != written {
			t.Errorf("%d of %d acknowledged pods", n, written)
		}
	}
	var err error
	for err == nil && written < 100_000 {
		err = write(s)
	}
	refused(err)
	if written == 0 {
		t.Error("nothing was written")
	}
	// Somebody else takes what is left, while etcd has batches in memory.
	fill, err := os.Create(dir + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	fill.Close()
	began := time.Now()
	until(t, func() bool {
		refused(write(s))
		all(s)
		return t.Failed() || time.Since(began) > 2*time.Second // longer than batches stay in memory
	})
	until(t, func() bool { return s.Ready(t.Context()) != nil })
	refused(s.Ready(t.Context()))
	if err := errors.Join(s.Live(t.Context()), s.Err()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err = Open(t.Context(), fsyncConfig(dir)); err == nil {
		refused(write(s))
		all(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	} else if !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("opened: %v", err)
	}
	if err := os.Remove(dir + "/filler"); err != nil {
		t.Fatal(err)
	}

	if s, err = Open(t.Context(), fsyncConfig(dir)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all(s)
	refused(write(s))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	if err := write(s); err != nil {
		t.Errorf("with room again: %v", err)
	}
	until(t, func() bool { return s.Ready(t.Context()) == nil })
	all(s)
}
