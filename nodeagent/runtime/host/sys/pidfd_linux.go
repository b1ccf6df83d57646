package sys

import (
	"os"
	"syscall"
	"time"
)

const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
)

// Signal sends sig to exactly the process that p names, which may be gone (syscall.ESRCH) but never be taken for a
// newer one with the same pid: the pidfd pins it, then its start time is compared.
func Signal(p Proc, sig syscall.Signal) error {
	fd, _, e := syscall.RawSyscall(sysPidfdOpen, uintptr(p.PID), 0, 0)
	if e == syscall.ENOSYS {
		return signalByPID(p, sig)
	}
	if e != 0 {
		return e
	}
	defer syscall.Close(int(fd))
	if now, err := Stat(p.PID); err != nil || now.Start != p.Start {
		return syscall.ESRCH
	}
	if _, _, e = syscall.RawSyscall6(sysPidfdSendSignal, fd, uintptr(sig), 0, 0, 0, 0); e != 0 {
		return e
	}
	freeToDie(p.PID, sig)
	return nil
}

// freeToDie lets a process that was killed come to its end if it is frozen. It may wait for something else as well:
// whoever kills looks whether it is gone.
func freeToDie(pid int, sig syscall.Signal) {
	if sig != syscall.SIGKILL {
		return
	}
	if now, err := Stat(pid); err == nil && now.State == 'D' {
		_ = unfreeze(pid)
	}
}

// signalByPID serves kernels before 5.3, where a microsecond between check and signal remains.
func signalByPID(p Proc, sig syscall.Signal) error {
	if now, err := Stat(p.PID); err != nil || now.Start != p.Start {
		return syscall.ESRCH
	}
	if err := syscall.Kill(p.PID, sig); err != nil {
		return err
	}
	freeToDie(p.PID, sig)
	return nil
}

// Pause is how long to wait between looks at something that ends by itself: short at first, then doubling to 100 ms.
type Pause struct{ next time.Duration }

// Wait blocks for the next pause.
func (p *Pause) Wait() {
	if p.next == 0 {
		p.next = 200 * time.Microsecond
	}
	time.Sleep(p.next)
	p.next = min(2*p.next, 100*time.Millisecond)
}

// Lock takes the flock of an open file without waiting; held tells that another open file has it.
func Lock(f *os.File) (held bool, err error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return false, nil
	case syscall.EWOULDBLOCK:
		return true, nil
	default:
		return false, os.NewSyscallError("flock", err)
	}
}
