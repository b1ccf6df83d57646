package shim

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// initArgv0 is how the process 1 of a pod whose containers share their processes is called.
const initArgv0 = "monoplane-init"

// ownNamespaces gives the main thread the namespaces that the containers of the pod share. What it forks is in them,
// and others find them as /proc/PID/ns of the shim, for as long as that lives. It returns why that is not possible.
func ownNamespaces(req *shimwire.InitRequest) string {
	flags := 0
	if req.OwnIPC {
		flags |= syscall.CLONE_NEWIPC
	}
	if req.OwnNetwork {
		flags |= syscall.CLONE_NEWNET
	}
	if flags == 0 {
		return writeSysctls(req.Sysctls)
	}
	ownKeys()
	if err := syscall.Unshare(flags); err != nil {
		return "no namespace can be made for the pod: " + err.Error()
	}
	if req.OwnNetwork {
		if err := loopbackUp(); err != nil {
			return "the pod's loopback cannot be set up: " + err.Error()
		}
	}
	return writeSysctls(req.Sysctls)
}

// ownKeys gives the main thread a keyring of its own: whoever has that of a session has its keys, and those of the
// session in which the server was started are no pod's. A kernel without keys has none to lose.
func ownKeys() {
	const joinSessionKeyring = 1
	_, _, _ = syscall.RawSyscall(syscall.SYS_KEYCTL, joinSessionKeyring, 0, 0)
}

// writeSysctls sets what belongs to the namespaces of this thread.
func writeSysctls(all []string) string {
	for _, s := range all {
		i := sys.Index(s, "=")
		if i <= 0 {
			continue
		}
		path := []byte("/proc/sys/" + s[:i])
		swapSeparators(path[len("/proc/sys/"):])
		if err := os.WriteFile(string(path), []byte(s[i+1:]), 0); err != nil {
			return "sysctl " + s[:i] + " cannot be set: " + err.Error()
		}
	}
	return ""
}

// swapSeparators makes a path of a name whose parts dots separate; dots within parts are slashes there. A name that
// has slashes first is a path already.
func swapSeparators(name []byte) {
	for i, b := range name {
		if b == '/' {
			return
		}
		if b == '.' {
			for j := i; j < len(name); j++ {
				switch name[j] {
				case '.':
					name[j] = '/'
				case '/':
					name[j] = '.'
				}
			}
			return
		}
	}
}

// loopbackUp sets the loopback of this thread's network up.
func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{name: [16]byte{'l', 'o'}, flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	return ioctl(fd, syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
}

// Shm is where the memory that containers share is mounted, in a namespace that the shim holds: below the pod's
// directory.
const Shm = "shm"

// holdMounts makes a mount namespace with the pod's /dev/shm. Nobody lives in it; helpers take a copy of the mount
// from there. It goes with the last that holds it, so that nothing has to be unmounted, whatever is killed. Owner are
// the options that say whose the directory is; empty for the shim's.
func holdMounts(owner string) (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // For good: the thread ends with this function.
		ns, err := makeMounts(owner)
		made <- result{ns, err}
	}()
	r := <-made
	if r.err != nil {
		return nil, errors.New("the pod's shared memory cannot be mounted: " + r.err.Error())
	}
	return r.ns, nil
}

// makeMounts makes it for this thread alone.
func makeMounts(owner string) (*os.File, error) {
	if err := os.Mkdir(Shm, 0o700); err != nil && !os.IsExist(err) {
		return nil, err
	}
	if err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS); err != nil {
		return nil, os.NewSyscallError("unshare", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return nil, os.NewSyscallError("mount", err)
	}
	const flags = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
	if err := syscall.Mount(Shm, Shm, "tmpfs", flags, "mode=1777,size=65536k"+owner); err != nil {
		return nil, os.NewSyscallError("mount", err)
	}
	return os.Open("/proc/thread-self/ns/mnt")
}

// bearInit starts the process 1 that the containers of the pod share. It does nothing but reap, and ends when the
// shim does, however that ends: the other end of its socket is nobody's but the shim's.
func (p *pod) bearInit() (pid int, err error) {
	// The socket stays open until the shim ends.
	pid, _, err = p.bearHolder([]string{"pause"}, &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS})
	if err != nil {
		return 0, errors.New("the process 1 that the containers share: " + err.Error())
	}
	return pid, nil
}

// bearHolder starts the helper, with a verb that holds namespaces, and waits until it says that it works: nobody is to
// join a process 1 before it has shut itself off. It ends when conn is closed.
func (p *pod) bearHolder(args []string, attr *syscall.SysProcAttr) (pid, conn int, err error) {
	null, err := nullStd()
	if err != nil {
		return 0, 0, err
	}
	defer null.close()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socketpair", err)
	}
	attr.Setsid, attr.Pdeathsig = true, syscall.SIGKILL
	p.onMain(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		// The containers may look into it: it is the helper, which nobody can change.
		pid, err = syscall.ForkExec(helperPath, append([]string{initArgv0}, args...), &syscall.ProcAttr{
			Dir: "/", Env: []string{"GOMAXPROCS=1", "GODEBUG=disablethp=1", "GOTRACEBACK=single"},
			Files: append(null.fds(), uintptr(pair[1])), Sys: attr,
		})
		if err == nil {
			p.children[pid] = &child{ended: func(syscall.WaitStatus) {}}
		}
	})
	_ = syscall.Close(pair[1])
	if err != nil {
		_ = syscall.Close(pair[0])
		return 0, 0, errors.New("its process cannot be started: " + err.Error())
	}
	select {
	case p.forked <- struct{}{}:
	default:
	}
	said := make([]byte, 4096)
	n, err := syscall.Read(pair[0], said)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(pair[0], said)
	}
	if err != nil || string(said[:n]) != "ok" {
		_ = syscall.Close(pair[0])
		return 0, 0, errors.New("its process does not work: " + string(said[:max(n, 0)]))
	}
	return pid, pair[0], nil
}

// orphans lists the processes of a container that its pod's common process 1 has inherited.
func (p *pod) orphans(c *container) (roots []int, err error) {
	if p.init1 == 0 {
		return nil, nil
	}
	kids, err := sys.Children(p.init1)
	if sys.Gone(err) {
		return nil, nil
	}
	for _, pid := range kids {
		m, unread := sys.MarkerOf(pid)
		if unread != nil {
			err = unread
		}
		if m == c.marker {
			roots = append(roots, pid)
		}
	}
	return roots, err
}
