package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile waits for the exclusive kernel lock of an open file. It ends with the file, or the process.
func lockFile(ctx context.Context, f *os.File) error {
	const first, most = time.Millisecond, 50 * time.Millisecond
	for pause := first; ; pause = min(2*pause, most) {
		err := tryLock(f)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("wait for %s, which another process uses: %w", f.Name(), context.Cause(ctx))
		}
	}
}

// tryLock takes the lock, or fails with EWOULDBLOCK.
func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// locked does something while nobody else changes index, leases or roots. It must not take long.
func (s *Store) locked(ctx context.Context, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return os.ErrClosed
	}
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lockFile(ctx, f); err != nil {
		return err
	}
	return do()
}
