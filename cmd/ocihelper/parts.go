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

	"monoplane.dev/nodeagent/volumes/subpath"
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
	part, err := subpath.Beneath(from, sub)
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
