package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

const (
	// self is the program that this process executes. Unlike a path it stays the same when the file is replaced.
	self = "/proc/self/exe"
	// setupTime bounds the setup of an Exec, and of a container whose start has no expiry.
	setupTime = time.Minute
)

// Capabilities in the pod's own user namespace.
const (
	capSetPCap   = 8  // To drop the others for good.
	capSysChroot = 18 // To enter a mount namespace.
	capSysPtrace = 19 // To find the mount namespace of a process that hides itself.
	capSysAdmin  = 21 // To mount.
)

// ViewCaps are the capabilities that a shim without root needs in a user namespace of its own.
func ViewCaps() []uintptr { return []uintptr{capSetPCap, capSysChroot, capSysPtrace, capSysAdmin} }

// errRefused says that this shim can make no view.
type errRefused string

func (e errRefused) Error() string { return string(e) }

// bear starts process 1: by a fork alone where that is enough, else by way of a setup process. What the container can
// do without is left out where views are refused.
func (p *pod) bear(c *container, std std) (pid int, err error) {
	if c.req.Bundle != "" {
		return p.bearBundle(c, std)
	}
	for {
		if c.req.HasView() && p.noView != "" {
			err = errRefused(p.noView)
		} else {
			pid, err = p.bearOnce(c, std)
		}
		var refused errRefused
		if !errors.As(err, &refused) || !c.req.HasView() || !c.req.IsViewOptional() {
			return pid, err
		}
		p.mu.Lock()
		if !p.toldNoView { // Once for a pod: every container of the node would say it, at each start.
			c.rec.Warnings = append(c.rec.Warnings, withoutView(&c.req)+string(refused))
			p.toldNoView = true
		}
		p.mu.Unlock()
		c.req.Mounts, c.req.MaskedPaths, c.req.ReadOnlyPaths = nil, nil, nil
	}
}

func withoutView(req *shimwire.StartRequest) string {
	what := ""
	for i, m := range req.Mounts {
		if i > 0 {
			what += ", "
		}
		what += m.ContainerPath
	}
	switch {
	case req.IsMasked() && what == "":
		what = "all of /proc and /sys"
	case req.IsMasked():
		what += ", all of /proc and /sys"
	}
	return "not mounted, so that the container sees the machine's own: " + what + ": "
}

func (p *pod) bearOnce(c *container, std std) (int, error) {
	ended := func(ws syscall.WaitStatus) { p.firstEnded(c, ws) }
	if c.req.IsPlain() {
		cmd, err := resolve(c.req.Args, c.req.Env, c.req.Dir)
		if err != nil {
			return 0, err
		}
		pid, err := p.fork(c, cmd.program(&c.req, std), &child{c: c, first: true, terminal: c.req.Terminal, ended: ended})
		if err != nil {
			return 0, cmd.explain(err)
		}
		return pid, nil
	}
	limit := time.Now().Add(setupTime)
	if c.req.Expiry != 0 {
		limit = time.Now().Add(time.Duration(c.req.Expiry - sys.BootTime()))
	}
	ch := &child{c: c, first: true, terminal: c.req.Terminal}
	return p.setUp(c, &c.req, c.req.Args, std, ch, limit, ended)
}

func (c *command) program(req *shimwire.StartRequest, std std) *program {
	return &program{path: c.path, args: c.args, env: req.Env, dir: req.Dir, files: std.fds(), cred: credential(req)}
}

// setUp starts a command by way of a setup process, as req says; see setUp in become_linux.go. Ended is called once
// the command has ended; if it was never executed that is an error here, and the process is gone.
func (p *pod) setUp(
	c *container, req *shimwire.StartRequest, args []string, std std, ch *child, limit time.Time,
	ended func(syscall.WaitStatus),
) (pid int, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "setup")
	defer theirs.Close()
	_ = syscall.SetNonblock(pair[0], true)
	ours := os.NewFile(uintptr(pair[0]), "setup")
	defer ours.Close()
	what := &program{
		path: self, args: []string{SetupArgv0}, dir: "/",
		// It makes little garbage, and lives for milliseconds.
		env:   []string{"GOMAXPROCS=1", "GOGC=off", "GOTRACEBACK=single"},
		files: append(std.fds(), theirs.Fd()),
	}
	if syscall.Geteuid() != 0 && p.noView == "" {
		what.caps = ViewCaps()
	}
	if !ch.first && c.view != nil {
		what.files = append(what.files, c.view.Fd())
	}
	b := &birth{ended: ended, over: make(chan struct{})}
	ch.ended = b.reaped
	if pid, err = p.fork(c, what, ch); err != nil {
		return 0, err
	}
	theirs.Close()
	// In a container whose namespace the shim may not open, that of a program which nobody may read, an Exec makes an
	// equal one.
	setup := shimwire.SetupRequest{Start: req.Encode(), Args: args, Parent: int64(os.Getpid()),
		Join: !ch.first && c.view != nil}
	answer, err := converse(ours, setup.Encode(), limit)
	if len(answer) == 1 && answer[0] == becoming {
		b.becomes()
		return pid, nil
	}
	p.killGroup(pid, ch)
	<-b.over
	if len(answer) > 1 && answer[0] == becoming {
		answer = answer[1:]
	}
	switch {
	case len(answer) > 0 && answer[0] == setupNo:
		return 0, errRefused(answer[1:])
	case len(answer) > 0 && answer[0] == setupError:
		return 0, errors.New(string(answer[1:]))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errors.New("the container could not be set up in time: a mount, or a file that is needed for it, hangs")
	}
	return 0, errors.New("the process that sets up the container was ended from outside (by a memory limit, perhaps)")
}

// converse sends the request to a setup process and reads its answer, up to the end of the socket.
func converse(conn *os.File, request []byte, limit time.Time) ([]byte, error) {
	_ = conn.SetDeadline(limit)
	_, sent := conn.Write(request)
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	}
	const most = 64 << 10
	answer, err := io.ReadAll(io.LimitReader(conn, most))
	return answer, errors.Join(sent, err)
}

// birth is the time of a setup process, until it has become the command or has ended.
type birth struct {
	ended func(syscall.WaitStatus)
	over  chan struct{} // Closed when the process was reaped.

	mu     sync.Mutex
	became bool
	status syscall.WaitStatus // Valid once over is closed.
}

// reaped notes the end of the process.
func (b *birth) reaped(ws syscall.WaitStatus) {
	b.mu.Lock()
	b.status = ws
	close(b.over)
	became := b.became
	b.mu.Unlock()
	if became {
		b.ended(ws)
	}
}

// becomes notes that the process is the command, which may have ended since.
func (b *birth) becomes() {
	b.mu.Lock()
	b.became = true
	over := isClosed(b.over)
	b.mu.Unlock()
	if over {
		b.ended(b.status)
	}
}
