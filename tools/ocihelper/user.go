package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// maxUserFile bounds what is read of a file of an image that lists users, in bytes.
const maxUserFile = 4 << 20

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
	p.User.UID, p.User.GID = uint32(is.Uid), uint32(is.Gid)
	if len(b.Spec.Linux.UIDMappings) == 0 {
		for file, id := range map[string]uint32{"uid_map": p.User.UID, "gid_map": p.User.GID} {
			if err := exists(file, id); err != nil {
				return fmt.Errorf("user %q of the container: %w", b.User, err)
			}
		}
	}
	if b.StrictGroups {
		return nil
	}
	for _, g := range is.Sgids {
		if id := uint32(g); !slices.Contains(p.User.AdditionalGids, id) {
			p.User.AdditionalGids = append(p.User.AdditionalGids, id)
		}
	}
	return nil
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

// userNamespace makes a user namespace in which the ids of layers are those of the machine that stand for them. It
// lives as long as its file, or a mount with it.
func userNamespace(ids []specs.LinuxIDMapping) (*os.File, error) {
	var maps []syscall.SysProcIDMap
	for _, m := range ids {
		maps = append(maps, syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)})
	}
	cmd := exec.Command("/proc/self/exe", "hold")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps, GidMappings: maps,
		Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("a user namespace cannot be made: %w", err)
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	_ = in.Close() // It ends by that.
	_ = cmd.Wait()
	return ns, err
}
