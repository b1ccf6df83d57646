package helper

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// replacement asks the helper to become a process of another program. The namespaces are the process's, whatever
// program it is of, so that nothing of the kernel's changes: packets, connections and the socket on which the helper
// is called go on. Who was being answered calls again.
type replacement struct {
	program *os.File
	failed  chan error // Told why this is still the same program.
}

// handedOver is set in the environment of a helper that follows one of another program: the descriptor of the pipe of
// its spare, and its pid. The spare goes on, and would take the place of the new program too, until that has its own.
const handedOver = "MONOPLANE_SPARE"

// become makes this process one of another program. It returns if that fails. Only the main thread may call it, which
// is in the node namespace.
func become(program *os.File, spare *spareProcess) error {
	kept, environment := []int{ListenFD, DirFD}, os.Environ()
	if spare != nil {
		select {
		case <-spare.ended:
			spare = nil
		default:
		}
	}
	if spare != nil {
		pipe := int(spare.pipe.Fd())
		kept = append(kept, pipe)
		environment = append(environment, fmt.Sprintf("%s=%d %d", handedOver, pipe, spare.process.Pid))
	}
	var err error
	for _, fd := range kept {
		if _, failed := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); failed != nil {
			err = fmt.Errorf("descriptor %d cannot be handed on to the program: %w", fd, failed)
		}
	}
	if err == nil {
		err = syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), []string{Argv0}, environment)
		err = fmt.Errorf("the program cannot be run: %w", err)
	}
	for _, fd := range kept {
		unix.CloseOnExec(fd)
	}
	return err
}

// inherited returns the spare of the program that this one follows; nil if it follows none that had one.
func inherited() *spareProcess {
	text, is := os.LookupEnv(handedOver)
	_ = os.Unsetenv(handedOver)
	var pipe, pid int
	if _, err := fmt.Sscan(text, &pipe, &pid); !is || err != nil {
		return nil
	}
	unix.CloseOnExec(pipe)
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	p := &spareProcess{process: process, pipe: os.NewFile(uintptr(pipe), "spare"), ended: make(chan struct{})}
	go func() {
		_, _ = process.Wait()
		p.pipe.Close()
		close(p.ended)
	}()
	return p
}
