package nodens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/helper"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// answerTime is how long the helper may take for an answer. It does nothing that waits for anybody but the kernel.
const answerTime = 10 * time.Second

// setUpShare is how many times as long it may take to set the namespace up: the kernel may have to load what rules are
// made of, from a slow disk. Who gives up too early ends a new namespace, and begins anew.
const setUpShare = 6

// errNoHelper says that nobody holds the namespace.
var errNoHelper = errors.New("the node namespace has no helper")

// remote is the helper, called by its socket.
type remote struct {
	dir *os.File
	// patience is answerTime when 0.
	patience time.Duration
}

// within returns how long the answer to a request may take.
func (r *remote) within(request *wire.Request) time.Duration {
	usual := cmp.Or(r.patience, answerTime)
	if request.Setup != nil {
		return setUpShare * usual
	}
	return usual
}

// call asks the helper for one thing. Where it is killed meanwhile, the one that follows is asked: whatever is asked
// for can be asked for twice.
func (r *remote) call(ctx context.Context, request *wire.Request, files ...*os.File) (
	reply *wire.Reply, answers []*os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.within(request))
	defer cancel()
	for range 5 {
		reply, answers, err = r.callOnce(ctx, request, files...)
		if reply != nil || err == nil || errors.Is(err, errNoHelper) || ctx.Err() != nil {
			break
		}
	}
	return reply, answers, err
}

func (r *remote) callOnce(ctx context.Context, request *wire.Request, files ...*os.File) (
	reply *wire.Reply, answers []*os.File, err error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err = wire.Send(conn, request, files...); err == nil {
		reply = &wire.Reply{}
		answers, err = wire.Receive(conn, reply)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, nil, fmt.Errorf("the helper of the node namespace does not answer: %w", err)
	}
	if err := reply.Failure(); err != nil {
		for _, f := range answers {
			f.Close()
		}
		return reply, nil, err
	}
	return reply, answers, nil
}

// file asks for something that is answered with one file.
func (r *remote) file(ctx context.Context, request *wire.Request, with ...*os.File) (*os.File, error) {
	_, files, err := r.call(ctx, request, with...)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("the helper of the node namespace answered with %d files instead of one", len(files))
	}
	return files[0], nil
}

// connect returns errNoHelper if nobody listens. Where the helper has more callers than it has let in, it waits.
func (r *remote) connect(ctx context.Context) (*net.UnixConn, error) {
	// By the open directory, since the address of a socket may have 107 bytes only.
	at := fmt.Sprintf("/proc/self/fd/%d/%s", r.dir.Fd(), helper.Socket)
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", at)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
			return nil, errNoHelper
		case errors.Is(err, unix.EAGAIN):
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("the helper of the node namespace lets nobody in: %w", context.Cause(ctx))
			case <-time.After(10 * time.Millisecond):
				continue
			}
		case err != nil:
			return nil, fmt.Errorf("the helper of the node namespace cannot be called: %w", err)
		}
		return conn.(*net.UnixConn), nil
	}
}

// process returns the helper's pid, and holds on to the process by a descriptor.
func (r *remote) process(ctx context.Context) (pid int, pidfd *os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := r.connect(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return 0, nil, cerr
	}
	if err != nil {
		return 0, nil, err
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, nil, fmt.Errorf("the helper of the node namespace is user %d's, not ours", cred.Uid)
	}
	fd, err := unix.PidfdOpen(int(cred.Pid), 0)
	if err != nil {
		return 0, nil, fmt.Errorf("the helper of the node namespace, process %d: %w", cred.Pid, err)
	}
	return int(cred.Pid), os.NewFile(uintptr(fd), "helper"), nil
}

// replaceHung kills a helper that does not answer, so that its spare becomes the helper.
func (r *remote) replaceHung(ctx context.Context) error {
	pid, pidfd, err := r.process(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return r.killAll(helper.Argv0)
	}
	if err != nil {
		return err
	}
	defer pidfd.Close()
	if !isAny(pid, helper.Argv0, helper.SpareArgv0) {
		return fmt.Errorf("process %d listens for the helper of the node namespace, but is none", pid)
	}
	return unix.PidfdSendSignal(int(pidfd.Fd()), unix.SIGKILL, nil, 0)
}

// isAny tells whether a process has one of these names.
func isAny(pid int, names ...string) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && slices.Contains(names, strings.TrimSuffix(string(name), "\x00"))
}

// killAll kills the helper, the spare, or both, by their names, where nobody can be asked who they are: their
// directory is open in them.
func (r *remote) killAll(names ...string) error {
	var own unix.Stat_t
	if err := unix.Fstat(int(r.dir.Fd()), &own); err != nil {
		return fmt.Errorf("the directory of the node namespace: %w", err)
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("the processes of the machine: %w", err)
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// First, so that what is found out is about this process.
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // It has ended.
		}
		var dir unix.Stat_t
		if isAny(pid, names...) && unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, helper.DirFD), &dir) == nil &&
			dir.Dev == own.Dev && dir.Ino == own.Ino {
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // It may have ended.
		}
		unix.Close(pidfd)
	}
	return nil
}
