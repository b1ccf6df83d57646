//go:build linux && cgo

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// Names in the directory of a checkpoint, as other runtimes have them too.
const (
	imagesDir = "checkpoint"      // The images of CRIU.
	logFile   = "dump.log"        // What it has to say.
	diffFile  = "rootfs-diff.tar" // The layer of the container.

	programsDir = "programs" // Of no checkpoint: see choosePrograms.
)

// checkpoint writes what the processes of a container are, and the files that it has written, into a directory that is
// empty. The container is frozen meanwhile, so that the ones fit the others, and goes on then.
func checkpoint(c command) (err error) {
	if len(c.args) != 2 {
		return errors.New("a checkpoint needs a directory, and the program that makes it")
	}
	dir, criu := c.args[0], c.args[1]
	signal.Ignore(unix.SIGXFSZ) // Which CRIU inherits: writes fail when the shim has them fail.
	unix.CloseOnExec(reportFD)  // By its end the shim learns that of this process, whatever CRIU does.
	var b bundle
	if err := readJSON(c.path(bundleFile), &b); err != nil {
		return err
	}
	container, err := libcontainer.Load(c.path(stateDir), c.id)
	if err != nil {
		return err
	}
	programs := filepath.Join(dir, programsDir)
	if err := choosePrograms(programs, criu); err != nil {
		return err
	}
	config := container.Config()
	runtime.LockOSThread() // For good: libcontainer forks from this thread.
	if err := standOutside(&config); err != nil {
		return err
	}
	if err := container.Pause(); err != nil {
		return fmt.Errorf("the container cannot be frozen: %w", err)
	}
	defer func() {
		err = errors.Join(err, container.Resume())
	}()
	err = container.Checkpoint(&libcontainer.CriuOpts{ImagesDirectory: filepath.Join(dir, imagesDir), WorkDirectory: dir,
		LeaveRunning: true, FileLocks: true, StatusFd: -1})
	if err != nil {
		return fmt.Errorf("%s: %w%s", criu, err, lastLines(filepath.Join(dir, logFile)))
	}
	// Libcontainer's note that there is one.
	if err := os.Remove(filepath.Join(c.path(stateDir), c.id, "checkpoint")); err != nil {
		return err
	}
	if err := os.RemoveAll(programs); err != nil {
		return err
	}
	return writeDiff(&b, filepath.Join(dir, diffFile))
}

// choosePrograms makes a directory with the programs that libcontainer and CRIU find by their names. CRIU would keep
// the packets from the network of the pod, by rules that are left there when it is killed. That is for containers with
// connections that are to be moved, which it refuses here: the programs that make such rules are replaced by one that
// does nothing.
func choosePrograms(dir, criu string) error {
	nothing, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	err = os.Mkdir(dir, 0o700)
	programs := map[string]string{"criu": criu, "iptables-restore": nothing, "ip6tables-restore": nothing}
	for name, program := range programs {
		err = errors.Join(err, os.Symlink(program, filepath.Join(dir, name)))
	}
	if err != nil {
		return err
	}
	return os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// standOutside leaves the namespaces of the pod, in which the shim is. CRIU takes those that the container shares with
// it for the machine's, and writes nothing of them.
func standOutside(config *configs.Config) error {
	for kind, flag := range map[configs.NamespaceType]int{configs.NEWNET: unix.CLONE_NEWNET,
		configs.NEWIPC: unix.CLONE_NEWIPC, configs.NEWUTS: unix.CLONE_NEWUTS} {
		if !config.Namespaces.Contains(kind) {
			continue
		}
		if err := unix.Unshare(flag); err != nil {
			return os.NewSyscallError("unshare", err)
		}
	}
	return nil
}

// lastLines returns the end of CRIU's log, for people to read.
func lastLines(log string) string {
	const most, size = 8, 2 << 10
	text, err := os.ReadFile(log)
	if err != nil {
		return "" // It has not come to write one.
	}
	text = bytes.TrimSpace(text[max(0, len(text)-size):])
	lines := strings.Split(strings.ToValidUTF8(string(text), "?"), "\n")
	return "; the last lines of its log: " + strings.Join(lines[max(0, len(lines)-most):], " | ")
}
