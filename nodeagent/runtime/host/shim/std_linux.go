package shim

import (
	"os"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// std is what a process gets as standard input, output and error.
type std [3]*os.File

func (s std) fds() []uintptr { return []uintptr{s[0].Fd(), s[1].Fd(), s[2].Fd()} }

func (s std) close() {
	for _, f := range s {
		if f != nil {
			f.Close()
		}
	}
}

// openStd makes what process 1 reads from and writes to; the container keeps the other ends.
func (c *container) openStd() (s std, err error) {
	if c.req.Terminal && c.req.Bundle == "" {
		return c.openTerminal()
	}
	if c.req.Terminal {
		return nullStd()
	}
	if c.req.Stdin {
		s[0], c.input, err = newInput()
	} else {
		s[0], err = os.Open("/dev/null")
	}
	for i := 1; i < len(s) && err == nil; i++ {
		var out pipe
		if out, err = newPipe(&c.req); err == nil {
			s[i] = out.write
			c.outputs = append(c.outputs, out.read)
		}
	}
	if err != nil {
		s.close()
		c.closeStd()
	}
	return s, err
}

// closeStd closes what the container has kept.
func (c *container) closeStd() {
	for _, f := range c.outputs {
		_ = f.Close()
	}
	for _, f := range []*os.File{c.input, c.peer, c.view} {
		if f != nil {
			_ = f.Close()
		}
	}
}

type pipe struct{ read, write *os.File }

// newPipe makes a pipe whose reading end does not block a thread, and whose writing end the container's user may open
// by its name in /dev.
func newPipe(req *shimwire.StartRequest) (pipe, error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return pipe{}, os.NewSyscallError("pipe2", err)
	}
	if req.SetUser {
		_ = syscall.Fchown(fd[1], int(req.UID), int(req.GID))
	}
	_ = syscall.SetNonblock(fd[0], true)
	return pipe{read: os.NewFile(uintptr(fd[0]), "output"), write: os.NewFile(uintptr(fd[1]), "output")}, nil
}

// newInput makes a pipe whose writing end does not block a thread. It is an ordinary one to whoever reads it.
func newInput() (read, write *os.File, err error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	_ = syscall.SetNonblock(fd[1], true)
	return os.NewFile(uintptr(fd[0]), "input"), os.NewFile(uintptr(fd[1]), "input"), nil
}
