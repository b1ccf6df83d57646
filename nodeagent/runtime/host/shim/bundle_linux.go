package shim

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// A container that has a bundle is made by a helper, a program of its own that knows namespaces, mounts and seccomp
// (cmd/ocihelper), and that lives for milliseconds.
//
//	shim                        helper                            process 1
//	fork ─────────────────────► makes the container ────────────► waits in its exec fifo
//	        ◄── "+PID" ──────── waits, so that the PID stays
//	enters PID as its child                                       (even a dead one is the helper's zombie)
//	closes the socket ────────► ends ──────────────────────────► becomes the shim's child
//	looks at the clock last (SAFE-4)
//	opens the fifo ─────────────────────────────────────────────► executes the command
//
// So the shim is its parent before the command runs, decides itself whether it runs, and sees its end, as with what
// it forks itself. If the shim is killed on the way, process 1 never gets beyond the fifo, and the next runtime ends
// it.

const (
	helperPath  = "/proc/self/fd/6" // HelperFD
	helperArgv0 = "monoplane-oci"
	created     = '+' // Begins the helper's answer when it has worked; else it is setupError.
)

// bearBundle starts process 1 of a container that has a bundle.
func (p *pod) bearBundle(c *container, std std) (int, error) {
	limit := time.Now().Add(setupTime)
	if c.req.Expiry != 0 {
		limit = time.Now().Add(time.Duration(c.req.Expiry - sys.BootTime()))
	}
	if err := expired(c.req.Expiry); err != nil { // Looked at again in release.
		return 0, err
	}
	var ours, theirs *os.File
	var err error
	if c.req.Terminal {
		if ours, theirs, err = consoleSocket(); err != nil {
			return 0, err
		}
	}
	b := &birth{ended: func(ws syscall.WaitStatus) { p.firstEnded(c, ws) }, over: make(chan struct{})}
	ch := &child{c: c, first: true, ended: b.reaped}
	pid, err := p.help(c, []string{"create"}, nil, std, theirs, limit, ch)
	if err == nil {
		if err = c.join(pid); err == nil {
			err = c.takeConsole(ours)
		}
		if err == nil {
			err = p.release(c, b, limit)
		}
		if err != nil {
			p.killGroup(pid, ch)
			<-b.over
		}
	}
	closeAll(ours, theirs)
	if err != nil {
		// Whatever the helper has left belongs to nobody else.
		var pause sys.Pause
		for !p.emptied(c) {
			pause.Wait()
		}
		return 0, err
	}
	b.becomes()
	return pid, nil
}

// join puts a process, such as process 1 while it waits, into the container's cgroup2 directory, unless the helper has
// done that. A helper that makes a container stays outside: its memory would count as the container's.
func (c *container) join(pid int) error {
	if !c.req.Joins || c.group.Unified == "" {
		return nil
	}
	err := os.WriteFile(c.group.Unified+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
	if err != nil {
		return errors.New("the container's cgroup cannot be joined: " + err.Error())
	}
	return nil
}

// release lets process 1 go on from the fifo in which it waits.
func (p *pod) release(c *container, b *birth, limit time.Time) error {
	// The last moment at which the answer is certain; see fork.
	if err := expired(c.req.Expiry); err != nil {
		return err
	}
	// For reading and writing, so that opening it waits for nobody.
	fifo, err := os.OpenFile(c.req.Bundle+"/state/"+c.req.ContainerID+"/exec.fifo", os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer fifo.Close()
	_ = fifo.SetReadDeadline(limit)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-b.over:
			_ = fifo.SetReadDeadline(time.Now())
		case <-done:
		}
	}()
	var one [1]byte
	_, err = fifo.Read(one[:])
	if err != nil && passed(fifo) {
		return nil // And it has ended already, before this shim came to read.
	}
	switch {
	case err == nil:
		return nil
	case isClosed(b.over):
		return errors.New("the process that sets up the container was ended from outside (by a memory limit, perhaps)")
	}
	return errors.New("the container could not be set up in time")
}

// passed tells whether process 1 has gone on from its fifo, whatever the deadline for that.
func passed(fifo *os.File) bool {
	var one [1]byte
	fd := int(fifo.Fd()) // Which lets it block.
	_ = syscall.SetNonblock(fd, true)
	n, err := syscall.Read(fd, one[:])
	return err == nil && n == len(one)
}

// help runs the helper, with a verb and its options, and makes the process that it answers with a child of this shim:
// ch. With an error there is no such child, and the helper has ended.
func (p *pod) help(
	c *container, verb, args []string, std std, console *os.File, limit time.Time, ch *child,
) (pid int, err error) {
	what := &program{
		// Without root, nobody else puts what an Exec runs into the container's groups before it can fork.
		outside: ch.first || !c.req.Joins,
		args:    slices.Concat([]string{helperArgv0}, verb, []string{c.req.Bundle, c.req.ContainerID}),
	}
	if ch.first {
		what.flags = syscall.CLONE_NEWNS
	}
	more := []*os.File{std[0]} // Descriptors have fixed numbers.
	if console != nil {
		what.args, more[0] = append(what.args, "--console"), console
	}
	if p.mounts != nil && ch.first {
		what.args, more = append(what.args, "--shm"), append(more, p.mounts)
	}
	what.args = append(append(what.args, "--"), args...)
	h, err := p.startHelper(c, what, std, more...)
	if err != nil {
		return 0, err
	}
	pid, err = answer(h.conn, limit)
	if err == nil {
		err = p.adopt(pid, h.pid, ch)
	}
	if err == nil && !ch.first {
		_ = c.join(pid) // The helper's library may have put it elsewhere. It may have ended, too.
	}
	if err != nil {
		p.killTree(h.pid, h.ch)
	}
	h.conn.Close()
	<-h.over
	return pid, err
}

// helping is a helper that runs. It ends when conn is closed.
type helping struct {
	conn *os.File // What it answers through.
	pid  int
	ch   *child
	over chan struct{} // Closed when it was reaped.
}

// startHelper starts the helper as what says, with more descriptors behind its standard ones and its socket.
func (p *pod) startHelper(c *container, what *program, std std, more ...*os.File) (*helping, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "helper")
	defer theirs.Close()
	_ = syscall.SetNonblock(pair[0], true)
	h := &helping{conn: os.NewFile(uintptr(pair[0]), "helper"), over: make(chan struct{})}
	h.ch = &child{c: c, ended: func(syscall.WaitStatus) { close(h.over) }}
	what.path, what.dir = helperPath, "/"
	what.env = []string{"GOMAXPROCS=1", "GOGC=off", "GOTRACEBACK=single", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	what.files = append(std.fds(), theirs.Fd())
	for _, f := range more {
		what.files = append(what.files, f.Fd())
	}
	h.pid, err = p.fork(c, what, h.ch)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOEXEC) {
		err = errors.New("the shim has no helper that makes containers: " + err.Error())
	}
	if err != nil {
		h.conn.Close()
		return nil, err
	}
	return h, nil
}

// answer reads what the helper says.
func answer(conn *os.File, limit time.Time) (pid int, err error) {
	const most = 64 << 10
	_ = conn.SetReadDeadline(limit)
	var text []byte
	buf := make([]byte, 256)
	for err == nil && len(text) < most {
		var n int
		n, err = conn.Read(buf)
		text = append(text, buf[:n]...)
		if len(text) > 0 && text[0] == created && text[len(text)-1] == '\n' {
			return strconv.Atoi(string(text[1 : len(text)-1]))
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errors.New("the container could not be set up in time: a mount, or a file that is needed for it, hangs")
	case len(text) > 1 && text[0] == setupError:
		return 0, errors.New(string(text[1:]))
	case err != nil && err != io.EOF:
		return 0, err
	}
	return 0, errHelperEnded
}

var errHelperEnded = errors.New("the process that makes the container was ended from outside")

// adopt enters a process as a child that is one as soon as the helper has ended. Until then the helper, even when it
// has been killed, has not reaped it, and while mu is held this shim does not.
func (p *pod) adopt(pid, helper int, ch *child) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	is, err := sys.Stat(pid)
	if err != nil || is.PPID != helper && is.PPID != os.Getpid() {
		return errors.New("the process that makes the container was ended from outside, and the container with it")
	}
	p.children[pid] = ch
	return nil
}

// bearExecBundle starts the process of an Exec in a container that has a bundle.
func (p *pod) bearExecBundle(
	c *container, req *shimwire.ExecRequest, std std, ch *child, ended func(syscall.WaitStatus),
) (int, error) {
	limit := time.Now().Add(setupTime)
	if req.Timeout > 0 && req.Timeout < int64(setupTime) {
		limit = time.Now().Add(time.Duration(req.Timeout))
	}
	ch.ended, ch.terminal = ended, false
	// In a frozen group the new process would never get to its program.
	if err := c.group.Thaw(); err != nil {
		complain("the container's cgroup cannot be thawed", err)
	}
	verb := []string{"exec"}
	if !req.Console {
		return p.help(c, verb, req.Args, std, nil, limit, ch)
	}
	if req.Width > 0 && req.Height > 0 {
		verb = append(verb, "--width="+strconv.FormatInt(req.Width, 10), "--height="+strconv.FormatInt(req.Height, 10))
	}
	null, err := nullStd()
	if err != nil {
		return 0, err
	}
	defer null.close()
	ours, theirs, err := consoleSocket()
	if err != nil {
		return 0, err
	}
	defer closeAll(ours, theirs)
	pid, err := p.help(c, verb, req.Args, null, theirs, limit, ch)
	if err != nil {
		return 0, err
	}
	if err := ch.passTerminal(ours, std[0]); err != nil {
		p.killTree(pid, ch)
		return 0, err
	}
	return pid, nil
}

// passTerminal passes the terminal of a command on to whoever has asked for it. The shim keeps it open as well: when a
// caller goes away and closes it, the command would end by that, perhaps before the shim could see what descends from
// it.
func (ch *child) passTerminal(from, to *os.File) error {
	fd, name, err := receiveTerminal(from)
	if err != nil {
		return err
	}
	ch.console = os.NewFile(uintptr(fd), "terminal")
	// If nobody is there to take it, the caller has gone, which the shim learns by the connection.
	_ = syscall.Sendmsg(int(to.Fd()), name, syscall.UnixRights(fd), nil, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
	return nil
}

// nullStd is what a process begins with that makes its terminal itself.
func nullStd() (s std, err error) {
	for i := range s {
		if s[i], err = os.OpenFile("/dev/null", os.O_RDWR, 0); err != nil {
			s.close()
			return std{}, err
		}
	}
	return s, nil
}

// consoleSocket makes the socket through which the terminal of a process comes.
func consoleSocket() (ours, theirs *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), "console"), os.NewFile(uintptr(pair[1]), "console"), nil
}

// takeConsole takes the terminal that was sent; see openTerminal.
func (c *container) takeConsole(from *os.File) error {
	if from == nil {
		return nil
	}
	fd, _, err := receiveTerminal(from)
	if err != nil {
		return err
	}
	_ = syscall.SetNonblock(fd, true)
	c.outputs = []*os.File{os.NewFile(uintptr(fd), "terminal")}
	c.peer, err = peer(fd)
	return err
}

// receiveTerminal takes the terminal, and its name, that a helper which has ended has sent.
func receiveTerminal(from *os.File) (fd int, name []byte, err error) {
	name, oob := make([]byte, 4096), make([]byte, 64)
	n, rights, _, _, err := syscall.Recvmsg(int(from.Fd()), name, oob, syscall.MSG_CMSG_CLOEXEC|syscall.MSG_DONTWAIT)
	if err != nil {
		return 0, nil, errors.New("the terminal was not made: " + err.Error())
	}
	msgs, err := syscall.ParseSocketControlMessage(oob[:rights])
	if err != nil || len(msgs) != 1 {
		return 0, nil, errors.New("the terminal was not sent")
	}
	fds, err := syscall.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return 0, nil, errors.New("the terminal was not sent")
	}
	return fds[0], name[:n], nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
