package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// health is what probes and hooks know about the process of their container: when it has begun, and the part of its
// life in which it is healthy; until is 0 for no end.
type health struct {
	begin       time.Time
	from, until time.Duration
}

// healthPath is where the process of a container tells it. The file of an instance that was killed stays there.
func healthPath(name string) string { return os.Getenv("ACT_JOURNAL") + "." + name }

// tell lets probes and hooks know. They find all of it or nothing.
func (h health) tell(name string) {
	pid := os.Getpid()
	born, err := bornAt(pid)
	if err != nil {
		fail(err)
	}
	text := fmt.Sprintln(pid, born, h.begin.UnixNano(), int64(h.from), int64(h.until))
	whole := healthPath(name) + ".new"
	if err := errors.Join(os.WriteFile(whole, []byte(text), 0o600), os.Rename(whole, healthPath(name))); err != nil {
		fail(err)
	}
}

// awaitProcess waits until the process of the container has begun, left its first mark and can be told to stop. A
// busy machine may run a probe or a hook before that process, and no scenario is about which of them is faster.
func awaitProcess(name string) health {
	const longest = time.Minute
	for began := time.Now(); time.Since(began) < longest; time.Sleep(10 * time.Millisecond) { // nothing tells of files
		if h, lives := read(name); lives {
			return h
		}
	}
	fail(fmt.Errorf("the process of container %s has not begun within %s", name, longest))
	return health{}
}

// read returns what the process has told, if that lives.
func read(name string) (h health, lives bool) {
	text, err := os.ReadFile(healthPath(name))
	if err != nil {
		return health{}, false
	}
	var pid int
	var born string
	var begin, from, until int64
	if _, err := fmt.Sscan(string(text), &pid, &born, &begin, &from, &until); err != nil {
		fail(err)
	}
	now, err := bornAt(pid)
	return health{time.Unix(0, begin), time.Duration(from), time.Duration(until)}, err == nil && now == born
}

// bornAt returns when a process was started, as the kernel counts. With it a process differs from the next of the same
// number, as which each instance of a container begins that sees no others.
func bornAt(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name of the program, in parentheses, may have anything in it. After it this is the twentieth field.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d has %d fields after its name in its stat, 20 were expected", pid, len(fields))
	}
	return fields[19], nil
}
