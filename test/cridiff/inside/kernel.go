package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts lists what is mounted where, without what differs from one mount to the next.
func (v view) mounts() {
	text, err := os.ReadFile("/proc/self/mountinfo")
	v.set("mounts", "there", err)
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 {
			continue
		}
		at := fields[4]
		times[at]++
		var goes []string
		for _, f := range fields[6:dash] {
			kind, _, _ := strings.Cut(f, ":")
			goes = append(goes, kind)
		}
		kind, source, super := fields[dash+1], fields[dash+2], strings.Split(fields[dash+3], ",")
		slices.Sort(super)
		out := fmt.Sprintf("%s %s propagation=%s", kind, fields[5], strings.Join(goes, "+"))
		switch kind {
		case "overlay", "ext4", "xfs", "btrfs", "cgroup2":
		default:
			out += fmt.Sprintf(" source=%s super=%s", source, strings.Join(super, ","))
		}
		v[fmt.Sprintf("mount %s #%d", at, times[at])] = out
	}
}

// devices lists what is below /dev, and tries the devices that every container has.
func (v view) devices() {
	err := filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(path, "/dev/shm/") || strings.HasPrefix(path, "/dev/mqueue/") {
			return nil
		}
		if err != nil {
			v.set("device "+path, "", err)
			return nil
		}
		v["device "+path] = describe(path)
		return nil
	})
	v.set("devices", "whole", err)
	for _, path := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/tty", "/dev/ptmx",
		"/dev/fuse", "/dev/mem", "/dev/kmsg", "/dev/net/tun", "/dev/extra", "/dev/console"} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		v.set("open "+path, "ok", err)
		if err == nil {
			unix.Close(fd)
		}
	}
}

// settings are those of the kernel that belong to namespaces, and a few that do not.
var settings = []string{"fs/mqueue/msg_max", "fs/mqueue/queues_max", "kernel/core_pattern", "kernel/domainname",
	"kernel/hostname", "kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/shm_rmid_forced",
	"kernel/shmall", "kernel/shmmax", "kernel/shmmni", "net/core/somaxconn", "net/ipv4/conf/all/rp_filter",
	"net/ipv4/conf/default/rp_filter", "net/ipv4/icmp_echo_ignore_all", "net/ipv4/ip_forward",
	"net/ipv4/ip_local_port_range", "net/ipv4/ip_unprivileged_port_start", "net/ipv4/ping_group_range",
	"net/ipv4/tcp_keepalive_time", "net/ipv4/tcp_syncookies", "net/ipv6/conf/all/disable_ipv6",
	"net/ipv6/conf/default/accept_ra", "net/ipv6/conf/default/forwarding", "net/ipv6/conf/lo/disable_ipv6"}

// hidden are files of the kernel that containers usually cannot read.
var hidden = []string{"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/fs", "/proc/interrupts", "/proc/irq",
	"/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/sys",
	"/proc/sysrq-trigger", "/proc/timer_list", "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/kernel/debug",
	"/sys/kernel/security", "/sys/fs/bpf"}

// kernel reads settings, and tells how much of what is hidden can be seen.
func (v view) kernel() {
	for _, name := range settings {
		text, err := os.ReadFile("/proc/sys/" + name)
		v.set("setting "+name, strings.Join(strings.Fields(string(text)), " "), err)
	}
	for _, path := range hidden {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		seen := "nothing"
		if err == nil {
			var st unix.Stat_t
			err = unix.Fstat(fd, &st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if list, err := os.ReadDir(path); err == nil && len(list) > 0 {
					seen = "entries"
				}
			} else if n, err := unix.Read(fd, make([]byte, 1)); err != nil {
				seen = err.Error()
			} else if n > 0 {
				seen = "text"
			}
			unix.Close(fd)
		}
		v.set("seen in "+path, seen, err)
	}
	links, err := os.ReadDir("/sys/class/net")
	var names []string
	for _, l := range links {
		names = append(names, l.Name())
	}
	v.set("network links", strings.Join(names, " "), err)
}

// calls are system calls with arguments that no kernel takes, so that what comes back tells only whether the call
// itself is allowed.
func (v view) calls() {
	const none = ^uintptr(0)
	for name, call := range map[string][]uintptr{
		"acct": {unix.SYS_ACCT, none}, "add_key": {unix.SYS_ADD_KEY, none, none, none, 1, 0},
		"adjtimex": {unix.SYS_ADJTIMEX, none}, "bpf": {unix.SYS_BPF, 1 << 20, none, 0},
		"chroot": {unix.SYS_CHROOT, none}, "clock_settime": {unix.SYS_CLOCK_SETTIME, 1 << 20, none},
		"clone3": {unix.SYS_CLONE3, none, 1}, "delete_module": {unix.SYS_DELETE_MODULE, none, 0},
		"fsmount": {unix.SYS_FSMOUNT, none, none, none}, "fsopen": {unix.SYS_FSOPEN, none, none},
		"get_mempolicy": {unix.SYS_GET_MEMPOLICY, none, none, 0, 0, none},
		"init_module":   {unix.SYS_INIT_MODULE, none, 1, none}, "io_uring_setup": {unix.SYS_IO_URING_SETUP, 0, none},
		"kcmp": {unix.SYS_KCMP, none, none, none, 0, 0}, "kexec_load": {unix.SYS_KEXEC_LOAD, 0, none, none, none},
		"keyctl": {unix.SYS_KEYCTL, 1 << 20}, "mbind": {unix.SYS_MBIND, 1, 1, none, 0, 0, none},
		"mount":       {unix.SYS_MOUNT, none, none, none, 0, none},
		"move_mount":  {unix.SYS_MOVE_MOUNT, none, none, none, none, none},
		"open_tree":   {unix.SYS_OPEN_TREE, none, none, none},
		"openat2":     {unix.SYS_OPENAT2, none, none, none, 1},
		"open_by":     {unix.SYS_OPEN_BY_HANDLE_AT, none, none, 0},
		"perf_event":  {unix.SYS_PERF_EVENT_OPEN, none, 0, 0, none, none},
		"pidfd_getfd": {unix.SYS_PIDFD_GETFD, none, none, none}, "pivot_root": {unix.SYS_PIVOT_ROOT, none, none},
		"process_vm_readv": {unix.SYS_PROCESS_VM_READV, none, none, 1, none, 1, none},
		"ptrace":           {unix.SYS_PTRACE, 1 << 20, none, 0, 0}, "quotactl": {unix.SYS_QUOTACTL, none, none, 0, 0},
		"request_key": {unix.SYS_REQUEST_KEY, none, none, none, 0}, "setdomainname": {unix.SYS_SETDOMAINNAME, none, 1},
		"sethostname": {unix.SYS_SETHOSTNAME, none, 1}, "setns": {unix.SYS_SETNS, none, 0},
		"settimeofday": {unix.SYS_SETTIMEOFDAY, none, none}, "swapon": {unix.SYS_SWAPON, none, 0},
		"syslog": {unix.SYS_SYSLOG, 1 << 20, none, 0}, "umount2": {unix.SYS_UMOUNT2, none, none},
		"unshare": {unix.SYS_UNSHARE, 1}, "userfaultfd": {unix.SYS_USERFAULTFD, none},
		"fanotify_init": {unix.SYS_FANOTIFY_INIT, none, none},
	} {
		for len(call) < 7 {
			call = append(call, 0)
		}
		_, _, e := unix.Syscall6(call[0], call[1], call[2], call[3], call[4], call[5], call[6])
		v["call "+name] = unix.ErrnoName(e)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	v.set("raw socket", "ok", err)
	if err == nil {
		unix.Close(fd)
	}
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	v.set("ping socket", "ok", err)
	if err == nil {
		unix.Close(fd)
	}
	fd, err = unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	v.set("vsock socket", "ok", err)
	if err == nil {
		unix.Close(fd)
	}
}
