package hostinfo

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// line returns the first line of a file, without surrounding space; empty when it cannot be read.
func line(path string) string {
	data, err := os.ReadFile(path) //nolint:gosec // the paths are constants
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(first)
}

func machineID() string {
	if id := line("/etc/machine-id"); id != "" {
		return id
	}
	return line("/var/lib/dbus/machine-id")
}

func systemUUID() string {
	if id := line("/sys/class/dmi/id/product_uuid"); id != "" {
		return id
	}
	return machineID()
}

func bootID() string        { return line("/proc/sys/kernel/random/boot_id") }
func kernelVersion() string { return line("/proc/sys/kernel/osrelease") }

func osImage() string {
	if name := field("/etc/os-release", "PRETTY_NAME="); name != "" {
		return strings.Trim(name, `"`)
	}
	return "Linux"
}

// field returns what follows prefix on the first line of a file that begins with it.
func field(path, prefix string) string {
	f, err := os.Open(path) //nolint:gosec // the paths are constants
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// memory returns a line of /proc/meminfo in bytes.
func memory(prefix string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", prefix), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

func memoryTotal() int64     { return memory("MemTotal:") }
func memoryAvailable() int64 { return memory("MemAvailable:") }

// disk returns size and free space of the file system that dir is on.
func disk(dir string) (total, free int64) {
	var s unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &s) != nil {
		return 0, 0
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize
}

func roomOf(dir string) Room {
	var s unix.Statfs_t
	var at unix.Stat_t
	if dir == "" || unix.Statfs(dir, &s) != nil || unix.Stat(dir, &at) != nil {
		return Room{}
	}
	return Room{
		Size: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize, Inodes: int64(s.Files),
		InodesFree: int64(s.Ffree), Free: int64(s.Bfree) * s.Bsize, Device: at.Dev,
	}
}

// cpuTime adds up what the kernel counts as work: all but idling and waiting for disks. What guests use is in the time
// of users already.
func cpuTime() time.Duration {
	const tick = 10 * time.Millisecond // of USER_HZ, which is 100 everywhere
	counts := strings.Fields(field("/proc/stat", "cpu "))
	var sum time.Duration
	for i, text := range counts {
		const idle, iowait, guest = 3, 4, 8
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || i == idle || i == iowait || i >= guest {
			continue
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// pids returns how many tasks the kernel allows and how many there are.
func pids() (limit, used int64) {
	limit, err := strconv.ParseInt(line("/proc/sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return 0, 0
	}
	load := strings.Fields(line("/proc/loadavg"))
	if len(load) < 4 {
		return 0, 0
	}
	_, tasks, _ := strings.Cut(load[3], "/")
	used, err = strconv.ParseInt(tasks, 10, 64)
	if err != nil {
		return 0, 0
	}
	return limit, used
}
