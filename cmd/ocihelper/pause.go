//go:build linux && cgo

package main

import (
	"os"
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pause is the process 1 of a pod whose containers share their processes: it reaps, and nothing else. Containers with
// CAP_SYS_PTRACE can look into it. So it has an empty root, no privileges, no environment that tells anything, one
// descriptor, which is a socket and so cannot be opened anew, and its program is a sealed file. It says "ok" on the
// socket, which is descriptor 3, once all of that is so, and else why not, and ends when the shim has closed its end:
// its parent's death tells it nothing, since it is the first process of a namespace that it is not told about in time.
// To lose the privileges of all threads of Go's runtime it executes itself once more.
func pause(settings []string) int {
	runtime.LockOSThread() // What a thread gives up it alone gives up, until it executes a program.
	ready := os.NewFile(reportFD, "ready")
	err := writeSettings(settings)
	if err == nil {
		err = shutOff()
	}
	_, _ = ready.WriteString(err.Error())
	return 1
}

// reap is what it becomes.
func reap() {
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, unix.SIGCHLD)
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	if _, err := unix.Write(reportFD, []byte("ok")); err != nil {
		os.Exit(1) // The shim has ended already.
	}
	go func() {
		for {
			if n, err := unix.Read(reportFD, make([]byte, 1)); err != unix.EINTR && n <= 0 {
				os.Exit(0) // With all that is left in the namespace.
			}
		}
	}()
	for fd := range 3 {
		_ = unix.Close(fd)
	}
	for {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); err != nil || pid <= 0 {
				break
			}
		}
		<-dead
	}
}

// shutOff needs the mount namespace in which the process was started. It returns only with an error: it executes the
// program anew, as root without any capability.
func shutOff() error {
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("none", "/proc", "tmpfs", flags, "size=4k,nr_inodes=1"); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	const lastCapability = 63
	for c := range uintptr(lastCapability + 1) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return os.NewSyscallError("prctl", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	args := []*byte{cString("monoplane-init"), cString("reap"), nil}
	env := []*byte{cString("GOMAXPROCS=1"), cString("GOTRACEBACK=single"), nil}
	empty := [1]byte{}
	_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(exe), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	return os.NewSyscallError("execveat", e)
}

func cString(s string) *byte {
	b, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err) // None of the constants above has a NUL.
	}
	return b
}
