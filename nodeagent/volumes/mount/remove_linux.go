package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove unmounts all that is mounted at and below dir, the last mounted first, and then removes dir and all in it. It
// never looks into what is still mounted: that is an error, and stays whole. A dir that does not exist is fine.
func Remove(ctx context.Context, dir string) error {
	if err := UnmountAll(dir); err != nil {
		return err
	}
	parent, err := unix.Open(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Dir(dir), Err: err}
	}
	defer unix.Close(parent)
	r := remover{ctx: ctx, top: -1}
	return r.remove(parent, filepath.Base(dir), dir, 0)
}

// UnmountAll unmounts all that is mounted at and below dir, the last mounted first.
func UnmountAll(dir string) error {
	points, err := Below(dir)
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(points) {
		if err := Unmount(point); err != nil {
			return err
		}
	}
	return nil
}

// deepest is how far down a remover goes, with an open descriptor for each level. What lies deeper is first moved up:
// a container can make a tree that is deeper than the descriptors that a process can have.
const deepest = 100

type remover struct {
	ctx context.Context
	// top is the open directory that is being removed, -1 before it is opened.
	top   int
	moved int
}

// remove removes an entry of the open directory parent; path is for messages.
func (r *remover) remove(parent int, name, path string, depth int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	notDirectory := err
	if depth > deepest {
		r.moved++
		err := unix.Renameat(parent, name, r.top, ".removed."+strconv.Itoa(r.moved))
		if err != nil {
			return &fs.PathError{Op: "move up", Path: path, Err: err}
		}
		return nil
	}
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s is not removed: something is mounted there", path)
	case errors.Is(err, unix.ENOTDIR):
		return &fs.PathError{Op: "remove", Path: path, Err: notDirectory}
	case err != nil:
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	if depth == 0 {
		r.top = fd
	}
	for {
		before := r.moved
		if err := r.empty(dir, fd, path, depth); err != nil {
			return err
		}
		if depth > 0 || r.moved == before { // else there is something new in this directory
			break
		}
	}
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// empty removes all entries of an open directory, some hundreds at a time.
func (r *remover) empty(dir *os.File, fd int, path string, depth int) error {
	for {
		if _, err := dir.Seek(0, 0); err != nil {
			return err
		}
		names, err := dir.Readdirnames(512)
		if len(names) == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, name := range names {
			if err := r.remove(fd, name, filepath.Join(path, name), depth+1); err != nil {
				return err
			}
		}
	}
}
