package subpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tries bounds how often a path is resolved again.
const tries = 1000

// Open opens path below the directory volume, for mounting only. Directories that are missing are made with the
// permissions of the volume's own. The caller closes the file.
func Open(volume, path string) (*os.File, error) {
	if filepath.IsAbs(path) {
		return nil, fmt.Errorf("the path %q must not be absolute", path)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return nil, fmt.Errorf("the path %q must not contain '..'", path)
		}
	}
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: volume, Err: err}
	}
	defer unix.Close(root)
	fd, err := open(root, filepath.Clean(path), 0)
	if errors.Is(err, unix.ENOENT) {
		fd, err = create(root, strings.Split(filepath.Clean(path), "/"))
	}
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("the path %q leads out of the volume, or through a link that cannot be followed", path)
	case err != nil:
		return nil, &fs.PathError{Op: "open in the volume", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Beneath opens a path below the directory root, for mounting only; links that lead out of it are refused with EXDEV
// or ELOOP. It tries again when something on the machine was renamed or mounted meanwhile: of a path that leads up the
// kernel cannot tell then whether it has led out (openat2(2), EAGAIN). The caller closes the descriptor.
func Beneath(root int, path string) (int, error) { return open(root, path, 0) }

func open(root int, path string, flags uint64) (fd int, err error) {
	for range tries {
		fd, err = unix.Openat2(root, path, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// create opens a path one directory after the other, and makes those that are missing. It returns the last.
func create(root int, parts []string) (int, error) {
	var top unix.Stat_t
	if err := unix.Fstat(root, &top); err != nil {
		return -1, err
	}
	mode := top.Mode & (0o777 | unix.S_ISGID)
	at, made := root, false
	for i, part := range parts {
		next := -1
		err := error(unix.ENOENT)
		if !made { // what exists may lead through links, as long as they stay in the volume
			next, err = open(root, strings.Join(parts[:i+1], "/"), 0)
		}
		if errors.Is(err, unix.ENOENT) {
			next, err = makeIn(at, part, mode)
			made = true
		}
		if at != root {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// makeIn makes a directory, and opens it unless somebody has put something else in its place.
func makeIn(dir int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(dir, name, mode&0o777); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	fd, err := open(dir, name, unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	// Whatever the agent's umask. The descriptor was opened for its path only, which cannot be changed directly.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
