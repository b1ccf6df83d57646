package shim

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/view"
)

// A container that needs more than a fork is started in two steps. The shim forks, as always once, and the child
// executes this program under the name SetupArgv0. That child makes itself what the container is to be, its mounts,
// its user, its privileges, and then executes the command: it is process 1 from the fork on.
//
//	shim                          child
//	fork ───────────────────────► executes this program as SetupArgv0
//	SetupRequest ───────────────► mounts, user, capabilities, seccomp
//	                              looks at the clock last (SAFE-4)
//	answer ◄───────────────────── becoming; executes the command, which closes the socket
//	                              or: an error, in words, and it ends
//
// So the answer is "becoming" alone when the command runs, and something else or nothing when it does not.

// SetupArgv0 is the program name under which the program sets up a container and becomes its command.
const SetupArgv0 = "monoplane-setup"

// Descriptors of a setup process, besides standard input, output and error.
const (
	setupFD = 3 // The socket to the shim.
	joinFD  = 4 // The mount namespace to enter, if the request says so.
)

// The first byte of what a setup process answers.
const (
	becoming   = '+' // It executes the command next.
	setupError = '-' // It failed; the rest says how.
	setupNo    = '!' // It failed because views are refused; the rest says how.
)

// setUp is the whole life of a setup process, unless it becomes the command.
func setUp() int {
	syscall.CloseOnExec(setupFD)
	syscall.CloseOnExec(joinFD)
	conn := os.NewFile(setupFD, "setup")
	err := become(conn)
	answer := append([]byte{setupError}, err.Error()...)
	var refused *view.Refused
	if errors.As(err, &refused) {
		answer[0] = setupNo
	}
	_, _ = conn.Write(answer)
	return shimwire.CodeNotStarted
}

// become returns only with an error.
func become(conn *os.File) error {
	body, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	var setup shimwire.SetupRequest
	var req shimwire.StartRequest
	if err := setup.Decode(body); err != nil {
		return err
	}
	if err := req.Decode(setup.Start); err != nil {
		return err
	}
	switch {
	case setup.Join:
		err = view.Join(joinFD)
	case req.HasView():
		err = view.Build(&req)
	}
	if err != nil {
		return err
	}
	cmd, err := resolve(setup.Args, req.Env, req.Dir)
	if err != nil {
		return err
	}
	if err := confine(&req); err != nil {
		return err
	}
	if err := syscall.Chdir(req.Dir); err != nil {
		return errors.New("working directory " + strconv.Quote(req.Dir) + ": " + err.Error())
	}
	// What changes a process's rights also ends its tie to its parent.
	if err := prctl(prSetDeathSignal, uintptr(syscall.SIGKILL)); err != nil {
		return err
	}
	if syscall.Getppid() != int(setup.Parent) {
		return errors.New("the shim has ended")
	}
	if err := expired(req.Expiry); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{becoming}); err != nil {
		return err
	}
	return cmd.explain(syscall.Exec(cmd.path, cmd.args, req.Env))
}

const (
	prSetDeathSignal = 1
	prSetKeepCaps    = 8
	prSetSeccomp     = 22
	prCapBoundDrop   = 24
	prSetNoNewPrivs  = 38
	prCapAmbient     = 47
	ambientRaise     = 2
	ambientClear     = 4
	seccompFilter    = 2
)

// confine gives this thread, which is about to execute the command, the user and the privileges of the container.
func confine(req *shimwire.StartRequest) error {
	if req.AppArmor != "" {
		// The file of the first security module is there on kernels that have no directory for each.
		change := []byte("exec " + req.AppArmor)
		err := os.WriteFile("/proc/thread-self/attr/apparmor/exec", change, 0)
		if os.IsNotExist(err) {
			err = os.WriteFile("/proc/thread-self/attr/exec", change, 0)
		}
		if err != nil {
			return errors.New("AppArmor profile " + strconv.Quote(req.AppArmor) + " cannot be applied: " + err.Error())
		}
	}
	// With no_new_privs anyone may filter, and does it last; else it takes a privilege that is about to be dropped.
	if req.Seccomp != "" && !req.NoNewPrivs {
		if err := filter(req.Seccomp); err != nil {
			return err
		}
	}
	if err := setRights(req); err != nil {
		return err
	}
	if req.NoNewPrivs {
		if err := prctl(prSetNoNewPrivs, 1); err != nil {
			return errors.New("privilege escalation cannot be forbidden: " + err.Error())
		}
		if req.Seccomp != "" {
			return filter(req.Seccomp)
		}
	}
	return nil
}

func filter(program string) error {
	const size = 8 // Of one instruction.
	prog := struct {
		length uint16
		code   *byte
	}{uint16(len(program) / size), unsafe.StringData(program)}
	_, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, seccompFilter, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return errors.New("the seccomp profile cannot be applied: " + e.Error() +
			" (it needs root, an unprivileged user namespace, or allowPrivilegeEscalation: false)")
	}
	return nil
}

// capSets are the sets of a thread, in the layout of capset(2), version 3.
type capSets [2]struct{ effective, permitted, inheritable uint32 }

func (c *capSets) set(effective, inheritable uint64) {
	for i := range c {
		shift := 32 * i
		c[i].effective, c[i].permitted = uint32(effective>>shift), uint32(effective>>shift)
		c[i].inheritable = uint32(inheritable >> shift)
	}
}

func (c *capSets) call(number uintptr) error {
	header := struct {
		version uint32
		pid     int32
	}{version: 0x20080522}
	if _, _, e := syscall.RawSyscall(number, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(c)), 0); e != 0 {
		return e
	}
	return nil
}

// permitted lists the capabilities that this thread may use.
func permitted() uint64 {
	var c capSets
	if c.call(syscall.SYS_CAPGET) != nil {
		return 0
	}
	return uint64(c[0].permitted) | uint64(c[1].permitted)<<32
}

const lastCap = 63

// setRights sets user, groups and capabilities. A shim in a user namespace of its own has capabilities there, for the
// sake of the mounts, that its containers do not get.
func setRights(req *shimwire.StartRequest) error {
	have := permitted()
	want, ambient := have, uint64(0)
	if syscall.Geteuid() != 0 {
		want = 0
	}
	if req.SetCaps {
		want, ambient = uint64(req.Caps)&want, uint64(req.Ambient)&have
		for c := range lastCap + 1 {
			if uint64(req.Caps)>>c&1 != 0 {
				continue
			}
			err := prctl(prCapBoundDrop, uintptr(c))
			if errors.Is(err, syscall.EPERM) && req.NoNewPrivs && syscall.Geteuid() != 0 {
				break // Who keeps none, and can gain none, need not lose them.
			}
			if err != nil && !errors.Is(err, syscall.EINVAL) {
				return errors.New("capability " + strconv.Itoa(c) + " cannot be dropped for good: " + err.Error() +
					" (it needs root or an unprivileged user namespace)")
			}
		}
	}
	if req.SetUser {
		if err := prctl(prSetKeepCaps, 1); err != nil {
			return err
		}
		if err := setUser(req); err != nil {
			return errors.New("user " + strconv.FormatInt(req.UID, 10) + " and group " + strconv.FormatInt(req.GID, 10) +
				" cannot be taken on: " + err.Error())
		}
	}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, ambientClear, 0, 0, 0, 0); e != 0 && have != 0 {
		return errors.New("ambient capabilities cannot be cleared: " + e.Error())
	}
	if have != 0 {
		var c capSets
		c.set(want|ambient, ambient)
		if err := c.call(syscall.SYS_CAPSET); err != nil {
			return errors.New("capabilities cannot be set: " + err.Error())
		}
	}
	for c := range lastCap + 1 {
		if ambient>>c&1 == 0 {
			continue
		}
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, ambientRaise, uintptr(c), 0, 0, 0); e != 0 {
			return errors.New("capability " + strconv.Itoa(c) + " cannot be made ambient: " + e.Error())
		}
	}
	return nil
}

// setUser changes this thread only, unlike the functions of package syscall.
func setUser(req *shimwire.StartRequest) error {
	groups := make([]uint32, len(req.Groups)+1)
	for i, g := range req.Groups {
		groups[i] = uint32(g)
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(req.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if e == 0 {
		gid := uintptr(req.GID)
		_, _, e = syscall.RawSyscall(syscall.SYS_SETRESGID, gid, gid, gid)
	}
	if e == 0 {
		uid := uintptr(req.UID)
		_, _, e = syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid)
	}
	if e != 0 {
		return e
	}
	return nil
}

// expired refuses a start that nobody waits for any more (SAFE-4).
func expired(expiry int64) error {
	if late := sys.BootTime() - expiry; expiry != 0 && late >= 0 {
		return errors.New("the start came too late: it had to happen until " + time.Duration(late).String() +
			" ago, and what it was for may have changed since")
	}
	return nil
}
