// Package datadir opens directories in which secrets and the truth about pods are kept, and the files in them, so that
// nobody but the user who runs this, and root, can have made or can change what is read there.
//
// Guarantees: a directory that Make or Open returns belongs to the running user, nobody else may write in it, and no
// directory above it lets others put another in its place. Root is held to the same rules: a directory that another
// user made would let that user choose root's certificate authority. In such a directory no link is followed, and
// every file that is opened is a regular one of the running user's, without a second name. Files that Replace and
// Write make appear whole or not at all, also after a crash or on a full disk. What breaks a rule is refused with an
// *UnsafeError: one line with the path, what was found, what was expected and the remedy. Nothing is repaired unasked.
//
// Paths are checked from the root downwards, so that what has been checked can only be changed by those who are
// trusted. Whoever has the running user's rights, such as the user's other programs, is trusted.
//
//	dir, err := datadir.Make("/var/lib/monoplane")
//	pki, err := dir.Make("pki")
//	secret, err := pki.ReadSecret("ca.key")
//	err = dir.Write("machine-key", data)
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mode is that of the directories that are made.
const mode = 0o700

// mostLinks is how many symbolic links above a directory are followed.
const mostLinks = 40

// Dir is a directory that has been checked. It holds no resources.
type Dir struct{ path string }

// Make returns the directory at path, and makes it and what is missing above it, with mode 0700. Symbolic links
// are followed above it and for itself, if nobody else can change them.
func Make(path string) (*Dir, error) { return open(path, true) }

// Open is as Make for a directory that must exist; the error is fs.ErrNotExist when it does not.
func Open(path string) (*Dir, error) { return open(path, false) }

// Path returns the directory's path, absolute.
func (d *Dir) Path() string { return d.path }

// Make returns a directory in d, and makes it if it is missing, with mode 0700. It must not be a link.
func (d *Dir) Make(name string) (*Dir, error) {
	path := filepath.Join(d.path, name)
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return d.Open(name)
}

// Open is as Make for a directory that must exist; the error is fs.ErrNotExist when it does not.
func (d *Dir) Open(name string) (*Dir, error) {
	path := filepath.Join(d.path, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := checkDir(path, info); err != nil {
		return nil, err
	}
	return &Dir{path}, nil
}

// Private returns an error if others than the running user can look into the directory.
func (d *Dir) Private() error {
	info, err := os.Lstat(d.path)
	if err != nil {
		return err
	}
	return checkPrivate(d.path, info, mode)
}

func open(path string, create bool) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	real, info, err := walk(path, create)
	if err != nil {
		return nil, err
	}
	if err := checkDir(real, info); err != nil {
		return nil, err
	}
	return &Dir{path}, nil
}

// walk follows path from the root, one component at a time, and refuses what others could replace. It returns where
// path leads, free of links, and what is there.
func walk(path string, create bool) (string, fs.FileInfo, error) {
	at, links := string(filepath.Separator), 0
	info, err := os.Lstat(at)
	if err != nil {
		return "", nil, err
	}
	for rest := components(path); len(rest) > 0; {
		// What is beyond at can only be trusted if at can.
		if err := checkParent(at, info, path); err != nil {
			return "", nil, err
		}
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, name)
		if info, err = lstat(next, create); err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if err := checkLink(next, info, path); err != nil {
			return "", nil, err
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if links++; links > mostLinks {
			return "", nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		if info, err = os.Lstat(at); err != nil {
			return "", nil, err
		}
		rest = append(components(target), rest...)
	}
	return at, info, nil
}

// lstat looks at a path and makes a directory of it when it is missing.
func lstat(path string, create bool) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	return os.Lstat(path)
}

func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}
