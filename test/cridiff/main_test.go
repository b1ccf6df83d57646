//go:build rootonly

package cridiff_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	caseCount = flag.Int("cases", 12, "how many random configurations to compare")
	caseSeed  = flag.Uint64("caseseed", 0, "seed of the random configurations; 0 takes one at random")
	first     = flag.Int("first", 0, "leave out so many cases at the beginning of the table")
	only      = flag.String("case", "", "compare only the cases of the table whose names match this pattern")
)

// insideMark says that this process is the one in the new namespaces.
const insideMark = "MONOPLANE_TEST_CRIDIFF"

// TestMain runs the tests once more in namespaces of their own.
func TestMain(m *testing.M) {
	if os.Getenv(insideMark) != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the thread that the death signal is tied to
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need root:", err)
		os.Exit(1)
	}
}

// prepare keeps mounts from the machine and brings the loopback up. The names of network namespaces, and what CNI
// notes of its networks, are this process's own.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts cannot be kept from the machine: %w", err)
	}
	for _, dir := range []string{"/run/netns", "/var/lib/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as ip and CNI make them
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return &os.PathError{Op: "mount", Path: dir, Err: err}
		}
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}
