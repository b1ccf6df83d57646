package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// onNode does something to the helper that holds the node namespace, or to its spare; or kills both, stopped first so
// that neither sees the other's end.
func (r *run) onNode(f fault) (found bool, err error) {
	all, err := nodes(r.data)
	if err != nil || len(all) == 0 {
		return false, err
	}
	victim := all[f.Pick%uint64(len(all))]
	switch f.Kind {
	case killNode:
		return victim.signal(unix.SIGKILL) == nil, nil
	case pauseNode:
		return r.pauses.begin(victim, f.For) == nil, nil
	}
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		for _, p := range all {
			found = p.signal(sig) == nil || found
		}
	}
	return found, nil
}

// makerName is the name of the program that makes a container: a short-lived child of a shim.
const makerName = "monoplane-oci"

// killMakers kills programs that make containers, one in four, for a while: each lives for some milliseconds.
func (r *run) killMakers(ctx context.Context, f fault) (found bool, err error) {
	end := time.Now().Add(min(f.For, 300*time.Millisecond))
	for n := f.Pick; time.Now().Before(end); pause(ctx, time.Millisecond) {
		all, err := shims(r.data)
		if err != nil {
			return found, err
		}
		for _, s := range all {
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.PID))
			if err != nil {
				continue // the shim has ended
			}
			for _, child := range strings.Fields(string(children)) {
				line, _ := os.ReadFile("/proc/" + child + "/cmdline")
				if !strings.HasPrefix(string(line), makerName) {
					continue
				}
				var pid int
				if _, err := fmt.Sscan(child, &pid); err != nil {
					return found, err
				}
				if n = n*6364136223846793005 + 1442695040888963407; n>>33%4 > 0 {
					continue
				}
				if p, err := identify(pid); err == nil && p.signal(unix.SIGKILL) == nil {
					found = true
				}
			}
		}
	}
	return found, nil
}

// starve leaves the server as many descriptors as it has open, and gives it back what it had later.
func (r *run) starve(ctx context.Context, s *server, f fault) (found bool, err error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID))
	if err != nil || s.ended() {
		return false, nil //nolint:nilerr // it has ended
	}
	had, err := setDescriptors(s.PID, strconv.Itoa(len(open)))
	if err != nil {
		if s.ended() {
			return false, nil
		}
		return false, err
	}
	r.background.Go(func() {
		pause(ctx, min(f.For, 2*time.Second))
		if !s.ended() {
			_, _ = setDescriptors(s.PID, had) // it may have ended
		}
	})
	return true, nil
}

// setDescriptors sets how many descriptors a process may have open, and returns how many it might before. It does so
// as the user of the process, since even root may lack what it takes to change the limits of others.
func setDescriptors(pid int, most string) (before string, err error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	limits, err := field(proc+"limits", "Max open files")
	if err != nil {
		return "", err
	}
	user, err := field(proc+"status", "Uid:")
	if err != nil {
		return "", err
	}
	uid, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("prlimit", "--pid", strconv.Itoa(pid), "--nofile="+most+":")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd, err, out)
	}
	return limits, nil
}

// field returns the first word after a name at the beginning of a line.
func field(file, name string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.TrimSpace(rest) != "" {
			return strings.Fields(rest)[0], nil
		}
	}
	return "", fmt.Errorf("%s says nothing of %s", file, name)
}
