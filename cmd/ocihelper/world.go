//go:build linux && cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The root of a container with users of its own is not the machine's, so it cannot pass the directories that only the
// machine's may enter, such as those of pods and images. The helper makes itself a world in which nothing is in the
// way: a root of its own, in which everything that the container is made of is mounted, with the ids that it has
// inside.
//
//	BUNDLE/rootfs              the container's root
//	BUNDLE/state, process.json the machine's, where later helpers look for them
//	/.container/layers/N       the layers of the image, whose ids are mapped
//	/.container/mounts/N       the sources of its mounts, by their indices, of which those are mapped that are to be
//	/.container/users          the pod's user namespace
//	/proc /sys /dev            the machine's
//
// Of the machine nothing else is in it, so nothing else can be uncovered from the container either.
const worldDir = "/.container"

// mountWorld makes the world at the place of the container's root, enters it, and mounts the root at the same place
// there.
//
// spec: USER-1, USER-2
func (c command) mountWorld(at string, b *bundle) error {
	users, err := os.Open(b.Users)
	if err != nil {
		return fmt.Errorf("the pod's user namespace: %w", err)
	}
	defer users.Close()
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("a root for making the container cannot be mounted: %w", err)
	}
	root := filepath.Join(at, at)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := b.worldRoot(root, filepath.Join(at, worldDir, "layers"), users); err != nil {
		return err
	}
	if err := b.fillVolumes(root); err != nil {
		return err
	}
	if err := b.worldMounts(at, users); err != nil {
		return err
	}
	if err := os.MkdirAll(c.path(stateDir), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(c.path(processFile), nil, 0o600); err != nil {
		return err
	}
	for _, path := range []string{"/proc", "/sys", "/dev", c.path(stateDir), c.path(processFile)} {
		if err := place(path, filepath.Join(at, path), nil, true); err != nil {
			return err
		}
	}
	if err := b.worldUsers(at); err != nil {
		return err
	}
	return enterWorld(at)
}

// worldUsers gives the pod's user namespace a path. Of one like /proc/PID/fd/N libcontainer takes the ids of the
// process's own namespace for those of the other.
func (b *bundle) worldUsers(at string) error {
	path := filepath.Join(worldDir, "users")
	if err := os.WriteFile(filepath.Join(at, path), nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(b.Users, filepath.Join(at, path), "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: b.Users, Err: err}
	}
	for i := range b.Spec.Linux.Namespaces {
		if n := &b.Spec.Linux.Namespaces[i]; n.Type == specs.UserNamespace {
			n.Path = path
		}
	}
	return nil
}

// enterWorld makes a mount the root of this mount namespace, and leaves the one that was.
func enterWorld(at string) error {
	if err := unix.Chdir(at); err != nil {
		return &os.PathError{Op: "chdir", Path: at, Err: err}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// worldRoot mounts the container's root.
func (b *bundle) worldRoot(root, below string, users *os.File) error {
	if b.Upper == "" { // A copy, whose files have the pod's ids already.
		return os.NewSyscallError("bind", unix.Mount(b.Layers[0], root, "", unix.MS_BIND, ""))
	}
	layers, err := mapLayers(b.Layers, below, users)
	if err != nil {
		return err
	}
	return b.overlay(layers).mount(root)
}

// mapLayers mounts the layers of an image below a directory, where their files have the ids of a user namespace.
func mapLayers(layers []string, below string, users *os.File) ([]string, error) {
	out := make([]string, len(layers))
	for i, l := range layers {
		out[i] = filepath.Join(below, strconv.Itoa(i))
		if err := place(l, out[i], users, false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// worldMounts takes the sources of the container's mounts into the world.
func (b *bundle) worldMounts(at string, users *os.File) error {
	for i := range b.Spec.Mounts {
		m := &b.Spec.Mounts[i]
		if m.Type != "bind" {
			continue
		}
		as := users
		if len(m.UIDMappings) == 0 {
			as = nil
		}
		to := filepath.Join(worldDir, "mounts", strconv.Itoa(i))
		if err := place(m.Source, filepath.Join(at, to), as, true); err != nil {
			return fmt.Errorf("the mount at %q: %w", m.Destination, err)
		}
		m.Source, m.UIDMappings, m.GIDMappings = to, nil, nil
	}
	return nil
}

// place mounts at one path what is at another, and with deep what is mounted below it. With users its files have the
// ids of that user namespace there.
func place(from, to string, users *os.File, deep bool) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if deep {
		flags |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, flags)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: from, Err: err}
	}
	defer unix.Close(tree)
	if users != nil {
		if err := mapIDs(tree, users, deep); err != nil {
			return fmt.Errorf("%s is on a file system%s that cannot map ids, as a pod with users of its own needs it "+
				"(hostUsers: false): %w", from, named(tree), err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return &os.PathError{Op: "stat", Path: from, Err: err}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: from, Err: err}
	}
	return nil
}

// mapIDs maps the ids of a mount that is nowhere yet. What is mounted below it, and cannot be mapped, stays as it is:
// its files are nobody's in the container, which is never too much.
func mapIDs(tree int, users *os.File, deep bool) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if deep && unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr) == nil {
		return nil
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
}

// named returns the type of the file system that is mounted, in brackets; nothing if that cannot be known.
func named(tree int) string {
	var st unix.Statx_t
	err := unix.Statx(tree, "", unix.AT_EMPTY_PATH, 0, &st)
	f, err2 := os.Open("/proc/self/mountinfo")
	if errors.Join(err, err2) != nil {
		return ""
	}
	defer f.Close()
	device := fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(before); len(fields) > 2 && fields[2] == device {
			kind, _, _ := strings.Cut(after, " ")
			return " (" + kind + ")"
		}
	}
	return ""
}
