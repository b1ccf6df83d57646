package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/oci/spec"
)

// userTest remembers that user namespaces work here. What is in their way may go away, such as a limit.
type userTest struct {
	mu     sync.Mutex
	passed bool
}

// usersOf returns the users that a sandbox asks for; nil for the machine's.
func usersOf(config *runtimeapi.PodSandboxConfig) *runtimeapi.UserNamespace {
	u := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if !spec.OwnUsers(u) {
		return nil
	}
	return u
}

// checkUsers refuses users of its own to a sandbox that cannot have them. spec: USER-1, USER-2
func (r *Runtime) checkUsers(config *runtimeapi.PodSandboxConfig) error {
	u := usersOf(config)
	if u == nil {
		return nil
	}
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	const node = runtimeapi.NamespaceMode_NODE
	if options.GetNetwork() == node || options.GetPid() == node || options.GetIpc() == node {
		return badRequest("a pod with users of its own (hostUsers: false) cannot share the machine's network, " +
			"processes or IPC")
	}
	for _, ids := range [][]*runtimeapi.IDMapping{u.GetUids(), u.GetGids()} {
		if err := checkIDs(ids); err != nil {
			return err
		}
	}
	if err := r.canMapUsers(); err != nil {
		return failed("the pod cannot have users of its own (hostUsers: false): %v", err)
	}
	return nil
}

// checkIDs refuses ranges of which none has root, or that overlap.
func checkIDs(ids []*runtimeapi.IDMapping) error {
	root := false
	for i, m := range ids {
		const end = 1<<32 - 1 // The last number stands for none.
		size := uint64(m.GetLength())
		if size == 0 || uint64(m.GetContainerId())+size > end || uint64(m.GetHostId())+size > end {
			return badRequest("userns_options: no range of ids: %v", m)
		}
		if m.GetHostId() == 0 {
			return badRequest("userns_options: %v has the machine's root", m)
		}
		for _, other := range ids[:i] {
			if overlap(m.GetContainerId(), other.GetContainerId(), m.GetLength(), other.GetLength()) ||
				overlap(m.GetHostId(), other.GetHostId(), m.GetLength(), other.GetLength()) {
				return badRequest("userns_options: %v and %v overlap", m, other)
			}
		}
		root = root || m.GetContainerId() == 0
	}
	if !root {
		return badRequest("userns_options: a user namespace of the pod needs uids and gids, with root among them")
	}
	return nil
}

func overlap(a, b, sizeA, sizeB uint32) bool {
	return uint64(a) < uint64(b)+uint64(sizeB) && uint64(b) < uint64(a)+uint64(sizeA)
}

// usersLines are the ids of a sandbox's users as uid_map and gid_map have them.
func usersLines(config *runtimeapi.PodSandboxConfig, init *shimwire.InitRequest) {
	u := usersOf(config)
	for _, m := range u.GetUids() {
		init.UIDs = append(init.UIDs, fmt.Sprint(m.GetContainerId(), m.GetHostId(), m.GetLength()))
	}
	for _, m := range u.GetGids() {
		init.GIDs = append(init.GIDs, fmt.Sprint(m.GetContainerId(), m.GetHostId(), m.GetLength()))
	}
}

// canMapUsers returns why pods cannot have users of their own here; nil if they can.
func (r *Runtime) canMapUsers() error {
	switch {
	case r.oci == nil:
		return errors.New("the host runtime gives the machine's file system, whose users are the machine's")
	case !isRoot():
		return fmt.Errorf("that needs root; monoplane runs as user %d, and all its pods are in user namespaces of that "+
			"user's ids", os.Geteuid())
	}
	r.users.mu.Lock()
	defer r.users.mu.Unlock()
	if r.users.passed {
		return nil
	}
	err := tryUsers(r.dir)
	r.users.passed = err == nil
	return err
}

// tryUsers makes a user namespace and maps the ids of a directory's mount to it.
func tryUsers(dir string) error {
	wait, end, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	ids := []syscall.SysProcIDMap{{HostID: 1 << 16, Size: 1 << 16}}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{shim.HoldArgv0}, Dir: "/",
		// Left alone, the race detector lets it sleep for a second before it exits.
		Env: []string{"GOMAXPROCS=1", raceOptions + "=atexit_sleep_ms=0"}, Stdin: wait,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}}
	// The process is to die with its parent, and that is the thread which starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		end.Close()
		return fmt.Errorf("no user namespace can be made: %w (the kernel bounds them by user.max_user_namespaces)", err)
	}
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	end.Close() // It ends by that.
	_ = cmd.Wait()
	if err != nil {
		return err
	}
	defer users.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: dir, Err: err}
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("the ids of files in %s cannot be mapped, which takes Linux 5.12 or later and a file system that "+
			"can: %w", dir, err)
	}
	return nil
}
