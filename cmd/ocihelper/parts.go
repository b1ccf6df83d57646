//go:build linux && cgo

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// placeParts finds the mounts of which only a path below their source is wanted, as they are now, and puts each where
// the container's mount names it. Links on the way are followed as long as they stay below the source, whoever changes
// them meanwhile: from then on nobody looks at the path again.
func (b *bundle) placeParts(dir string) error {
	for i, sub := range b.Parts {
		m, err := b.mount(i)
		if err != nil {
			return err
		}
		at, err := placePart(m.Source, cmp.Or(b.Images[i].Name, m.Source), sub, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		m.Source = at
	}
	return nil
}

// placePart places one, of a source that errors call by its name.
func placePart(source, name, sub, at string) (string, error) {
	from, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: source, Err: err}
	}
	defer unix.Close(from)
	part, err := openPart(from, sub)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		return "", fmt.Errorf("the path %q leads out of %q", sub, name)
	}
	if err != nil {
		return "", fmt.Errorf("the path %q below %q: %w", sub, name, err)
	}
	defer unix.Close(part)
	tree, err := unix.OpenTree(part, "", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH|
		unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("the path %q below %q cannot be mounted: %w", sub, name, err)
	}
	defer unix.Close(tree)
	return at, moveTo(tree, at)
}

// openPartTries bounds how often a path is opened again. One that leads up has to be, whenever anything on the machine
// is renamed or mounted meanwhile: the kernel cannot tell then whether it led out (openat2(2), EAGAIN).
const openPartTries = 1000

// openPart opens a path below a directory, whatever links there are on its way.
func openPart(from int, sub string) (fd int, err error) {
	for range openPartTries {
		fd, err = unix.Openat2(from, sub, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}
