package view

import (
	"errors"
	"strconv"
	"syscall"
)

// mask takes from the container what it is not to have of the kernel's files: there is nothing at the hidden paths but
// an empty file, or an empty directory that cannot be written to, and the sealed ones cannot be written to. It comes
// last, so that no mount of the container's lies above. A path that the machine lacks needs nothing.
func mask(hidden, sealed []string) error {
	nothing := -1 // An empty file system, the same for all directories.
	for _, path := range hidden {
		err := over(path, func(_ int, isDir bool) (tree int, err error) {
			switch {
			case !isDir:
				return emptyFile()
			case nothing < 0:
				if nothing, err = newTmpfs([2]string{"mode", "0555"}); err != nil {
					return -1, err
				}
				return nothing, setAttr(nothing, mountAttr{set: attrReadOnly}, false)
			}
			return cloneTree(nothing, "")
		})
		if err != nil {
			return errors.New(strconv.Quote(path) + " cannot be hidden: " + err.Error())
		}
	}
	for _, path := range sealed {
		err := over(path, func(at int, _ bool) (int, error) {
			tree, err := cloneTree(at, "")
			if err != nil {
				return -1, err
			}
			return tree, setAttr(tree, mountAttr{set: attrReadOnly, propagation: syscall.MS_PRIVATE}, true)
		})
		if err != nil {
			return errors.New(strconv.Quote(path) + " cannot be made read-only: " + err.Error())
		}
	}
	return nil
}

// over mounts at a path, if that exists, what is made for what lies there. The descriptors go when the container's
// program is executed.
func over(path string, cover func(at int, isDir bool) (tree int, err error)) error {
	at, err := syscall.Open(path, oPath|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer syscall.Close(at)
	var st syscall.Stat_t
	if err := syscall.Fstat(at, &st); err != nil {
		return err
	}
	tree, err := cover(at, st.Mode&syscall.S_IFMT == syscall.S_IFDIR)
	if err != nil {
		return err
	}
	return attach(tree, at, "")
}

// emptyFile returns the device that is always empty, to be mounted.
func emptyFile() (int, error) {
	fd, err := syscall.Open("/dev/null", oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(fd)
	return cloneTree(fd, "")
}
