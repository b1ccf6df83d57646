package gate

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// minDescriptors is how many file descriptors a cluster with listeners needs at least.
	minDescriptors = 128
	// maxConnections is how many connections a listener has at most, however many descriptors there are.
	maxConnections = 4096
)

// ProcessLimits shares out the file descriptors that the process may have: each listener gets a quarter, so that half
// of them stay for etcd, the runtime and the log files, whatever clients do. Go has raised the soft limit to the hard
// one for this process, and gives its children the old one.
func ProcessLimits() (Limits, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return Limits{}, fmt.Errorf("cannot tell how many files may be open: %w", err)
	}
	if limit.Cur < minDescriptors {
		return Limits{}, fmt.Errorf("this process may open %d files only; it needs %d (ulimit -n)", limit.Cur,
			minDescriptors)
	}
	return Limits{MaxConnections: int(min(maxConnections, limit.Cur/4))}, nil
}
