package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/view"
)

// self is the program that shims execute. Unlike a path it stays the same program when the file is replaced.
const self = "/proc/self/exe"

// raceOptions is the variable from which the race detector of Go reads its options.
const raceOptions = "GORACE"

// launch starts the shim of a sandbox whose directory is published, and tells it what it is for. Until it was told it
// ends by itself when this process does; when it does not answer in time it is killed. With an error, ended tells
// whether it is known to be dead.
func (r *Runtime) launch(ctx context.Context, sb *sandbox, claim *os.File) (conn *shimConn, ended bool, err error) {
	lock, err := os.OpenFile(filepath.Join(sb.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, true, err
	}
	defer lock.Close() // The shim's copy goes on holding the lock.
	held, err := sys.Lock(lock)
	if err != nil {
		return nil, true, fmt.Errorf("the lock of the new sandbox cannot be taken: %w", err)
	}
	if held {
		return nil, true, errors.New("the lock of the new sandbox is held already")
	}
	log, err := os.OpenFile(filepath.Join(sb.dir, shim.LogName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, true, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, true, err
	}
	defer null.Close()
	helper, err := r.helper(null)
	if err != nil {
		return nil, true, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, true, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "shim")
	defer theirs.Close()
	ours, err := fileConn(pair[0])
	if err != nil {
		return nil, true, err
	}
	claimed := claim
	if claimed == nil {
		claimed = null
	}
	proc, noView, err := r.spawn(ctx, sb, &os.ProcAttr{
		Dir: sb.dir,
		// Little memory is worth more than speed to a process that mostly waits, and where the kernel gives large pages
		// to all, one of them would be more than all it needs. Options of the race detector are handed on: with its
		// own ones every process that it watches sleeps a second before it exits.
		Env: []string{"GOMAXPROCS=1", "GOGC=25", "GOMEMLIMIT=24MiB", "GODEBUG=disablethp=1", "GOTRACEBACK=single",
			raceOptions + "=" + os.Getenv(raceOptions)},
		Files: []*os.File{null, log, log, theirs, claimed, lock, helper},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ours.Close()
		return nil, true, fmt.Errorf("cannot start a shim: %w", err)
	}
	if sb.shim, err = sys.Stat(proc.Pid); err == nil && claim != nil {
		err = shimwire.Append(r.claimName(sb), r.claimOf(sb).encode(), false)
	}
	conn = newShimConn(ours, r.bounds.send)
	go conn.read(func(rec shimwire.Container) { r.noteEvent(sb, rec) })
	if err == nil {
		init := shimwire.InitRequest{SandboxID: sb.id, BootID: r.bootID, Marker: uint64(sb.rec.marker),
			Hostname: ownHostname(sb.rec.config), NoView: noView}
		r.namespacesOf(sb, &init)
		var h *shimwire.HelloReply
		if h, err = conn.hello(ctx, shimwire.Init, init.Encode()); err != nil {
			err = fmt.Errorf("the new shim does not work: %w (its log: %s)", err, tail(log.Name()))
		} else {
			r.noteShim(sb, h)
			err = r.join(ctx, sb, h)
		}
	}
	if err != nil {
		conn.conn.Close()
		return nil, r.endUnborn(proc), err
	}
	// Nobody waits for the process: bury reaps it once its connection and its lock are gone.
	_ = proc.Release()
	return conn, true, nil
}

// endUnborn kills a shim that was not told what it is for, and tells whether it is dead.
func (r *Runtime) endUnborn(proc *os.Process) bool {
	_ = proc.Kill()
	dead := make(chan struct{})
	go func() {
		_, _ = proc.Wait()
		close(dead)
	}()
	patience := time.NewTimer(r.bounds.hello)
	defer patience.Stop()
	select {
	case <-dead:
		return true
	case <-patience.C:
		return false
	}
}

// spawn starts the process, inside the shim's cgroup if that is possible, and in a user namespace of its own if it
// needs one to make views. NoView tells why it got none where it needs one.
func (r *Runtime) spawn(
	ctx context.Context, sb *sandbox, attr *os.ProcAttr,
) (proc *os.Process, noView string, err error) {
	const most = 512 // For ps to show; a client's names may be of any length.
	name := sb.rec.config.GetMetadata().GetNamespace() + "/" + sb.rec.config.GetMetadata().GetName()
	argv := []string{shim.Argv0, name[:min(len(name), most)]}
	dir, err := r.cgroups.MakePod(sb.rec.group)
	if err != nil {
		return nil, "", err
	}
	if dir != "" {
		f, err := os.Open(dir)
		if err != nil {
			return nil, "", err
		}
		defer f.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(f.Fd())
	}
	if r.isRootless() {
		proc, err := r.spawnBelow(ctx, argv, attr)
		return proc, "", err
	}
	if os.Geteuid() != 0 {
		plain := *attr.Sys
		ownUserNamespace(attr.Sys)
		if proc, err = os.StartProcess(self, argv, attr); err == nil {
			return proc, "", nil
		}
		noView = fmt.Sprintf("no user namespace can be made: %v; %s", err, view.Remedy)
		attr.Sys = &plain
	}
	proc, err = os.StartProcess(self, argv, attr)
	return proc, noView, err
}

// ownUserNamespace gives a process a user namespace in which this user, and nobody else, exists, and in it what is
// needed to mount. Nothing outside of it becomes possible by that.
func ownUserNamespace(attr *syscall.SysProcAttr) {
	uid, gid := os.Geteuid(), os.Getegid()
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = shim.ViewCaps()
}

// tail returns the end of a small file.
func tail(name string) string {
	b, err := os.ReadFile(name)
	if err != nil || len(b) == 0 {
		return "empty"
	}
	return string(b[max(0, len(b)-512):])
}
