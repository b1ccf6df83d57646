package host

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// errConnLost says that the connection to a shim broke: the call may have been carried out, or not.
var errConnLost = errors.New("the connection to the shim was lost")

// shimConn is a connection to a shim. Calls run side by side.
type shimConn struct {
	conn *net.UnixConn
	send time.Duration // How long the shim may take to read a frame.

	sending sync.Mutex // Held while a frame is written, so that frames do not mix.

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]waiter
	orderly bool // The shim has answered Shutdown: nothing is left of the pod. Known before done is closed.
	lost    bool
	done    chan struct{} // Closed when the connection is lost.
}

// waiter is a call that has no answer yet.
type waiter struct {
	call   shimwire.Type
	answer chan []byte
}

func newShimConn(conn *net.UnixConn, send time.Duration) *shimConn {
	return &shimConn{conn: conn, send: send, waiting: map[uint32]waiter{}, done: make(chan struct{})}
}

// fileConn wraps a connected socket. It takes the descriptor over.
func fileConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "shim")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return u, nil
}

// dialShim connects to the shim of a pod's directory. The path of a socket may have 107 bytes only, so that it is
// reached through a descriptor of the directory. The peer must run as this user.
func dialShim(dir, name string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	// Not blocking, because a shim that is stopped accepts nothing: once its backlog is full, a connection would be
	// waited for without end.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: procPath(d) + "/" + name}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && int(peer.Uid) != os.Geteuid() {
		err = errors.New("the socket belongs to another user")
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return fileConn(fd)
}

// callShim connects to the shim of a pod's directory for one call: to close the connection is what tells the shim that
// the caller has gone. Where many call at once, its backlog is full for a moment, which is waited for.
func callShim(ctx context.Context, dir string) (*net.UnixConn, error) {
	end := time.Now().Add(dialPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		u, err := dialShim(dir, shim.SocketName)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return u, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// read delivers answers and events until the connection is lost.
func (s *shimConn) read(event func(shimwire.Container)) {
	for {
		f, err := shimwire.ReadFrame(s.conn)
		if err != nil {
			break
		}
		if f.Type == shimwire.Event {
			var rec shimwire.Container
			if rec.Decode(f.Body) == nil {
				event(rec)
			}
			continue
		}
		s.mu.Lock()
		w, ok := s.waiting[f.Call]
		delete(s.waiting, f.Call)
		s.orderly = s.orderly || ok && w.call == shimwire.Shutdown
		s.mu.Unlock()
		if ok {
			w.answer <- f.Body
		}
	}
	s.conn.Close()
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	close(s.done)
}

// call sends a request and waits for its answer. Descriptors, if any, travel with it.
func (s *shimConn) call(ctx context.Context, t shimwire.Type, body []byte, fds ...int) ([]byte, error) {
	if len(body) > shimwire.MaxFrame-64 {
		return nil, shimwire.ErrTooLarge
	}
	answer := make(chan []byte, 1)
	s.mu.Lock()
	if s.lost {
		s.mu.Unlock()
		return nil, errConnLost
	}
	s.last++
	id := s.last
	s.waiting[id] = waiter{t, answer}
	s.mu.Unlock()
	err := s.write(shimwire.AppendFrame(nil, shimwire.Frame{Call: id, Type: t, Body: body}), fds)
	if err == nil {
		select {
		case b := <-answer:
			return b, nil
		case <-s.done:
			select {
			case b := <-answer: // It came before the end.
				return b, nil
			default:
				return nil, errConnLost
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	delete(s.waiting, id)
	s.mu.Unlock()
	return nil, err
}

// write writes one frame. A shim that does not read it in time loses the connection: half of the frame may be out.
func (s *shimConn) write(frame []byte, fds []int) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	err := s.conn.SetWriteDeadline(time.Now().Add(s.send))
	if err != nil {
		return errConnLost
	}
	if len(fds) > 0 {
		var n int
		n, _, err = s.conn.WriteMsgUnix(frame, syscall.UnixRights(fds...), nil)
		frame = frame[max(n, 0):]
	}
	if err == nil && len(frame) > 0 {
		_, err = s.conn.Write(frame)
	}
	if err == nil {
		return nil
	}
	s.conn.Close() // Half a frame may be out; the reader ends.
	if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) {
		return errConnLost
	}
	return errors.Join(errConnLost, err)
}

// container makes a call that is answered by a container.
func (s *shimConn) container(ctx context.Context, t shimwire.Type, body []byte) (shimwire.Container, error) {
	var rec shimwire.Container
	b, err := s.call(ctx, t, body)
	if err == nil {
		err = rec.Decode(b)
	}
	if err == nil && rec.Error != "" {
		err = errors.New(rec.Error)
	}
	return rec, err
}

// hello asks the shim who it is, or tells a new one.
func (s *shimConn) hello(ctx context.Context, t shimwire.Type, body []byte) (*shimwire.HelloReply, error) {
	var h shimwire.HelloReply
	b, err := s.call(ctx, t, body)
	if err == nil {
		err = h.Decode(b)
	}
	if err == nil && h.Error != "" {
		err = errors.New(h.Error)
	}
	return &h, err
}
