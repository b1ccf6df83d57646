// Package oom tells when the kernel kills a process because the machine as a whole has no memory left. It reads the
// kernel's log as it is written, and sleeps between two records. Kills inside a container's own limit are no news
// here: the runtime tells of those.
package oom

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// Log is where the kernel's log is read.
const Log = "/dev/kmsg"

// Victim is a process that the kernel has killed.
type Victim struct {
	PID     int
	Process string
}

// killed is what the kernel says of a victim. When it was a cgroup that had no memory left the words before are
// others.
var killed = regexp.MustCompile(`^Out of memory: Killed process (\d+) \((.*?)\)`)

// Parse returns the victim that a record of the log tells of. A record begins with its priority, number and time, up
// to a semicolon.
func Parse(record string) (v Victim, ok bool) {
	_, text, ok := strings.Cut(record, ";")
	if !ok {
		return Victim{}, false
	}
	m := killed.FindStringSubmatch(text)
	if m == nil {
		return Victim{}, false
	}
	pid, err := strconv.Atoi(m[1])
	return Victim{PID: pid, Process: m[2]}, err == nil
}

// maxRecord bounds a record of the kernel's log.
const maxRecord = 8 << 10

// Watch calls tell with every process that is killed from now on, until ctx ends. It fails at once where the log
// cannot be read, as it is for most users.
func Watch(ctx context.Context, path string, tell func(Victim)) error {
	// Without blocking, so that closing the file ends a read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the path is the caller's constant
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer func() {
		if stop() {
			_ = f.Close()
		}
	}()
	if _, err := f.Seek(0, io.SeekEnd); ctx.Err() != nil { // the file may be closed already
		return ctx.Err()
	} else if err != nil {
		return err
	}
	for buffer := make([]byte, maxRecord); ; {
		n, err := f.Read(buffer) // one record
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, syscall.EPIPE): // records were overwritten before they were read
			continue
		case err != nil:
			return err
		}
		if v, ok := Parse(string(buffer[:n])); ok {
			tell(v)
		}
	}
}
