package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// shimName is what a shim calls itself.
const shimName = "monoplane-shim"

// process names a process for good: a pid is used again, with another start time.
type process struct {
	PID   int
	Start uint64 // in ticks of the boot clock
}

func self() (process, error) { return identify(os.Getpid()) }

var errEnded = errors.New("the process has ended")

// identify returns errEnded for a zombie.
func identify(pid int) (process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, errEnded
	}
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
	fields := strings.Fields(rest) // from the third field on, the state
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, errEnded
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return process{pid, start}, err
}

// signal sends a signal to exactly this process.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return errEnded
	}
	defer unix.Close(fd)
	if now, err := identify(p.PID); err != nil || now != p {
		return errEnded
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// workloads returns the processes of a run's containers by the uid of their pod. A process is recognised by its
// environment, so that nothing else is ever touched.
func workloads(dir string) (map[string][]process, error) {
	found := map[string][]process{}
	err := eachProcess(func(pid int) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !bytes.Contains(env, []byte(envDir+"="+dir+"\x00")) {
			return // it has ended, or is not ours
		}
		uid := variable(env, envUID)
		if uid == "" {
			return // the server, or the guard
		}
		if p, err := identify(pid); err == nil {
			found[uid] = append(found[uid], p)
		}
	})
	return found, err
}

// servers returns the processes of a run that are neither containers nor shims.
func servers(dir string) ([]process, error) {
	var found []process
	err := eachProcess(func(pid int) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		ours := err == nil && bytes.Contains(env, []byte(envDir+"="+dir+"\x00"))
		if !ours || variable(env, envUID) != "" || variable(env, envGuard) != "" {
			return
		}
		if p, err := identify(pid); err == nil {
			found = append(found, p)
		}
	})
	return found, err
}

func variable(env []byte, name string) string {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if rest, ok := bytes.CutPrefix(v, []byte(name+"=")); ok {
			return string(rest)
		}
	}
	return ""
}

// shim is one shim of a run.
type shim struct {
	process
	dir string // its sandbox's
}

// shims returns the shims that work in a directory or below: a shim's current directory is that of its sandbox.
func shims(dir string) ([]shim, error) {
	var found []shim
	err := eachProcess(func(pid int) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.HasPrefix(line, []byte(shimName)) {
			return
		}
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil || !strings.HasPrefix(cwd, dir+"/") {
			return
		}
		if p, err := identify(pid); err == nil {
			found = append(found, shim{p, strings.TrimSuffix(cwd, " (deleted)")})
		}
	})
	return found, err
}

// Names of the processes that hold the namespace of a node: the helper, and the spare that becomes it.
const (
	nodeName  = "monoplane-node"
	spareName = "monoplane-spare"
)

// nodes returns the helpers and spares whose socket is in a directory or below, which they hold open.
func nodes(dir string) ([]process, error) {
	var found []process
	err := eachProcess(func(pid int) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if name := strings.TrimSuffix(string(line), "\x00"); err != nil || name != nodeName && name != spareName {
			return
		}
		at, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/4", pid))
		if err != nil || !strings.HasPrefix(at, dir+"/") {
			return
		}
		if p, err := identify(pid); err == nil {
			found = append(found, p)
		}
	})
	return found, err
}

func eachProcess(f func(pid int)) error {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			f(pid)
		}
	}
	return nil
}

// childrenOf returns the direct children of a process.
func childrenOf(pid int) ([]process, error) {
	var found []process
	err := eachProcess(func(child int) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			if p, err := identify(child); err == nil {
				found = append(found, p)
			}
		}
	})
	return found, err
}
