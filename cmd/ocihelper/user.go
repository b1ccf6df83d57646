//go:build linux && cgo

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// maxUserFile bounds what is read of a file of an image that lists users, in bytes.
const maxUserFile = 4 << 20

// maxID is the largest id that a user or a group can have: the next one tells the kernel to change nothing.
const maxID = 1<<32 - 2

// resolveUser looks the user up in the root's own files, which the image may have made anything: no link leads out of
// the root, and no more than maxUserFile is read. Ids need no entry there; names do.
func resolveUser(b *bundle, root string) error {
	p := b.Spec.Process
	if b.User == "" {
		return nil
	}
	passwd, err := openInRoot(root, "/etc/passwd")
	if err != nil {
		return err
	}
	defer passwd.Close()
	group, err := openInRoot(root, "/etc/group")
	if err != nil {
		return err
	}
	defer group.Close()
	is, err := user.GetExecUser(b.User, nil, limited(passwd), limited(group))
	if err != nil {
		return fmt.Errorf("user %q of the image: %w", b.User, err)
	}
	for _, id := range append([]int{is.Uid, is.Gid}, is.Sgids...) {
		if err := isID(id); err != nil { // The image's files may say anything, such as one that is 0 in 32 bits.
			return fmt.Errorf("user %q of the image: %w", b.User, err)
		}
	}
	p.User.UID, p.User.GID = uint32(is.Uid), uint32(is.Gid)
	if b.Users != "" {
		err = errors.Join(mapped("user", p.User.UID, b.UIDs), mapped("group", p.User.GID, b.GIDs))
	} else {
		err = errors.Join(exists("uid_map", p.User.UID), exists("gid_map", p.User.GID))
	}
	if err != nil {
		return fmt.Errorf("user %q of the container: %w", b.User, err)
	}
	groups := []int{is.Gid} // A process that changes its group is to keep what its first one was given or denied.
	if !b.StrictGroups {
		groups = append(groups, is.Sgids...)
	}
	if !b.StrictGroups && b.GroupsOf != "" {
		more, err := groupsOf(b.GroupsOf, passwd, group)
		if err != nil {
			return err
		}
		groups = append(groups, more...)
	}
	for _, g := range groups {
		if id := uint32(g); !slices.Contains(p.User.AdditionalGids, id) {
			p.User.AdditionalGids = append(p.User.AdditionalGids, id)
		}
	}
	return nil
}

// isID tells whether a number can be the id of a user or a group.
func isID(n int) error {
	if n < 0 || n > maxID {
		return fmt.Errorf("the id %d is not between 0 and %d", n, maxID)
	}
	return nil
}

// mapped tells whether the pod's user namespace has an id.
func mapped(what string, id uint32, ids []specs.LinuxIDMapping) error {
	var have []string
	for _, m := range ids {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return nil
		}
		have = append(have, fmt.Sprintf("%d to %d", m.ContainerID, m.ContainerID+(m.Size-1)))
	}
	return fmt.Errorf("the %s %d does not exist in the pod, which has users of its own (hostUsers: false): %s", what, id,
		strings.Join(have, ", "))
}

// groupsOf are the groups that a user has beside the one of passwd.
func groupsOf(name string, passwd, group *os.File) ([]int, error) {
	for _, f := range []*os.File{passwd, group} {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
	is, err := user.GetExecUser(name, nil, limited(passwd), limited(group))
	if err != nil {
		return nil, fmt.Errorf("user %q of the image: %w", name, err)
	}
	for _, id := range is.Sgids {
		if err := isID(id); err != nil {
			return nil, fmt.Errorf("the groups of user %q of the image: %w", name, err)
		}
	}
	return is.Sgids, nil
}

// exists tells whether this process's user namespace, in which the container is made, has an id.
func exists(file string, id uint32) error {
	text, err := os.ReadFile("/proc/self/" + file)
	if err != nil {
		return err
	}
	var have []string
	for line := range strings.Lines(string(text)) {
		var inside, outside, size uint32
		if _, err := fmt.Sscan(line, &inside, &outside, &size); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if id >= inside && id-inside < size {
			return nil
		}
		have = append(have, fmt.Sprintf("%d to %d", inside, inside+(size-1)))
	}
	return fmt.Errorf("the id %d does not exist here: without root pods have the ids %s; more need the programs "+
		"newuidmap and newgidmap, and ranges for monoplane's user in /etc/subuid and /etc/subgid", id,
		strings.Join(have, ", "))
}

func limited(f *os.File) io.Reader { return io.LimitReader(f, maxUserFile) }

// openInRoot opens a file of the root for reading; one that is missing, or no regular file, is empty.
func openInRoot(root, path string) (*os.File, error) {
	handle, err := pathrs.OpenInRoot(root, path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return os.Open(os.DevNull)
	}
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	if st, err := handle.Stat(); err != nil || !st.Mode().IsRegular() {
		return os.Open(os.DevNull)
	}
	return pathrs.Reopen(handle, os.O_RDONLY)
}
