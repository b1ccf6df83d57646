package shim

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

// getPeer is the request that opens the other end of a terminal, which package syscall lacks.
const getPeer = 0x5441 // TIOCGPTPEER

// openTerminal makes a pseudo terminal, which becomes the controlling one of process 1 and all that it reads from and
// writes to. The shim keeps one end, whose output goes to the log as stdout. It also keeps the container's end open
// until nothing of the container is left: a program that closes its terminal and opens it again would find it without
// a reader else. Until somebody attaches, who reads from the terminal waits.
func (c *container) openTerminal() (s std, err error) {
	const problem = "the container's terminal cannot be made: "
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return s, errors.New(problem + "/dev/ptmx: " + err.Error())
	}
	c.outputs = []*os.File{os.NewFile(uintptr(fd), "terminal")}
	var locked int32
	if err = ioctl(fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&locked))); err == nil {
		c.peer, err = peer(fd)
	}
	if err == nil && c.req.SetUser {
		err = syscall.Fchown(int(c.peer.Fd()), int(c.req.UID), -1)
	}
	for i := 0; i < len(s) && err == nil; i++ {
		s[i], err = peer(fd)
	}
	if err != nil {
		s.close()
		c.closeStd()
		return s, errors.New(problem + err.Error())
	}
	return s, nil
}

// peer opens the container's end of a terminal. It does not become that of the shim.
func peer(terminal int) (*os.File, error) {
	fd, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(terminal), getPeer,
		syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	if e != 0 {
		return nil, os.NewSyscallError("TIOCGPTPEER", e)
	}
	return os.NewFile(fd, "terminal"), nil
}

func ioctl(fd int, request, arg uintptr) error {
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, arg); e != 0 {
		return os.NewSyscallError("ioctl", e)
	}
	return nil
}
