//go:build linux && cgo

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// fillVolumes gives the volumes that the image declares what the root has at their places, and puts them where the
// container's mounts name them. The root is mounted, and nothing runs in it yet: nobody changes it meanwhile. Links on
// the way to such a place are followed as if the root were all there is.
func (b *bundle) fillVolumes(root string) error {
	for i, dir := range b.Volumes {
		m, err := b.mount(i)
		if err != nil {
			return err
		}
		if err := b.fillVolume(root, m.Destination, dir); err != nil {
			return fmt.Errorf("the volume %q that the image declares: %w", m.Destination, err)
		}
		m.Source = dir
	}
	return nil
}

// fillVolume fills one. Of what the image has nothing at, the directory is root's.
func (b *bundle) fillVolume(root, place, dir string) error {
	handle, err := pathrs.OpenInRoot(root, place)
	if errors.Is(err, fs.ErrNotExist) {
		uid, gid := b.rootIDs()
		return os.Lchown(dir, uid, gid)
	}
	if err != nil {
		return err
	}
	defer handle.Close()
	if st, err := handle.Stat(); err != nil || !st.IsDir() {
		return errors.Join(err, errors.New("the image has something else there than a directory"))
	}
	from, err := pathrs.Reopen(handle, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer from.Close()
	c := copier{from: fmt.Sprintf("/proc/self/fd/%d", from.Fd()), to: dir, links: map[[2]uint64]string{}}
	// The attributes of the directory itself are those of what the descriptor stands for, not of its link in /proc.
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if err := c.children("."); err != nil {
		return err
	}
	return c.attributes(".", &st)
}

// rootIDs are those of the container's root, as this process sees them.
func (b *bundle) rootIDs() (uid, gid int) {
	for _, m := range b.UIDs {
		if m.ContainerID == 0 {
			uid = int(m.HostID)
		}
	}
	for _, m := range b.GIDs {
		if m.ContainerID == 0 {
			gid = int(m.HostID)
		}
	}
	return uid, gid
}

// copier copies a tree as it is: owners, modes, times, extended attributes, and which names are one file.
type copier struct {
	from, to string
	// links are the copies of files with several names, by device and inode.
	links map[[2]uint64]string
	// names and value are for extended attributes: the most that the kernel has of them.
	names, value [64 << 10]byte
}

// children copies what is in a directory, which there is of the copy already.
func (c *copier) children(dir string) error {
	f, err := os.Open(filepath.Join(c.from, dir))
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		const atOnce = 1000 // However many there are.
		names, err := f.Readdirnames(atOnce)
		for _, name := range names {
			if err := c.entry(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *copier) entry(name string) error {
	src, dst := filepath.Join(c.from, name), filepath.Join(c.to, name)
	var st unix.Stat_t
	if err := unix.Lstat(src, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		key := [2]uint64{st.Dev, st.Ino}
		if first, ok := c.links[key]; ok {
			return os.Link(first, dst)
		}
		c.links[key] = dst
	}
	var err error
	switch kind {
	case unix.S_IFDIR:
		if err = os.Mkdir(dst, 0o700); err == nil {
			err = c.children(name)
		}
	case unix.S_IFREG:
		err = copyFile(src, dst)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(src); err == nil {
			err = os.Symlink(target, dst)
		}
	default:
		err = unix.Mknod(dst, kind|0o600, int(st.Rdev))
	}
	if err != nil {
		return fmt.Errorf("%s cannot be copied: %w", name, err)
	}
	return c.attributes(name, &st)
}

// copyFile copies a file; the copy shares its blocks where the file system can do that.
func copyFile(src, dst string) error {
	from, err := os.OpenFile(src, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) != nil {
		_, err = io.Copy(to, from)
	}
	return errors.Join(err, to.Close())
}

// attributes gives a copy what its original has. The owner first, for changing it takes away setuid and capabilities.
func (c *copier) attributes(name string, st *unix.Stat_t) error {
	dst := filepath.Join(c.to, name)
	if err := os.Lchown(dst, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	isLink := st.Mode&unix.S_IFMT == unix.S_IFLNK
	if !isLink {
		if err := unix.Chmod(dst, st.Mode&0o7777); err != nil {
			return &fs.PathError{Op: "chmod", Path: name, Err: err}
		}
		if err := c.xattrs(name, dst); err != nil {
			return err
		}
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

// xattrs copies extended attributes, but for labels of SELinux, which the machine gives. What this process may not set
// is left out, and so is what the file system has no place for.
func (c *copier) xattrs(name, dst string) error {
	src := filepath.Join(c.from, name)
	n, err := unix.Listxattr(src, c.names[:])
	if err != nil || n == 0 {
		return nil // A file system without them.
	}
	for attr := range strings.SplitSeq(strings.TrimSuffix(string(c.names[:n]), "\x00"), "\x00") {
		if attr == "security.selinux" {
			continue
		}
		n, err := unix.Getxattr(src, attr, c.value[:])
		if err == nil {
			err = unix.Setxattr(dst, attr, c.value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
			return &fs.PathError{Op: "setxattr " + attr, Path: name, Err: err}
		}
	}
	return nil
}
