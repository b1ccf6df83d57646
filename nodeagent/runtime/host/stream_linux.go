package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/stream"
)

const (
	// streamPiece is how much is read from a process at once.
	streamPiece = 32 << 10
	// maxLeftovers is how much output is passed on that comes after the process has ended, from what it left behind.
	maxLeftovers = 1 << 20
	// dialPatience is how long a port, or a shim, may take to accept a connection.
	dialPatience = 10 * time.Second
)

var _ stream.Runtime = (*Runtime)(nil)

// ExecStream implements stream.Runtime.
//
// spec: CTR-9
func (r *Runtime) ExecStream(ctx context.Context, req *runtimeapi.ExecRequest, with stream.Streams) (int32, error) {
	if len(req.GetCmd()) == 0 {
		return 0, badRequest("no command")
	}
	c, conn, err := r.streamTo(ctx, req.GetContainerId())
	if err != nil {
		return 0, err
	}
	defer conn.hangUp()
	var ends *pipes
	if req.GetTty() && c.rec.image != "" {
		ends, err = newConsole(with)
	} else if req.GetTty() {
		ends, err = c.terminal(with)
	} else {
		ends, err = newPipes(req.GetStdin(), req.GetStdout(), req.GetStderr(), with, false)
	}
	if err != nil {
		return 0, failed("%v", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ends.run(ctx, cancel)
	call := shimwire.ExecRequest{ContainerID: c.id, Args: req.GetCmd(), Terminal: req.GetTty(),
		Console: ends.console != nil, Width: int64(ends.first.Width), Height: int64(ends.first.Height)}
	b, err := conn.call(ctx, shimwire.Exec, call.Encode(), append(ends.fds, ends.kept...)...)
	if err != nil {
		conn.hangUp() // The shim is to kill the command now, not when its output has come to an end.
	}
	ends.finish(err == nil)
	var reply shimwire.ExecReply
	if err == nil {
		err = reply.Decode(b)
	}
	switch {
	case err != nil:
		return 0, r.streamError(ctx, c, err)
	case reply.Error != "":
		return 0, failed("%s", reply.Error)
	}
	return int32(reply.ExitCode), nil
}

// streamError is what a caller is told whose conversation with a container broke off. A shim that ends because its pod
// is being stopped takes the connection with it.
func (r *Runtime) streamError(ctx context.Context, c *container, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return callError(errors.Join(cause, err))
	}
	r.mu.RLock()
	ready := c.sb.readyLocked()
	r.mu.RUnlock()
	if errors.Is(err, errConnLost) && !ready {
		return wrongState("container %s is not running any more: its pod is being stopped; it is not known what became "+
			"of the call", c.id)
	}
	return callError(err)
}

// AttachStream implements stream.Runtime.
//
// spec: CTR-9
func (r *Runtime) AttachStream(ctx context.Context, req *runtimeapi.AttachRequest, with stream.Streams) error {
	c, conn, err := r.streamTo(ctx, req.GetContainerId())
	if err != nil {
		return err
	}
	defer conn.hangUp()
	config := c.rec.config
	ends, err := newPipes(req.GetStdin() && config.GetStdin(), req.GetStdout(), req.GetStderr(), with, true)
	if err != nil {
		return failed("%v", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if config.GetTty() {
		ends.resize = func(size stream.Size) {
			call := shimwire.ResizeRequest{ContainerID: c.id, Width: int64(size.Width), Height: int64(size.Height)}
			_, _ = conn.container(ctx, shimwire.Resize, call.Encode()) // A terminal that has gone has no size.
		}
	}
	ends.run(ctx, cancel)
	call := shimwire.AttachRequest{ContainerID: c.id, Once: req.GetStdin() && config.GetStdinOnce() && !config.GetTty()}
	b, err := conn.call(ctx, shimwire.Attach, call.Encode(), ends.fds...)
	if err != nil {
		conn.hangUp()
	}
	ends.finish(err == nil)
	var rec shimwire.Container
	if err == nil {
		err = rec.Decode(b)
	}
	switch {
	case err != nil:
		return r.streamError(ctx, c, err)
	case rec.Error != "":
		return failed("%s", rec.Error)
	}
	return nil
}

// Forward implements stream.Runtime. The ports are those of the pod's network, which may be the machine's, on its
// loopback addresses.
//
// spec: CTR-9
func (r *Runtime) Forward(ctx context.Context, sandbox string, port int32, conn stream.Conn) error {
	r.mu.RLock()
	sb := r.sandboxes[sandbox]
	ready := sb != nil && sb.readyLocked()
	r.mu.RUnlock()
	switch {
	case sb == nil:
		return notFound("sandbox", sandbox)
	case !ready:
		return wrongState("sandbox %s is not ready", sandbox)
	case port <= 0 || port > 65535:
		return badRequest("%d is no port", port)
	}
	far, err := r.dialPod(ctx, sb, int(port))
	if err != nil {
		return unavailable("%v", err)
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { far.Close() })()
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = io.Copy(struct{ io.Writer }{far}, conn)
		if half, ok := far.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err = io.Copy(conn, struct{ io.Reader }{far})
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		return callError(errors.Join(ctx.Err(), err))
	}
	select {
	case <-said:
		return nil
	case <-ctx.Done():
		return callError(ctx.Err())
	}
}

// dialPod connects to a port on the loopback of a pod's network.
func (r *Runtime) dialPod(ctx context.Context, sb *sandbox, port int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialPatience}
	if !r.ownNetwork(sb.rec.config) {
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	var all error
	for _, own := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		conn, err := r.oci.Network.Dial(ctx, sb.networked(), "tcp", netip.AddrPortFrom(own, uint16(port)))
		if err == nil {
			return conn, nil
		}
		all = errors.Join(all, err)
	}
	return nil, all
}

// streamTo returns a container and a connection of one call's own to its shim: to close it is what tells the shim
// that the caller has gone.
func (r *Runtime) streamTo(ctx context.Context, id string) (*container, *shimConn, error) {
	r.mu.RLock()
	c := r.containers[id]
	version := int64(0)
	if c != nil {
		version = c.sb.version
	}
	r.mu.RUnlock()
	if c == nil {
		return nil, nil, notFound("container", id)
	}
	u, err := callShim(ctx, c.sb.dir)
	if err != nil {
		return nil, nil, wrongState("container %s is not running: its shim cannot be reached: %v", id, err)
	}
	if version < shimwire.Streams {
		u.Close()
		return nil, nil, wrongState("the pod was started by an older version of monoplane, whose shim knows neither exec " +
			"with streams nor attach: delete the pod, and create it anew")
	}
	conn := newShimConn(u, r.bounds.send)
	go conn.read(func(shimwire.Container) {})
	return c, conn, nil
}

// hangUp closes the connection and waits until nothing reads from it.
func (s *shimConn) hangUp() {
	s.conn.Close()
	<-s.done
}

// pipes connect the near ends of a stream with descriptors that go to a shim.
type pipes struct {
	with   stream.Streams
	theirs []*os.File
	fds    []int              // Those of theirs, which File.Fd would make block.
	kept   []int              // Those of out, of which the shim keeps a copy while a command runs.
	in     *os.File           // What With.In is written to; nil for none.
	out    [2]*os.File        // What With.Out and With.Err are read from; nil for none.
	resize func(stream.Size)  // Nil where there is no terminal.
	over   atomic.Bool        // The process has ended.
	copies sync.WaitGroup     // Those of out.
	stop   context.CancelFunc // Ends what resizes.

	// console is where the terminal comes from that the command makes, and arrived is closed when it has come, or will
	// not any more; nil where it is there from the beginning.
	console *net.UnixConn
	first   stream.Size // What that terminal is to begin with.
	arrived chan struct{}
}

// newPipes makes what is asked for; the rest is /dev/null. The shim reads and writes them itself if it is to attach,
// and then they must not block there.
func newPipes(in, out, errs bool, with stream.Streams, attach bool) (*pipes, error) {
	p := &pipes{with: with}
	if !in {
		p.with.In = nil
	}
	if !out {
		p.with.Out = nil
	}
	if !errs {
		p.with.Err = nil
	}
	for i, wanted := range []bool{p.with.In != nil, p.with.Out != nil, p.with.Err != nil} {
		if !wanted {
			null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				p.close()
				return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
			}
			p.give(null)
			continue
		}
		var fd [2]int
		if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
			p.close()
			return nil, os.NewSyscallError("pipe2", err)
		}
		ours, theirs := fd[0], fd[1]
		if i == 0 {
			ours, theirs = fd[1], fd[0]
		}
		_ = unix.SetNonblock(ours, true)
		_ = unix.SetNonblock(theirs, attach)
		mine := os.NewFile(uintptr(ours), "stream")
		p.give(theirs)
		if i == 0 {
			p.in = mine
		} else {
			p.out[i-1], p.kept = mine, append(p.kept, ours)
		}
	}
	return p, nil
}

// terminal makes a terminal for a command in c.
func (c *container) terminal(with stream.Streams) (*pipes, error) {
	const problem = "the terminal cannot be made: %w"
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf(problem, err)
	}
	master := os.NewFile(uintptr(fd), "terminal")
	p := &pipes{with: with, in: master, out: [2]*os.File{master, nil}, kept: []int{fd}}
	p.with.Err = nil
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		p.close()
		return nil, fmt.Errorf(problem, err)
	}
	for range 3 {
		peer, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER,
			unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if e != 0 {
			p.close()
			return nil, fmt.Errorf(problem, e)
		}
		p.give(int(peer))
	}
	if start, err := c.startRequest(); err == nil && start.SetUser {
		if err := p.theirs[0].Chown(int(start.UID), -1); err != nil {
			p.close()
			return nil, fmt.Errorf(problem, err)
		}
	}
	p.resize = func(size stream.Size) { resizeTerminal(master, size) }
	return p, nil
}

func resizeTerminal(master *os.File, size stream.Size) {
	raw, err := master.SyscallConn()
	if err != nil {
		return
	}
	ws := unix.Winsize{Row: size.Height, Col: size.Width}
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCSWINSZ, uintptr(unsafe.Pointer(&ws)))
	})
}

// newConsole is for a command that makes its terminal in its container, where it has a name, and sends it.
func newConsole(with stream.Streams) (*pipes, error) {
	const problem = "the terminal cannot be made: %w"
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf(problem, err)
	}
	p := &pipes{with: with, arrived: make(chan struct{})}
	p.with.Err = nil
	// The size that it begins with, if it is known already: a program asks for it when it starts.
	select {
	case p.first = <-with.Sizes:
	default:
	}
	p.give(pair[1])
	if p.console, err = fileConn(pair[0]); err != nil {
		p.close()
		return nil, fmt.Errorf(problem, err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = p.console.Close()
		p.close()
		return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	p.give(null)
	return p, nil
}

// receive waits for the terminal.
func (p *pipes) receive() error {
	name, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := p.console.ReadMsgUnix(name, rights)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return errors.Join(errors.New("no terminal was sent"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return errors.Join(errors.New("no terminal was sent"), err)
	}
	unix.CloseOnExec(fds[0])
	_ = unix.SetNonblock(fds[0], true)
	master := os.NewFile(uintptr(fds[0]), "terminal")
	p.in, p.out[0] = master, master
	p.resize = func(size stream.Size) { resizeTerminal(master, size) }
	return nil
}

// give adds a descriptor that goes to the shim.
func (p *pipes) give(fd int) {
	p.fds = append(p.fds, fd)
	p.theirs = append(p.theirs, os.NewFile(uintptr(fd), "stream"))
}

// run begins to pass on. Cancel is called when nobody takes the output.
func (p *pipes) run(ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, p.stop = context.WithCancel(ctx)
	if p.console == nil {
		p.begin(ctx, cancel)
		return
	}
	go func() {
		defer close(p.arrived)
		if p.receive() == nil { // Else the command has failed, which its caller is told by the shim.
			p.begin(ctx, cancel)
		}
	}()
}

// begin passes on what there is to pass on.
func (p *pipes) begin(ctx context.Context, cancel context.CancelCauseFunc) {
	if p.resize != nil && p.with.Sizes != nil {
		// The size that the terminal begins with, if it is known already: a program asks for it when it starts.
		select {
		case size := <-p.with.Sizes:
			p.resize(size)
		default:
		}
		go p.resizeUntil(ctx)
	}
	if p.in != nil && p.with.In != nil {
		go p.write()
	}
	for i, to := range []io.Writer{p.with.Out, p.with.Err} {
		if to == nil || p.out[i] == nil {
			continue
		}
		p.copies.Go(func() {
			if err := p.read(p.out[i], to); err != nil {
				cancel(err)
			}
		})
	}
}

func (p *pipes) resizeUntil(ctx context.Context) {
	for {
		select {
		case size, ok := <-p.with.Sizes:
			if !ok {
				return
			}
			p.resize(size)
		case <-ctx.Done():
			return
		}
	}
}

// write passes on the input. Its end closes a pipe; a terminal stays open.
func (p *pipes) write() {
	_, _ = io.Copy(struct{ io.Writer }{p.in}, p.with.In)
	if p.in != p.out[0] {
		p.in.Close()
	}
}

// read passes on one output. The error is that of the writer.
func (p *pipes) read(from *os.File, to io.Writer) error {
	buf := make([]byte, streamPiece)
	for left := maxLeftovers; ; {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if p.over.Load() {
			if left -= n; left <= 0 {
				return nil
			}
			_ = from.SetReadDeadline(time.Now().Add(execDrain))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return drain(from, buf, to)
		}
		if err != nil {
			return nil //nolint:nilerr // Its end, or that of a terminal.
		}
	}
}

// drain passes on what is there already: a deadline may have passed before anybody looked.
func drain(from *os.File, buf []byte, to io.Writer) error {
	raw, err := from.SyscallConn()
	for left := maxLeftovers; err == nil && left > 0; {
		n := 0
		err = raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) })
		if n <= 0 {
			return nil
		}
		left -= n
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// finish closes everything, once what has been written was passed on. Without an orderly end nothing is waited for.
func (p *pipes) finish(orderly bool) {
	for _, f := range p.theirs {
		f.Close()
	}
	p.over.Store(true)
	patience := time.Now()
	if orderly {
		patience = patience.Add(execDrain)
	}
	if p.console != nil {
		_ = p.console.SetReadDeadline(patience)
		<-p.arrived
		_ = p.console.Close()
	}
	for _, f := range p.out {
		if f != nil {
			_ = f.SetReadDeadline(patience)
		}
	}
	p.copies.Wait()
	p.stop()
	p.close()
}

func (p *pipes) close() {
	for _, f := range append(p.theirs, p.in, p.out[0], p.out[1]) {
		if f != nil {
			f.Close()
		}
	}
}
