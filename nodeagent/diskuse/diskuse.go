//go:build unix

// Package diskuse measures what the files in a directory take on their disk.
//
// It asks the file system and remembers nothing. Whoever else works with the files meanwhile, such as a container that
// tries to hide them, leads it nowhere but below the directory. What this user may not read is told, not left out in
// silence: package subids measures that too, where it belongs to users of containers.
package diskuse

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Size is what files take: bytes of their disk, and how many files there are, directories among them.
type Size struct{ Bytes, Inodes int64 }

// Add adds another size.
func (s *Size) Add(o Size) { s.Bytes, s.Inodes = s.Bytes+o.Bytes, s.Inodes+o.Inodes }

// blockSize is that of the blocks that stat counts.
const blockSize = 512

// Of measures the directory itself and what is below it on the same file system. It follows no links and counts a file
// with several names once; what is not there, or goes meanwhile, takes nothing. What cannot be read is left out, and
// the error says what was the first of that: fs.ErrPermission where this user may not.
func Of(ctx context.Context, dir string) (Size, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Size{}, ifThere(err)
	}
	defer root.Close()
	w := walk{linked: make(map[uint64]bool)}
	err = fs.WalkDir(root.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = w.count(entry)
		}
		if errors.Is(err, fs.SkipDir) {
			return err
		}
		if err = ifThere(err); err != nil && w.unread == nil {
			w.unread = fmt.Errorf("%s: %w", dir, err)
		}
		return nil
	})
	return w.size, errors.Join(err, w.unread)
}

type walk struct {
	size   Size
	device uint64 // That of the directory, which comes first.
	linked map[uint64]bool
	unread error
}

// count adds a file; fs.SkipDir for a directory of another file system.
func (w *walk) count(entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: the system does not say what it takes", entry.Name())
	}
	device := uint64(stat.Dev) //nolint:unconvert // its type differs between systems
	if w.size.Inodes == 0 {
		w.device = device
	}
	switch {
	case device != w.device && info.IsDir():
		return fs.SkipDir
	case device != w.device || w.linked[stat.Ino]:
		return nil
	case stat.Nlink > 1 && !info.IsDir():
		w.linked[stat.Ino] = true
	}
	w.size.Add(Size{Bytes: stat.Blocks * blockSize, Inodes: 1})
	return nil
}

// ifThere drops the error about what is not there any more.
func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
