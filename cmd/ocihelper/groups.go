//go:build linux && cgo

package main

import (
	"fmt"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// shutGroups makes the machine's cgroups read-only for the helper, whose mount namespace is its own. Libcontainer
// makes groups beside the helper's own one for a container that is to have none, and hands out controllers above them,
// unless it may not: then it leaves the container where the helper is.
func shutGroups() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter("/sys/fs/cgroup"))
	if err != nil {
		return fmt.Errorf("the machine's mounts: %w", err)
	}
	for _, m := range mounts {
		var fs unix.Statfs_t
		if err = unix.Statfs(m.Mountpoint, &fs); err == nil {
			// What another user namespace has forbidden stays so. These have the same numbers in both calls.
			const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
			flags := uintptr(fs.Flags)&kept | unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY
			err = unix.Mount("", m.Mountpoint, "", flags, "")
		}
		if err != nil {
			return fmt.Errorf("%s cannot be made read-only for the helper: %w", m.Mountpoint, err)
		}
	}
	return nil
}
