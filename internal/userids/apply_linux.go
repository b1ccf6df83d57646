package userids

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	mapUsers  = "newuidmap"
	mapGroups = "newgidmap"
)

// mapTime bounds the two programs, which do nothing that takes long.
const mapTime = 10 * time.Second

// lastCapability says which is the last capability that the kernel knows.
const lastCapability = "/proc/sys/kernel/cap_last_cap"

// Own returns the ids that this user may use, and why it is only one; empty if there are more.
func Own() (m Maps, why string) {
	for _, program := range []string{mapUsers, mapGroups} {
		if _, err := exec.LookPath(program); err != nil {
			return Single(), program + " is not installed"
		}
	}
	m, err := listed()
	if err != nil {
		return Single(), err.Error()
	}
	return m, ""
}

// Prepare has a process be started in a user namespace of its own. One id is mapped by the kernel at once; with more,
// the process has to wait for Apply.
func (m Maps) Prepare(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	if m.IsSingle() {
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: int(m.Users[0].Outside), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: int(m.Groups[0].Outside), Size: 1}}
		return
	}
	// Who has no id yet loses its capabilities with the program that it executes, but for these.
	attr.AmbientCaps = capabilities()
}

// Apply gives the user namespace of a process, which Prepare was called for, its ids.
func (m Maps) Apply(ctx context.Context, pid int) error {
	if m.IsSingle() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, mapTime)
	defer cancel()
	for _, one := range []struct {
		program string
		ranges  []Range
	}{{mapUsers, m.Users}, {mapGroups, m.Groups}} {
		args := []string{strconv.Itoa(pid)}
		for _, r := range one.ranges {
			for _, n := range []uint32{r.Inside, r.Outside, r.Size} {
				args = append(args, strconv.FormatUint(uint64(n), 10))
			}
		}
		out, err := exec.CommandContext(ctx, one.program, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", one.program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// capabilities are all that this kernel knows.
func capabilities() (all []uintptr) {
	last := 37 // Of Linux 3.16, which all later ones have.
	if text, err := os.ReadFile(lastCapability); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			last = n
		}
	}
	for c := range last + 1 {
		all = append(all, uintptr(c))
	}
	return all
}
