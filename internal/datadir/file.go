package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// mostBytes is the largest file that ReadFile and ReadSecret read.
const mostBytes = 1 << 20

// ErrTooLarge means that a file is larger than any that is kept here.
var ErrTooLarge = errors.New("the file is too large")

// OpenFile opens a file in the directory, a new one with mode 0600. Of flag it takes os.O_RDONLY, os.O_RDWR and
// os.O_CREATE: nothing may happen to a file before it has been checked. Close it.
func (d *Dir) OpenFile(name string, flag int) (*os.File, error) {
	path := filepath.Join(d.path, name)
	// Not blocking, because opening a pipe would wait for its other end.
	f, err := os.OpenFile(path, flag&(os.O_RDONLY|os.O_RDWR|os.O_CREATE)|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		// What could not be opened may be a link or a device, or another user's, which says more.
		if info, gone := os.Lstat(path); gone == nil {
			if unsafe := checkFile(path, info); unsafe != nil {
				return nil, unsafe
			}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkFile(path, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile returns what is in a file, at most 1 MiB. It fails with fs.ErrNotExist when there is none.
func (d *Dir) ReadFile(name string) ([]byte, error) { return d.read(name, false) }

// ReadSecret is as ReadFile for a file that nobody else may read.
func (d *Dir) ReadSecret(name string) ([]byte, error) { return d.read(name, true) }

func (d *Dir) read(name string, secret bool) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if secret {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if err := checkPrivate(f.Name(), info, 0o600); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if len(data) > mostBytes {
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrTooLarge)
	}
	return data, nil
}

// Exists reports whether there is anything by that name, be it a link that leads nowhere.
func (d *Dir) Exists(name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Remove removes a file, or a link itself. It is no error when there is none.
func (d *Dir) Remove(name string) error {
	if err := os.Remove(filepath.Join(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Durability says what a new file outlives.
type Durability int

const (
	// Flushed is for what must outlive a power failure. The file's name does once Sync has returned.
	Flushed Durability = iota
	// Unflushed is for what may be lost or broken by a power failure, but not by the death of the process.
	Unflushed
)

// Replace makes a file with mode 0600 of what write writes, and puts it in the place of whatever bears the name. On
// any error the name stands for what it did before.
func (d *Dir) Replace(name string, how Durability, write func(*os.File) error) (err error) {
	f, err := os.CreateTemp(d.path, "."+name+".*") // It makes a file that was not there, with mode 0600.
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(d.path, name), err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", filepath.Join(d.path, name), errors.Join(err, os.Remove(f.Name())))
		}
	}()
	err = write(f)
	if err == nil && how == Flushed {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(d.path, name))
}

// Sweep removes what Replace has left in the directory of path, which need not exist, when its process was killed.
// Call it while nobody replaces files there.
func Sweep(path string) error {
	d, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		if e.Type().IsRegular() && unfinished.MatchString(e.Name()) {
			err = errors.Join(err, d.Remove(e.Name()))
		}
	}
	return err
}

// unfinished are the names of the files that Replace writes before they take their places.
var unfinished = regexp.MustCompile(`^\..+\.[0-9]+$`)

// Write puts a file with mode 0600 and this content in the place of whatever bears the name, whole or not at all. Call
// Sync after the last one.
func (d *Dir) Write(name string, data []byte) error {
	return d.Replace(name, Flushed, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// Sync makes the names of files outlive a power failure.
func (d *Dir) Sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	// Some file systems cannot, and keep names in order by themselves.
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// Keep puts a file into the checked directory of its path, whole or not at all. One that is to be Flushed outlives a
// power failure when Keep has returned, with its name.
func Keep(path string, how Durability, data []byte) error {
	d, err := Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = d.Replace(filepath.Base(path), how, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil || how != Flushed {
		return err
	}
	return d.Sync()
}
