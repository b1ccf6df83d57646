package helper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/runtime/host/shim"
)

// Check returns why containers of images cannot be made here by this user; nil if they can. It runs this program once
// in namespaces such as a container gets, where it mounts what a container needs. The helper is not unpacked for it.
func Check() error {
	packed, err := files.Open(name)
	if err != nil {
		return ErrMissing
	}
	if err := errors.Join(packed.Close(), memory()); err != nil {
		return err
	}
	if err := check("/"); err != nil {
		return fmt.Errorf("containers cannot be made here: %w", err)
	}
	return nil
}

// Overlay returns why containers cannot have their files in a directory by overlayfs, as on a file system that is an
// overlay itself; nil if they can, or if that could not be tried, which tells nothing about the file system. The
// directory is empty, and is left with what the attempt was made with. User says that the layers are marked as
// processes without root mark them.
func Overlay(dir string, user bool) error {
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(filepath.Join(dir, name), 0o700) != nil {
			return nil //nolint:nilerr // A disk that is full, say, is no answer.
		}
	}
	options := "lowerdir=lower,upperdir=upper,workdir=work"
	if user {
		options += ",userxattr"
	}
	err := check(dir, options)
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 1 {
		return nil // It was not the kernel's answer to the mount.
	}
	return err
}

// check runs this program in new namespaces.
func check(dir string, args ...string) error {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{shim.CheckArgv0}, args...), Dir: dir,
		// Left alone, the race detector lets it sleep for a second before it exits.
		Env: []string{"GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0"},
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID}}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
		userids.Single().Prepare(cmd.SysProcAttr)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	runtime.LockOSThread() // The death signal comes with the end of the thread, which others may bring about.
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		words := strings.TrimSpace(said.String())
		if words != "" {
			words = ": " + words
		}
		return fmt.Errorf("%w%s", err, words)
	}
	return nil
}

// memory returns why a program in memory cannot be executed here.
func memory() error {
	fd, err := memfd()
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
