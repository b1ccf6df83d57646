//go:build linux && cgo

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Marks of what is not there any more, as layers of images have them.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// writeDiff writes the files that a container has written, as a layer of an image; all of its files if its root is a
// copy.
func writeDiff(b *bundle, to string) error {
	from := b.Upper
	if from == "" {
		from = b.Layers[0]
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	d := &diff{root: root, w: tar.NewWriter(f), bundle: b, links: map[[2]uint64]string{}}
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = d.add(name)
		}
		if err != nil {
			return fmt.Errorf("the files of the container: %s: %w", name, err)
		}
		return nil
	})
	return errors.Join(err, d.w.Close(), f.Close())
}

// diff writes a layer. Nothing outside of root is looked at, whatever links are there.
type diff struct {
	root   *os.Root
	w      *tar.Writer
	bundle *bundle
	// links are the names of files that have several, by device and inode.
	links map[[2]uint64]string
}

func (d *diff) add(name string) error {
	info, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: no status", name)
	case info.Mode()&fs.ModeSocket != 0:
		return nil // Nobody would listen there.
	case info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0:
		return d.w.WriteHeader(&tar.Header{Name: path.Join(path.Dir(name), whiteout+path.Base(name))})
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = d.root.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Format = name, "", "", tar.FormatPAX
	h.Uid, h.Gid = inside(d.bundle.UIDs, h.Uid), inside(d.bundle.GIDs, h.Gid)
	if info.IsDir() {
		h.Name += "/"
	} else if st.Nlink > 1 {
		key := [2]uint64{st.Dev, st.Ino}
		if first, again := d.links[key]; again {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return d.w.WriteHeader(h)
		}
		d.links[key] = name
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return d.w.WriteHeader(h)
	}
	return d.content(name, h)
}

// content adds a file or a directory, with its extended attributes.
func (d *diff) content(name string, h *tar.Header) error {
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	isOpaque, err := attributes(int(f.Fd()), h)
	if err != nil {
		return err
	}
	if err := d.w.WriteHeader(h); err != nil {
		return err
	}
	if isOpaque {
		return d.w.WriteHeader(&tar.Header{Name: path.Join(name, opaque)})
	}
	if h.Typeflag == tar.TypeReg {
		_, err = io.CopyN(d.w, f, h.Size)
	}
	return err
}

// attributes reads the extended attributes of a file, and whether it is a directory that hides those of the layers
// below. What overlayfs or SELinux obey is the machine's, and left out.
func attributes(fd int, h *tar.Header) (isOpaque bool, err error) {
	const most = 64 << 10 // Of the kernel.
	names := make([]byte, most)
	n, err := unix.Flistxattr(fd, names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return false, nil
	}
	if err != nil {
		return false, os.NewSyscallError("flistxattr", err)
	}
	value := make([]byte, most)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return false, os.NewSyscallError("fgetxattr", err)
		}
		switch {
		case name == "trusted.overlay.opaque" || name == "user.overlay.opaque":
			isOpaque = string(value[:n]) == "y"
		case strings.HasPrefix(name, "trusted."), strings.HasPrefix(name, "user.overlay."), name == "security.selinux":
		default:
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords["SCHILY.xattr."+name] = string(value[:n])
		}
	}
	return isOpaque, nil
}

// inside is the id in the container that is id outside. One that it does not have stays.
func inside(ids []specs.LinuxIDMapping, id int) int {
	for _, m := range ids {
		if first := int(m.HostID); id >= first && id < first+int(m.Size) {
			return int(m.ContainerID) + id - first
		}
	}
	return id
}
