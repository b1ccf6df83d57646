package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Usage is what a container uses. A negative number is not known.
type Usage struct {
	CPUNanos int64 // Since the container started.

	// At the moment, in bytes: all of it, what the kernel cannot take back at once, what belongs to no file, and how
	// much more the limit leaves.
	MemoryBytes, WorkingSet, Anonymous, Available int64
	// Since the container started.
	Faults, MajorFaults int64
}

// Stats reads the usage of a group. Without a memory controller it adds up the resident pages of its processes.
func Stats(g sys.Cgroup) Usage {
	u := Usage{MemoryBytes: -1, WorkingSet: -1, Anonymous: -1, Available: -1, Faults: -1, MajorFaults: -1}
	u.CPUNanos = CPU(g)
	if g.Unified != "" {
		u.readMemory(g.Unified, "memory.current", "memory.max", "", "anon")
	}
	for _, d := range g.V1 {
		u.readMemory(d, "memory.usage_in_bytes", "memory.limit_in_bytes", "total_", "rss")
	}
	if u.MemoryBytes < 0 && g.Unified != "" {
		u.MemoryBytes = resident(filepath.Join(g.Unified, "cgroup.procs"))
		u.WorkingSet = u.MemoryBytes
	}
	return u
}

// CPU reads how long the group and those below it have used a processor, in nanoseconds, with processes that have
// ended; negative when it is not known.
func CPU(g sys.Cgroup) int64 {
	if g.Unified != "" {
		if usec := readFields(filepath.Join(g.Unified, "cpu.stat"))["usage_usec"]; usec > 0 {
			return usec * 1000
		}
	}
	return -1
}

// Tasks counts the processes of the group and of those below it, with their threads, each of which takes a process id;
// negative when they are not known.
func Tasks(g sys.Cgroup) int64 {
	if g.Unified != "" {
		if n := readInt(filepath.Join(g.Unified, "pids.current")); n >= 0 {
			return n
		}
		return countLines(g.Unified, "cgroup.threads")
	}
	for _, d := range g.V1 {
		if n := readInt(filepath.Join(d, "pids.current")); n >= 0 {
			return n
		}
	}
	for _, d := range g.V1 {
		return countLines(d, "tasks")
	}
	return -1
}

// countLines counts the lines of the files of a name in dir and below; negative when dir has none.
func countLines(dir, name string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return -1
	}
	n := int64(bytes.Count(b, []byte("\n")))
	below, _ := os.ReadDir(dir) // what goes meanwhile counts as nothing
	for _, e := range below {
		if e.IsDir() {
			n += max(0, countLines(filepath.Join(dir, e.Name()), name))
		}
	}
	return n
}

// readMemory reads what the memory controller tells in dir, if it is there. Prefix is that of the fields of
// memory.stat which count the groups below too.
func (u *Usage) readMemory(dir, usage, limit, prefix, anonymous string) {
	n := readInt(filepath.Join(dir, usage))
	if n < 0 {
		return
	}
	u.MemoryBytes, u.WorkingSet = n, n
	if f := readFields(filepath.Join(dir, "memory.stat")); f != nil {
		u.WorkingSet = max(n-f[prefix+"inactive_file"], 0)
		u.Anonymous, u.Faults, u.MajorFaults = f[prefix+anonymous], f[prefix+"pgfault"], f[prefix+"pgmajfault"]
	}
	const unlimited = 1 << 60 // Version 1 says so with about the largest number there is.
	if most := readInt(filepath.Join(dir, limit)); most >= 0 && most < unlimited {
		u.Available = max(most-u.WorkingSet, 0)
	}
}

// readFields reads a file of names and numbers; nil when it is not there.
func readFields(name string) map[string]int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	out := map[string]int64{}
	f := strings.Fields(string(b))
	for i := 0; i+1 < len(f); i += 2 {
		if n, err := strconv.ParseInt(f[i+1], 10, 64); err == nil {
			out[f[i]] = n
		}
	}
	return out
}

func readInt(name string) int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func resident(procs string) int64 {
	b, err := os.ReadFile(procs)
	if err != nil {
		return -1
	}
	var sum int64
	for _, pid := range strings.Fields(string(b)) {
		s, err := os.ReadFile("/proc/" + pid + "/statm")
		if f := strings.Fields(string(s)); err == nil && len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += n * int64(os.Getpagesize())
		}
	}
	return sum
}
