package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// userNetwork is a program that others without root use to reach what is outside a network namespace: it passes on
// what a TAP in the namespace is given.
type userNetwork struct {
	name string
	// arguments are those with which it serves the network namespace of a process until it is ended.
	arguments func(pid int) []string
}

// userNetworks are those that Debian has, with the largest packets that they take, which are their fastest.
var userNetworks = []userNetwork{
	{"slirp4netns", func(pid int) []string {
		return []string{"--configure", "--mtu=65520", strconv.Itoa(pid), "tap0"}
	}},
	{"pasta", func(pid int) []string {
		return []string{
			"--foreground", "--quiet", "--runas", strconv.Itoa(os.Getuid()), "--config-net", "--mtu", "65520", "--ipv4-only",
			// Not the machine's own address, which it would take otherwise and which is sent to.
			"--address", "10.0.2.100", "--netmask", "24", "--gateway", "10.0.2.2", strconv.Itoa(pid),
		}
	}},
}

// benchUserNetworks sends from a pod, and from a namespace that such a program serves, to the same address.
func benchUserNetworks(
	ctx context.Context, e *env, rounds int, size int64, to string, pod func(round int) (float64, error),
) error {
	for _, u := range userNetworks {
		if _, err := exec.LookPath(u.name); err != nil {
			fmt.Printf("pod to elsewhere, beside %s: skipped: it is not installed\n", u.name)
			continue
		}
		p, err := u.beside(ctx, rounds, size, to, pod)
		if err != nil {
			// Debian 12's pasta resets uploads: no reason to measure nothing more.
			fmt.Printf("pod to elsewhere, beside %s: skipped: %v\n", u.name, err)
			continue
		}
		e.gigabits("pod to elsewhere, without root", p, u.name, 1)
	}
	return nil
}

func (u userNetwork) beside(
	ctx context.Context, rounds int, size int64, to string, pod func(round int) (float64, error),
) (pair, error) {
	ns, err := enterOwnNamespace()
	if err != nil {
		return pair{}, err
	}
	defer ns.close()
	cmd := exec.CommandContext(ctx, u.name, u.arguments(ns.pid)...)
	if err := cmd.Start(); err != nil {
		return pair{}, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	const patience = 10 * time.Second
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) { // It has to make its TAP first.
		if _, err := ns.do(inOrder{Send: to, Bytes: 1}); err == nil {
			break
		} else if time.Since(began) > patience {
			return pair{}, fmt.Errorf("nothing gets out after %v: %w", patience, err)
		}
	}
	return paired(rounds, pod, func(int) (float64, error) { return ns.do(inOrder{Send: to, Bytes: size}) })
}

// enterOwnNamespace starts this program in user and network namespaces of its own, in which it is root.
func enterOwnNamespace() (*inNamespace, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{Size: 1, HostID: os.Getuid()}},
		GidMappings: []syscall.SysProcIDMap{{Size: 1, HostID: os.Getgid()}},
	}
	return startInNamespace(cmd)
}
