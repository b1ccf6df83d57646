package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// look marks what the process finds about itself.
func look(name string, words []string) {
	switch words[0] {
	case "users":
		mark(name, fmt.Sprint("USERS=", users()))
	case "terminal":
		if hasTerminal() {
			mark(name, "TERMINAL")
		} else {
			mark(name, "NO-TERMINAL")
		}
	case "input":
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			mark(name, "INPUT-END")
		}()
	case "first":
		if os.Getpid() == 1 {
			mark(name, "FIRST")
		} else {
			mark(name, "NOT-FIRST")
		}
	case "peer":
		go func() {
			for !sees(words[1]) {
				time.Sleep(10 * time.Millisecond) // nothing tells of new processes
			}
			mark(name, "SEES-"+words[1])
		}()
	case "follow":
		go follow(name, words[1])
	}
}

// follow marks the lines of a file, and does so again each time that it has changed.
func follow(name, path string) {
	for seen := []byte(nil); ; time.Sleep(20 * time.Millisecond) { // nothing tells of changes
		text, err := os.ReadFile(path) //nolint:gosec // the scenario says which
		if err != nil {
			fail(err)
		}
		if bytes.Equal(text, seen) {
			continue
		}
		seen = text
		for line := range bytes.Lines(text) {
			mark(name, string(bytes.TrimSuffix(line, []byte{'\n'})))
		}
	}
}

// users counts the users of the namespace that the process lives in.
func users() uint32 {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		fail(err)
	}
	var all uint32
	for r := bytes.NewReader(text); ; {
		var first, outside, n uint32
		if _, err := fmt.Fscan(r, &first, &outside, &n); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			fail(err)
		}
		all += n
	}
}

// hasTerminal reports whether input and output are a terminal that controls the process.
func hasTerminal() bool {
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 || f.Name() == os.DevNull {
			return false
		}
	}
	controls, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return controls.Close() == nil
}

// sees reports whether the process of another container of this pod is among those that this one sees.
func sees(container string) bool {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		fail(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) //nolint:gosec // of a process; it may have ended
		variables := append([]byte{0}, text...)
		if bytes.Contains(variables, []byte("\x00ACT_NAME="+container+"\x00")) &&
			bytes.Contains(variables, []byte("\x00ACT_JOURNAL="+os.Getenv("ACT_JOURNAL")+"\x00")) {
			return true
		}
	}
	return false
}

// serveHealth has a program of its own answer by gRPC's health service, for good: first that the service serves, then
// that it does not. It is another program because most processes of the scenarios have no use for gRPC.
func serveHealth(l net.Listener, service string, until time.Duration) {
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		fail(err)
	}
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	// The child dies with the thread that made it.
	runtime.LockOSThread()
	program := self + "-health"
	server := exec.CommandContext(context.Background(), program, service, until.String()) //nolint:gosec // beside this
	server.ExtraFiles = []*os.File{listener}
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	fail(server.Run())
}
