//go:build linux && cgo

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountRoot mounts the root of the container and returns where. The helper was forked into a mount namespace of its
// own, which the container's descends from: when both have ended nothing of the mount is left, whatever has crashed.
func (c command) mountRoot(b *bundle) (string, error) {
	if len(b.Layers) == 0 {
		return "", errors.New("the image has no layers")
	}
	root := c.path(rootDir)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	if err := b.takeShared(c.path("shared")); err != nil {
		return "", err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return "", fmt.Errorf("mounts cannot be kept from the machine: %w", err)
	}
	if err := b.placeShared(); err != nil {
		return "", err
	}
	if err := b.placeImages(c.path("images")); err != nil {
		return "", err
	}
	if err := b.placeParts(c.path("parts")); err != nil {
		return "", err
	}
	if err := c.placeShm(b); err != nil {
		return "", err
	}
	if b.Users != "" {
		return root, c.mountWorld(root, b)
	}
	if b.Upper == "" {
		if err := unix.Mount(b.Layers[0], root, "", unix.MS_BIND, ""); err != nil {
			return "", &os.PathError{Op: "bind", Path: b.Layers[0], Err: err}
		}
	} else if err := b.overlay(b.Layers).mount(root); err != nil {
		return "", err
	}
	return root, b.fillVolumes(root)
}

// overlay is what an overlay is mounted of: the layers, the top one first. Without upper it is read-only, and there
// are two layers at least.
type overlay struct {
	layers      []string
	upper, work string
	userXattr   bool
}

// overlay is that of the container's root.
func (b *bundle) overlay(layers []string) overlay {
	return overlay{layers: layers, upper: b.Upper, work: b.Work, userXattr: b.UserXattr}
}

// mount uses the file descriptors of the new mount calls, so that neither the number of layers nor the length of their
// paths is bounded by the page that mount(2) takes, with a fallback for kernels that cannot append layers one by one.
func (o overlay) mount(at string) error {
	if takesAnything() {
		return o.mountOld(at)
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return o.mountOld(at)
	}
	defer unix.Close(fs)
	for _, l := range o.layers {
		if err := unix.FsconfigSetString(fs, "lowerdir+", l); err != nil {
			return o.mountOld(at)
		}
	}
	options := [][2]string{{"source", "overlay"}}
	if o.upper != "" {
		options = append(options, [2]string{"upperdir", escape(o.upper)},
			[2]string{"workdir", escape(o.work)}) // Whose escapes the kernel undoes here too, unlike those of layers.
	}
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return fmt.Errorf("overlay: %s %s: %w", o[0], o[1], err)
		}
	}
	if o.userXattr {
		if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
			return fmt.Errorf("overlay without root: %w", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("the overlay of %d layers cannot be mounted: %w%s", len(o.layers), err, said(fs))
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the overlay cannot be mounted: %w", err)
	}
	defer unix.Close(mnt)
	if err := unix.MoveMount(mnt, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: at, Err: err}
	}
	return nil
}

// takesAnything tells whether the kernel looks at the options of an overlay only when it mounts it, as before Linux
// 6.5. It would seem to append layers then, refuse them at the end, and write that to its log.
func takesAnything() bool {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fs)
	return unix.FsconfigSetFlag(fs, "monoplane") == nil // Which is no option.
}

// said returns what the kernel has to say of a failed mount.
func said(fs int) string {
	text := ""
	buf := make([]byte, 1024)
	for range 8 {
		n, err := unix.Read(fs, buf)
		if err != nil || n <= 0 {
			break
		}
		text += "; " + strings.TrimSpace(string(buf[:n]))
	}
	return text
}

// mountOld names the layers by their descriptors, so that as many as overlayfs stacks fit into a page.
func (o overlay) mountOld(at string) error {
	names := make([]string, len(o.layers))
	for i, l := range o.layers {
		fd, err := unix.Open(l, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: l, Err: err}
		}
		defer unix.Close(fd)
		names[i] = strconv.Itoa(fd)
	}
	if err := os.Chdir("/proc/self/fd"); err != nil {
		return err
	}
	options := "lowerdir=" + strings.Join(names, ":")
	if o.upper != "" {
		options += ",upperdir=" + escape(o.upper) + ",workdir=" + escape(o.work)
	}
	if o.userXattr {
		options += ",userxattr"
	}
	if len(options) >= os.Getpagesize() {
		return fmt.Errorf("the image has too many layers for this kernel: %d", len(o.layers))
	}
	if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
		return fmt.Errorf("the overlay of %d layers cannot be mounted: %w", len(o.layers), err)
	}
	return nil
}

func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`).Replace(path)
}

// takeShared clones the sources of mounts that go both ways while this namespace is still a peer of the machine's.
func (b *bundle) takeShared(dir string) error {
	for n, i := range b.Shared {
		m, err := b.mount(i)
		if err != nil {
			return err
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return &os.PathError{Op: "open_tree", Path: m.Source, Err: err}
		}
		m.Source = filepath.Join(dir, strconv.Itoa(n))
		b.clones = append(b.clones, fd)
	}
	return nil
}

// placeShared puts them where the container's mounts name them.
func (b *bundle) placeShared() error {
	for n, i := range b.Shared {
		fd, at := b.clones[n], b.Spec.Mounts[i].Source
		if err := moveTo(fd, at); err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// moveTo mounts what is mounted nowhere yet at a path, which is made as what it is to be: a directory or a file.
func moveTo(tree int, at string) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	dir := at
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir {
		dir = filepath.Dir(at)
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil && !isDir {
		var f *os.File
		if f, err = os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o600); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: at, Err: err}
	}
	return nil
}

// sharedMemory is the source of a mount that stands for the pod's /dev/shm.
const sharedMemory = "monoplane:shm"

// placeShm puts the pod's shared memory where the container's mount finds it.
func (c command) placeShm(b *bundle) error {
	for i := range b.Spec.Mounts {
		if b.Spec.Mounts[i].Source != sharedMemory {
			continue
		}
		if !c.shm {
			return errors.New("the pod has no shared memory")
		}
		fd, err := takeFrom(mountsFD, b.Shm)
		if err != nil {
			return fmt.Errorf("the pod's shared memory: %w", err)
		}
		at := c.path("shm")
		err = os.MkdirAll(at, 0o700)
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		unix.Close(fd)
		if err != nil {
			return &os.PathError{Op: "move_mount", Path: at, Err: err}
		}
		b.Spec.Mounts[i].Source = at
	}
	return nil
}

// takeFrom clones a mount of another mount namespace.
func takeFrom(namespace int, path string) (fd int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // For good: the thread ends with this function.
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			return
		}
		if err = unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
			return
		}
		fd, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}()
	<-done
	return fd, err
}
