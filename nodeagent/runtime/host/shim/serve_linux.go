package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

const (
	// outbox is how many frames may wait for a runtime that does not read. One more, and it is cut off: it will find
	// the state when it connects again.
	outbox  = 256
	backlog = 16
)

// serveFirst serves the connection that the shim was born with. If the runtime is gone before it said which pod this
// is, then nothing has been started, and the shim ends.
func (p *pod) serveFirst() {
	_ = syscall.SetNonblock(ConnFD, true)
	p.serve(newConn(ConnFD))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == "" {
		os.Exit(0)
	}
}

// listen lets later runtimes connect.
func (p *pod) listen() error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: SocketName}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	socket, err := os.NewFile(uintptr(fd), SocketName).SyscallConn()
	if err != nil {
		return err
	}
	go p.accept(socket)
	return nil
}

func (p *pod) accept(socket syscall.RawConn) {
	for {
		var fd int
		var err error
		waitErr := socket.Read(func(s uintptr) bool {
			fd, _, err = syscall.Accept4(int(s), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
			return err != syscall.EAGAIN
		})
		if waitErr != nil {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // Out of descriptors, or the caller has gone: neither is the end.
			continue
		}
		peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err != nil || peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
			syscall.Close(fd)
			continue
		}
		go p.serve(newConn(fd))
	}
}

// conn is one connected runtime.
type conn struct {
	file *os.File
	raw  syscall.RawConn
	fds  []int // Descriptors that came with the frames read so far and belong to no call yet.
	out  chan outgoing
	gone chan struct{} // Closed when no more can be read.
}

// outgoing is a frame that waits to be written, or, without one, somebody who waits until all before it have been.
type outgoing struct {
	frame   []byte
	written chan<- struct{}
}

func newConn(fd int) *conn {
	f := os.NewFile(uintptr(fd), "conn")
	raw, _ := f.SyscallConn()
	return &conn{file: f, raw: raw, out: make(chan outgoing, outbox), gone: make(chan struct{})}
}

// Read reads bytes and collects the descriptors that come with them.
func (cn *conn) Read(b []byte) (int, error) {
	var n, oobn int
	var err error
	oob := make([]byte, 64)
	waitErr := cn.raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, err = syscall.Recvmsg(int(fd), b, oob, syscall.MSG_CMSG_CLOEXEC)
		return err != syscall.EAGAIN
	})
	if waitErr != nil {
		return 0, waitErr
	}
	if err != nil {
		return 0, err
	}
	if oobn > 0 {
		msgs, _ := syscall.ParseSocketControlMessage(oob[:oobn])
		for i := range msgs {
			fds, _ := syscall.ParseUnixRights(&msgs[i])
			cn.fds = append(cn.fds, fds...)
		}
	}
	if n == 0 {
		return 0, errEnd
	}
	return n, nil
}

var errEnd = errors.New("the connection has ended")

// post queues a frame. It never waits: a runtime that does not read is cut off.
func (cn *conn) post(f shimwire.Frame) {
	select {
	case cn.out <- outgoing{frame: shimwire.AppendFrame(nil, f)}:
	default:
		cn.hangUp()
	}
}

// hangUp ends both directions; the reader then closes.
func (cn *conn) hangUp() {
	_ = cn.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
}

func (cn *conn) write() {
	for {
		select {
		case next := <-cn.out:
			if next.written != nil {
				close(next.written)
			} else if _, err := cn.file.Write(next.frame); err != nil {
				cn.hangUp()
				return
			}
		case <-cn.gone:
			return
		}
	}
}

// flush waits until what has been posted is written, the connection has ended, or end is closed.
func (cn *conn) flush(end <-chan time.Time) {
	written := make(chan struct{})
	select {
	case cn.out <- outgoing{written: written}:
	default:
		return // It does not read, and is about to be cut off.
	}
	select {
	case <-written:
	case <-cn.gone:
	case <-end:
	}
}

// serve reads calls until the connection ends. Calls run side by side and go on when it ends.
func (p *pod) serve(cn *conn) {
	go cn.write()
	p.mu.Lock()
	p.conns[cn] = struct{}{}
	p.mu.Unlock()
	for {
		f, err := shimwire.ReadFrame(cn)
		if err != nil {
			break
		}
		fds := cn.fds
		cn.fds = nil
		if f.Type != shimwire.Shutdown {
			p.begin()
		}
		go p.handle(cn, f, fds)
	}
	p.mu.Lock()
	delete(p.conns, cn)
	if len(p.conns) == 0 && !p.watching {
		p.watching = true
		go p.watch()
	}
	p.mu.Unlock()
	close(cn.gone)
	for _, fd := range cn.fds {
		syscall.Close(fd)
	}
	cn.file.Close()
}
