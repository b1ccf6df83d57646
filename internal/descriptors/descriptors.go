// Package descriptors shares out the file descriptors that the process may have among those whose number clients and
// pods decide. Without it, whoever opens connections enough takes the last descriptor, and etcd ends where it cannot
// open a file.
//
// What all shares have together leaves three sixteenths of the descriptors to etcd, the runtime and the log files. Who
// has a share does not open more than that, and has the rest wait or refuses it.
package descriptors

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Share is a part of the descriptors, in thirty-seconds.
type Share int

// The shares.
const (
	// Listener is for the connections of each of the server's two listeners.
	Listener Share = 5
	// Network is for what pods send and get through the process: their way out without root, node ports, host ports.
	Network Share = 6
	// Services is for what clients hold of the services of their node: the API at its cluster IP, names, the health of
	// Services.
	Services Share = 2
	// Streams is for what the agents do for callers: logs, exec, attach, port-forward.
	Streams Share = 6
	// Ingress is for clients of Ingresses, and the connections that lead them to endpoints.
	Ingress Share = 2
)

// whole is all shares, and what is left.
const whole = 32

// Needed is how many descriptors a cluster with listeners needs at least.
const Needed = 128

// Count returns how many descriptors the share is, as if there were Needed at least.
func (s Share) Count() int {
	const many = 1 << 24 // as good as no limit
	n, err := limit()
	if err != nil {
		n = Needed
	}
	return int(min(max(n, Needed), many)) * int(s) / whole
}

// Enough says what is wrong where the process may have fewer descriptors than Needed.
func Enough() error {
	n, err := limit()
	if err != nil {
		return fmt.Errorf("cannot tell how many files may be open: %w", err)
	}
	if n < Needed {
		return fmt.Errorf("this process may open %d files only; it needs %d (ulimit -n)", n, Needed)
	}
	return nil
}

// limit is that of this process. Go has raised the soft limit to the hard one, and gives its children the old one.
func limit() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Cur, err
}
