// Package dirlock lets one process at a time use a directory. The lock is a kernel lock on a file in it: it
// ends with the process, however that ends, and is not inherited by the programs that it runs. Directory and file must
// be safe in the sense of package internal/datadir.
package dirlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"monoplane.dev/internal/datadir"
)

// Name is the file whose lock says that the directory is in use. It holds the owner's process id.
const Name = "lock"

// Lock is a held lock.
type Lock struct{ file *os.File }

// linger is how long the lock of a process that is dead may last: a child that it was just making holds it until it
// runs its program.
const linger = 2 * time.Second

// glance is how long Acquire waits for the lock of a process that lives: somebody may just be looking (see Held).
const glance = 20 * time.Millisecond

// Acquire creates dir with mode 0700 if necessary and locks it for this process. It fails with an *InUseError when
// another process holds the lock, in a moment unless that process has just died.
func Acquire(dir string) (*Lock, error) {
	d, err := datadir.Make(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return AcquireIn(d)
}

// AcquireIn is as Acquire for a directory that is open.
func AcquireIn(dir *datadir.Dir) (*Lock, error) {
	f, err := dir.OpenFile(Name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory %s: %w", dir.Path(), err)
		}
		return nil, &InUseError{Dir: dir.Path(), PID: readPID(f)}
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory: %w", err), f.Close())
	}
	return &Lock{f}, nil
}

// Held returns an *InUseError when a process holds the lock of dir, and nil when none does. It takes
// the lock for the moment of the look, which Acquire waits for.
func Held(dir *datadir.Dir) error {
	f, err := dir.OpenFile(Name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	defer f.Close()
	// Shared, so that two who look do not take each other for the owner.
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return &InUseError{Dir: dir.Path(), PID: readPID(f)}
	default:
		return fmt.Errorf("lock of data directory %s: %w", dir.Path(), err)
	}
}

// lock locks the file, and waits for it only where nobody alive owns it.
func lock(f *os.File) error {
	const poll = 2 * time.Millisecond
	for wait := time.Duration(0); ; wait += poll {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || wait >= linger || wait >= glance && alive(readPID(f)) {
			return err
		}
		time.Sleep(poll)
	}
}

// alive reports whether a process exists; one that is not known is taken for alive.
func alive(pid int) bool { return pid <= 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// Release gives the directory free.
func (l *Lock) Release() error { return l.file.Close() }

// WaitFree returns when no process holds the lock of dir, or ctx ends.
func WaitFree(ctx context.Context, dir string) error {
	const poll = 5 * time.Millisecond
	tick := time.NewTicker(poll)
	defer tick.Stop()
	d, err := datadir.Open(dir)
	if err != nil {
		return err
	}
	for {
		err := Held(d)
		if err == nil {
			return nil
		}
		var used *InUseError
		if !errors.As(err, &used) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// InUseError says that another process uses a directory.
type InUseError struct {
	// Dir is the directory.
	Dir string
	// PID is the owner's process id; 0 when it is not known.
	PID int
}

// Error returns the message.
func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by process %d", e.Dir, e.PID)
}

func readPID(f *os.File) int {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // a short or failed read gives no number
	line, _, _ := bytes.Cut(b[:n], []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return 0
	}
	return pid
}

// writePID writes before it cuts: overwriting needs no room on the disk, and what follows the line is not read.
func writePID(f *os.File) error {
	line := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if _, err := f.WriteAt(line, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(line)))
}
