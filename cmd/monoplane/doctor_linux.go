package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/runtime/host"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// agentRoom says why the agent can write nothing below a directory.
func agentRoom(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	const least = 1 << 20
	switch {
	case fs.Flags&unix.ST_RDONLY != 0:
		return &os.PathError{Op: "write to", Path: dir, Err: unix.EROFS}
	case int64(fs.Bavail)*fs.Bsize < least: //nolint:gosec // no disk is that large
		return errors.New("no room is left")
	case fs.Files > 0 && fs.Ffree == 0:
		return errors.New("no inodes are left")
	}
	return nil
}

// machine looks at what pods need of the kernel, and at what clusters have left that are gone.
func (d *doctor) machine() {
	const pods = "pods of images"
	if os.Geteuid() == 0 {
		conn, err := nftables.New()
		if err == nil {
			_, err = conn.ListTables()
		}
		d.unless("kernel", err, pods+" need nftables: load the module nf_tables, or give this container CAP_NET_ADMIN")
	} else if program, err := exec.LookPath("true"); err == nil {
		cmd := exec.Command(program)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		userids.Single().Prepare(cmd.SysProcAttr)
		if err := cmd.Run(); err != nil {
			d.add("kernel", "no user namespace can be made: "+oneLine(err)+nodens.WhyForbidden(),
				pods+" need one without root: allow it, or run as root")
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && !strings.Contains(string(mounts), " - cgroup") {
		err = errors.New("no cgroups are mounted")
	}
	d.unless("kernel", err, "limits of pods need them: mount -t cgroup2 none /sys/fs/cgroup")
	left, err := host.Leftovers()
	d.unless("claims of pods", err, "give the directory to this user, with mode 0700")
	if len(left) > 0 {
		d.add(left[0], fmt.Sprintf("the directory is gone, and something of its pod may be left, as of %d others",
			len(left)-1), "the next start of a server takes it away")
	}
}

// isStopped tells whether somebody has stopped a process.
func isStopped(pid int) bool {
	p, err := sys.Stat(pid)
	return err == nil && p.State == 'T'
}

// lockOwner finds who holds the lock of a file; 0 when that cannot be seen.
func lockOwner(f *os.File) int {
	var st unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if unix.Fstat(int(f.Fd()), &st) != nil || err != nil {
		return 0
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", st.Ino)) {
			continue
		}
		pid, _ := strconv.Atoi(fields[4])
		return max(pid, 0)
	}
	return 0
}

// portOwner finds who listens on a TCP port of this machine; 0 when that cannot be seen.
func portOwner(address string) int {
	_, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		all, _ := os.ReadFile(table) // there may be no IPv6
		for line := range strings.Lines(string(all)) {
			const listening = "0A"
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == listening && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[9]+"]"] = true
			}
		}
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && sockets[to] {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}
