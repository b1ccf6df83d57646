package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Usage is what a container has used. A negative number is not known.
type Usage struct {
	CPUNanos    int64 // Since the container started.
	MemoryBytes int64 // At the moment.
}

// Stats reads the usage of a group. Without a memory controller it adds up the resident pages of its processes.
func Stats(g sys.Cgroup) Usage {
	u := Usage{CPUNanos: -1, MemoryBytes: -1}
	if g.Unified != "" {
		if b, err := os.ReadFile(filepath.Join(g.Unified, "cpu.stat")); err == nil {
			f := strings.Fields(string(b))
			if len(f) > 1 && f[0] == "usage_usec" {
				if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					u.CPUNanos = n * 1000
				}
			}
		}
		u.MemoryBytes = readInt(filepath.Join(g.Unified, "memory.current"))
	}
	for _, d := range g.V1 {
		if n := readInt(filepath.Join(d, "memory.usage_in_bytes")); n >= 0 {
			u.MemoryBytes = n
		}
	}
	if u.MemoryBytes < 0 && g.Unified != "" {
		u.MemoryBytes = resident(filepath.Join(g.Unified, "cgroup.procs"))
	}
	return u
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
