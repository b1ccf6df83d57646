package crash

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startGuard starts a process that cleans up after a run once the test lets go of it, however the test ends. The
// returned function does that and waits.
func startGuard(t *testing.T, dir string) (done func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envGuard+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in a terminal is not for it
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = hold.Close() // the guard's end of the pipe decides
		if err := cmd.Wait(); err != nil {
			t.Errorf("the guard could not clean up: %v", err)
		}
	}
}

// guard waits for the end of the test, and then ends all processes of the run, and takes away its mounts, control
// groups and files.
func guard(dir string) int {
	_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it, the test is over
	// A test that was killed may wait for its own file system, which then answers nobody, and never ends.
	_ = unix.Unmount(filepath.Join(dir, "disk"), unix.MNT_FORCE) // mostly there is none any more, or it is in use
	err := endProcesses(dir)
	groups := controlGroups(dir)
	err = errors.Join(err, unmountAll(dir))
	for _, g := range groups {
		err = errors.Join(err, removeGroup(g))
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// unmountAll takes away the mounts below a directory, the last first. One on the disk that fails cannot be reached by
// its path any more once nobody serves that disk, and goes with it.
func unmountAll(dir string) (err error) {
	mounts, _ := os.ReadFile("/proc/self/mounts") // without it nothing can be done
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			if e := unix.Unmount(f[1], unix.MNT_DETACH); !errors.Is(e, unix.ENOTCONN) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// endProcesses kills until nothing is left. A stopped process can be killed too.
func endProcesses(dir string) error {
	for end := time.Now().Add(time.Minute); ; {
		left, err := processesOf(dir)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, p := range left {
			_ = p.signal(unix.SIGKILL) // it may have ended
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v do not end", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processesOf returns all processes of a run but the guard: servers first, so that they start nothing more.
func processesOf(dir string) ([]process, error) {
	all, err := servers(dir)
	if err != nil {
		return nil, err
	}
	below, err := shims(dir)
	if err != nil {
		return nil, err
	}
	for _, s := range below {
		all = append(all, s.process)
	}
	held, err := nodes(dir)
	if err != nil {
		return nil, err
	}
	all = append(all, held...)
	byUID, err := workloads(dir)
	for _, procs := range byUID {
		all = append(all, procs...)
	}
	return all, err
}

// controlGroups returns those of the sandboxes that a run has left in a directory.
func controlGroups(dir string) []string {
	ids := map[string]bool{}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is on its way out, or on a disk that has gone
		}
		if e.IsDir() && filepath.Base(filepath.Dir(path)) == "pods" {
			ids["monoplane-"+e.Name()[:min(20, len(e.Name()))]] = true
		}
		return nil
	})
	own, _ := os.ReadFile("/proc/self/cgroup") // without it there are none
	var found []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(own)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) < 3 {
			continue
		}
		tops := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
		if parts[1] != "" {
			tops = []string{"/sys/fs/cgroup/" + strings.TrimPrefix(parts[1], "name=")}
		}
		for _, top := range tops {
			for id := range ids {
				if g := filepath.Join(top, parts[2], id); exists(g) {
					found = append(found, g)
				}
			}
		}
	}
	return found
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// removeGroup removes a control group and those in it. The kernel takes a moment to see that they are empty.
func removeGroup(dir string) error {
	var below []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			below = append(below, path)
		}
		return nil
	})
	for i := len(below) - 1; i >= 0; i-- {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			err := unix.Rmdir(below[i])
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("control group %s: %w", below[i], err)
			}
		}
	}
	return nil
}

// Whatever a run has left, the guard ends: also what is stopped, and what a dead disk holds.
func TestGuard(t *testing.T) {
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	done := startGuard(t, dir)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envDir+"="+dir, envName+"=polite-a", envUID+"=u", envContainer+"=main")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var victim []process
	if err := eventually(t.Context(), func() error {
		found, err := workloads(dir)
		if victim = found["u"]; err == nil && (len(victim) != 1 || !exists(filepath.Join(dir, "journal"))) {
			err = fmt.Errorf("found %v", found)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := victim[0].signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	done()
	if err := cmd.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	if exists(dir) {
		t.Error("the directory is still there")
	}
}
