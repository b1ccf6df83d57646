package shim

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"

	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/view"
)

const (
	prSetName           = 15
	prSetChildSubreaper = 36
	shimOOMScoreAdj     = -998
)

// prepare makes this process fit to be a shim, whatever it inherited.
func prepare() error {
	syscall.CloseOnExec(ConnFD)
	syscall.CloseOnExec(LockFD)
	syscall.CloseOnExec(ClaimFD)
	syscall.CloseOnExec(HelperFD)
	closeInherited()
	syscall.Umask(0o022)
	// Handled signals go back to their default in a child; ignored ones, which nohup for instance leaves, do not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGPIPE)
	resetSignals()
	if err := setName(Argv0); err != nil {
		return err
	}
	return prctl(prSetChildSubreaper, 1)
}

// resetSignals gives the signals that Go's runtime leaves alone, those that the C library uses among itself, their
// default action: whatever they do in the parent, a container's processes start clean.
func resetSignals() {
	var byDefault [32]byte // struct sigaction: no handler, no flags, an empty mask.
	for _, sig := range []uintptr{32, 33, 34} {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	}
}

// closeInherited closes what the parent left open by mistake, above all listening sockets that would stay taken for
// as long as the pod lives. The Go runtime's own descriptors are an epoll and an eventfd.
func closeInherited() {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, s := range all {
		fd, err := strconv.Atoi(s)
		if err != nil || fd <= HelperFD || fd == int(d.Fd()) {
			continue
		}
		switch target, _ := os.Readlink("/proc/self/fd/" + s); target {
		case "anon_inode:[eventpoll]", "anon_inode:[eventfd]":
			syscall.CloseOnExec(fd)
		default:
			syscall.Close(fd)
		}
	}
}

// protect asks the kernel to spare the shim when memory runs out. It returns the score that containers get unless
// they ask for another, and whether the shim may set any score.
func protect() (inherited int, privileged bool) {
	inherited, _ = oomScoreAdj()
	privileged = setOOMScoreAdj(shimOOMScoreAdj) == nil
	return inherited, privileged
}

// ownHostname gives the main thread, and so all that it forks, a UTS namespace with the pod's host name. It returns
// why that is not possible: then namespaces of other kinds are not either.
func ownHostname(name string) string {
	err := syscall.Unshare(syscall.CLONE_NEWUTS)
	if err == nil && name != "" {
		err = syscall.Sethostname([]byte(name))
	}
	if err != nil {
		return "no namespace can be made: " + err.Error() + "; " + view.Remedy
	}
	return ""
}

// dropAmbient keeps the capabilities that the shim has in a user namespace of its own from what it forks.
func dropAmbient() {
	var c capSets
	if syscall.Geteuid() == 0 || c.call(syscall.SYS_CAPGET) != nil {
		return
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, ambientClear, 0, 0, 0, 0)
	have := permitted()
	c.set(have, 0)
	if err := c.call(syscall.SYS_CAPSET); err != nil {
		complain("inheritable capabilities cannot be cleared", err)
	}
}

func oomScoreAdj() (int, error) {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	f := sys.Fields(string(b))
	if len(f) == 0 {
		return 0, nil
	}
	return strconv.Atoi(f[0])
}

func setOOMScoreAdj(score int) error {
	return os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}
