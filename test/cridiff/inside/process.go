package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// statusLines are the lines of /proc/self/status that a runtime decides.
var statusLines = []string{"Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd",
	"CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed_list"}

// process looks at the process itself.
func (v view) process() {
	status, err := os.ReadFile("/proc/self/status")
	v.set("status", "there", err)
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if slices.Contains(statusLines, name) {
			v["status "+name] = strings.Join(strings.Fields(value), " ")
		}
	}
	for _, file := range []string{"oom_score_adj", "uid_map", "gid_map", "setgroups", "coredump_filter", "personality",
		"attr/current", "timens_offsets"} {
		text, err := os.ReadFile("/proc/self/" + file)
		v.set("self "+file, strings.Join(strings.Fields(string(text)), " "), err)
	}
	v.limits()
	v.namespaces()
	v.descriptors()
	cwd, err := os.Getwd()
	v.set("cwd", cwd, err)
	v["args"] = fmt.Sprintf("%q", os.Args)
	env := os.Environ()
	slices.Sort(env)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		v["env "+name] = value
	}
	name, err := os.Hostname()
	v.set("hostname", name, err)
	v["process 1"] = strconv.FormatBool(os.Getpid() == 1)
	v["process 0 is the parent"] = strconv.FormatBool(os.Getppid() == 0)
	session, err := unix.Getsid(0)
	v.set("leads a session", strconv.FormatBool(session == os.Getpid()), err)
	group, err := unix.Getpgid(0)
	v.set("leads a group", strconv.FormatBool(group == os.Getpid()), err)
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	v.set("priority", strconv.Itoa(priority), err)
}

func (v view) limits() {
	text, err := os.ReadFile("/proc/self/limits")
	v.set("limits", "there", err)
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "Max "); found {
			fields := strings.Fields(name[22:])
			v["limit "+strings.TrimSpace(name[:22])] = strings.Join(fields[:2], " ")
		}
	}
}

// namespaces are names that are the same in all processes that share one.
func (v view) namespaces() {
	all, err := os.ReadDir("/proc/self/ns")
	v.set("namespaces", fmt.Sprint(len(all)), err)
	for _, e := range all {
		at, err := os.Readlink("/proc/self/ns/" + e.Name())
		v.set("namespace "+e.Name(), at, err)
	}
}

func (v view) descriptors() {
	for fd := range 3 {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		_, terminal := unix.IoctlGetTermios(fd, unix.TCGETS)
		v.set(fmt.Sprintf("descriptor %d", fd), fmt.Sprintf("%s terminal=%t", kindOf(&st), terminal == nil), err)
	}
	var more []string
	for fd := 3; fd < 1024; fd++ {
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err == nil && !strings.HasPrefix(at, "anon_inode:") && !strings.HasPrefix(at, "/sys/fs/cgroup") {
			more = append(more, at) // Those of Go's own runtime are not the container's.
		}
	}
	v["more descriptors"] = strings.Join(more, " ")
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	v.set("controlling terminal", "there", err)
	if err == nil {
		tty.Close()
	}
}

// kindOf says what a file is: its type, its permissions, whose it is, and which device.
func kindOf(st *unix.Stat_t) string {
	kind := map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFCHR: "char",
		unix.S_IFBLK: "block", unix.S_IFIFO: "pipe", unix.S_IFLNK: "link", unix.S_IFSOCK: "socket"}[st.Mode&unix.S_IFMT]
	out := fmt.Sprintf("%s %04o %d:%d", kind, st.Mode&0o7777, st.Uid, st.Gid)
	switch kind {
	case "char", "block":
		if unix.Major(st.Rdev) >= 136 && unix.Major(st.Rdev) < 144 {
			return kind + " of a terminal"
		}
		out += fmt.Sprintf(" device %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	return out
}
