package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// places are directories and files whose permissions a runtime decides.
var places = []string{"/", "/bin", "/dev", "/dev/mqueue", "/dev/pts", "/dev/shm", "/etc", "/etc/hostname",
	"/etc/hosts", "/etc/resolv.conf", "/proc", "/proc/sys", "/sys", "/sys/fs/cgroup", "/tmp", "/etc/mtab",
	"/run", "/var", "/mnt"}

// files looks at what the image has brought, what was laid over it, and what can be written to.
func (v view) files() {
	for _, path := range places {
		v["place "+path] = describe(path)
	}
	for _, path := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname"} {
		text, err := os.ReadFile(path)
		v.set("content "+path, string(text), err)
	}
	for _, top := range []string{"/data", "/mnt"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				v.set("file "+path, "", err)
				return nil
			}
			v["file "+path] = describe(path)
			if d.Type().IsRegular() {
				text, err := os.ReadFile(path)
				v.set("content "+path, string(text), err)
			}
			return nil
		})
		v.set("walk "+top, "whole", err)
	}
	for _, dir := range []string{"/", "/bin", "/data", "/dev", "/dev/shm", "/dev/mqueue", "/etc", "/mnt", "/mnt/sub",
		"/proc", "/sys", "/sys/fs/cgroup", "/tmp"} {
		v["write in "+dir] = tryIn(dir)
	}
	for _, file := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/shmmax",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
		"/sys/kernel/uevent_helper", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cgroup.procs",
		"/etc/hosts", "/etc/resolv.conf",
		"/etc/hostname", "/dev/null", "/dev/kmsg"} {
		f, err := os.OpenFile(file, os.O_WRONLY, 0) // Nothing is written.
		v.set("open for writing "+file, "ok", err)
		if err == nil {
			f.Close()
		}
	}
}

// describe says what a file is, with its extended attributes.
func describe(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "error: " + err.Error()
	}
	out := kindOf(&st)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		to, _ := os.Readlink(path)
		return out + " to " + to
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		out += fmt.Sprintf(" links=%d", st.Nlink)
	}
	names := make([]byte, 4096)
	n, _ := unix.Llistxattr(path, names)
	list := strings.Split(strings.TrimRight(string(names[:max(n, 0)]), "\x00"), "\x00")
	slices.Sort(list)
	for _, name := range list {
		value := make([]byte, 256)
		if n, err := unix.Lgetxattr(path, name, value); err == nil && name != "" {
			out += fmt.Sprintf(" %s=%x", name, value[:n])
		}
	}
	return out
}

// tryIn tries to make a file and a device in a directory.
func tryIn(dir string) string {
	answer := func(path string, err error) string {
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			return reason(err)
		}
		return "ok"
	}
	path := filepath.Join(dir, "cridiff"+strconv.Itoa(os.Getpid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		f.Close()
	}
	out := "file " + answer(path, err)
	err = unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	if err == nil {
		f, opening := os.Open(path)
		if opening != nil {
			out += ", device opens: " + reason(opening)
		} else {
			f.Close()
			out += ", device opens"
		}
	}
	return out + ", device " + answer(path, err)
}
