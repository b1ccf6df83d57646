package shim

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	waitAll    = 0          // P_ALL
	waitNoReap = 0x01000000 // WNOWAIT
	waitClones = 0x40000000 // __WALL
)

func prctl(option int, arg uintptr) error {
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, uintptr(option), arg, 0); e != 0 {
		return os.NewSyscallError("prctl", e)
	}
	return nil
}

// setName sets the name that ps shows; without it, it would be "exe".
func setName(name string) error {
	b := append([]byte(name), 0)
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&b[0])), 0); e != 0 {
		return os.NewSyscallError("prctl", e)
	}
	return nil
}

// nextDead waits for a child to end and returns its pid without reaping it.
func nextDead() (int, error) {
	// siginfo_t is 128 bytes; for a child si_pid follows three ints, and a fourth of padding on 64-bit machines.
	var info [128 / 8]uint64
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, uintptr(unsafe.Pointer(&info)),
			syscall.WEXITED|waitNoReap|waitClones, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			return 0, e
		}
		offset := uintptr(12)
		if unsafe.Sizeof(offset) == 8 {
			offset = 16
		}
		return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset))), nil
	}
}
