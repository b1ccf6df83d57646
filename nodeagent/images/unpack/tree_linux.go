package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a directory in which paths are found as if it were the root of the file system. Nobody else changes it.
type tree struct {
	flavour Flavour
	root    handle
	// open are directories by their real paths.
	open map[string]int
	// implied are the real paths of directories that were made for what is in them: true for those that are said to be as
	// they are in lower layers, false for those that take the place of something that the layer removes.
	implied map[string]bool
	// names counts what has been in implied.
	names Names
	// opaques are the real paths of directories that hide what is below them.
	opaques map[string]struct{}
}

// handle is an open directory of the tree, valid until trim or drop closes it: path is real, free of links.
type handle struct {
	fd   int
	path string
}

const (
	// mostKept is how many directories are kept open from one entry to the next, mostOpen how many one entry may open.
	mostKept, mostOpen = 128, 1024
	// mostLinks is how many links are followed on the way to a directory.
	mostLinks = 40
)

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

func openTree(dir string, f Flavour) (*tree, error) {
	fd, err := unix.Open(dir, dirFlags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &tree{
		flavour: f, root: handle{fd: fd}, open: make(map[string]int), implied: make(map[string]bool),
		opaques: make(map[string]struct{}),
	}, nil
}

func (t *tree) close() {
	t.drop("")
	unix.Close(t.root.fd)
}

// trim closes all directories if there are many.
func (t *tree) trim() {
	if len(t.open) > mostKept {
		t.drop("")
	}
}

// make returns the directory that a path leads to, and makes what is missing of it.
func (t *tree) make(p string) (handle, error) { return t.walk(p, true) }

// find returns the directory that a path leads to; ENOENT or ENOTDIR if there is none.
func (t *tree) find(p string) (handle, error) { return t.walk(p, false) }

func (t *tree) walk(p string, create bool) (handle, error) {
	if p == "" {
		return t.root, nil
	}
	if fd, ok := t.open[p]; ok {
		return handle{fd, p}, nil
	}
	at, rest, links := t.root, strings.Split(p, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			up, err := t.walk(parentOf(at.path), create)
			if err != nil {
				return handle{}, err
			}
			at = up
			continue
		}
		next, err := t.step(at, name)
		switch {
		case err == nil:
			at = next
		case errors.Is(err, unix.ENOENT) && create:
			if at, err = t.imply(at, name); err != nil {
				return handle{}, err
			}
		case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
			target, linkErr := readlink(at.fd, name)
			switch {
			case linkErr == nil:
				if links++; links > mostLinks {
					return handle{}, hostile("its path goes through more than %d links", mostLinks)
				}
				if strings.HasPrefix(target, "/") {
					at = t.root
				}
				rest = append(strings.Split(target, "/"), rest...)
			case create: // a file, or the mark of a removed one, which the archive now uses as a directory
				if at, err = t.imply(at, name); err != nil {
					return handle{}, err
				}
			default:
				return handle{}, unix.ENOTDIR
			}
		default:
			return handle{}, err
		}
	}
	return at, nil
}

func parentOf(p string) string {
	if p = path.Dir(p); p == "." {
		return ""
	}
	return p
}

// step opens a directory in at.
func (t *tree) step(at handle, name string) (handle, error) {
	p := path.Join(at.path, name)
	if len(p) >= mostPath {
		return handle{}, hostile("its path has more than %d bytes", mostPath-1)
	}
	if fd, ok := t.open[p]; ok {
		return handle{fd, p}, nil
	}
	fd, err := unix.Openat(at.fd, name, dirFlags, 0)
	if err != nil {
		return handle{}, err
	}
	if len(t.open) >= mostOpen {
		unix.Close(fd)
		return handle{}, hostile("its path goes through more than %d directories", mostOpen-mostKept)
	}
	t.open[p] = fd
	return handle{fd, p}, nil
}

// imply makes a directory for what is in it.
func (t *tree) imply(at handle, name string) (handle, error) {
	made, err := t.mkdir(at, name)
	if err != nil {
		return handle{}, err
	}
	_, hides := t.opaques[made.path]
	t.implied[made.path] = !hides
	return made, t.names.Add(made.path)
}

// mkdir makes a directory, unless it is there. One that takes the place of a mark of removal hides what is below.
func (t *tree) mkdir(at handle, name string) (handle, error) {
	err := unix.Mkdirat(at.fd, name, 0o700)
	if !errors.Is(err, unix.EEXIST) {
		if err != nil {
			return handle{}, err
		}
		return t.step(at, name)
	}
	var s unix.Stat_t
	if err := unix.Fstatat(at.fd, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return handle{}, err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return t.step(at, name)
	}
	hides := isWhiteout(&s)
	if err := t.remove(at, name); err != nil {
		return handle{}, err
	}
	if err := unix.Mkdirat(at.fd, name, 0o700); err != nil {
		return handle{}, err
	}
	made, err := t.step(at, name)
	if err == nil && hides {
		err = t.opaque(made)
	}
	return made, err
}

func isWhiteout(s *unix.Stat_t) bool { return s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == 0 }

// opaque makes a directory hide what is below it.
func (t *tree) opaque(at handle) error {
	if err := unix.Fsetxattr(at.fd, t.flavour.Attribute("opaque"), []byte("y"), 0); err != nil {
		return fmt.Errorf("mark the directory as opaque: %w", err)
	}
	t.opaques[at.path] = struct{}{}
	return nil
}

// prune removes the marks of removed files from directories that hide all that is below anyway. Where nothing is
// below, overlayfs does not look at such marks, and lists them as files that cannot be opened.
func (t *tree) prune(dir string) error {
	for p := range t.opaques {
		err := filepath.WalkDir(filepath.Join(dir, p), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeCharDevice == 0 {
				return err
			}
			var s unix.Stat_t
			if err := unix.Lstat(p, &s); err != nil || !isWhiteout(&s) {
				return err
			}
			return os.Remove(p)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
	return nil
}

// whiteout notes that name is removed from what is below. What this layer itself has by that name stays, and a
// directory of it hides the one below.
func (t *tree) whiteout(at handle, name string) error {
	err := unix.Mknodat(at.fd, name, unix.S_IFCHR, 0)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	var s unix.Stat_t
	if err := unix.Fstatat(at.fd, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	made, err := t.step(at, name)
	if err != nil {
		return err
	}
	if t.implied[made.path] {
		t.implied[made.path] = false
	}
	return t.opaque(made)
}

// remove removes what is at name.
func (t *tree) remove(at handle, name string) error {
	err := unix.Unlinkat(at.fd, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		gone := path.Join(at.path, name)
		t.drop(gone)
		for p := range t.implied {
			if below(p, gone) {
				delete(t.implied, p)
			}
		}
		for p := range t.opaques {
			if below(p, gone) {
				delete(t.opaques, p)
			}
		}
		err = RemoveAll(filepath.Join("/proc/self/fd", strconv.Itoa(at.fd), name))
	}
	return err
}

// drop closes the directories at and below a path; all if it is empty.
func (t *tree) drop(p string) {
	for old, fd := range t.open {
		if below(old, p) {
			unix.Close(fd)
			delete(t.open, old)
		}
	}
}

// below reports whether a real path is at or below another one.
func below(p, top string) bool { return top == "" || p == top || strings.HasPrefix(p, top+"/") }

func readlink(fd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
