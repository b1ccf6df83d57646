package gate

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection below TLS. Its methods may be called on nil, which stands for a connection that no Listener
// accepted.
type Conn struct {
	net.Conn

	listener *Listener
	address  netip.Prefix
	// authenticated is set once; known is closed with it.
	authenticated atomic.Bool
	known         chan struct{}
	closed        chan struct{}
	closing       sync.Once
	closeErr      error
	// received is what an unauthenticated client has sent, in bytes.
	received atomic.Int64
	refusals atomic.Int32

	// Guarded by the listener's mutex: since when the connection is counted, its place among the unauthenticated ones
	// (nil for others), and the timer that ends it there.
	since   time.Time
	counted bool
	place   *list.Element
	expiry  *time.Timer
}

func newConn(l *Listener, raw net.Conn) *Conn {
	return &Conn{
		Conn: raw, listener: l, address: addressOf(raw.RemoteAddr()), known: make(chan struct{}),
		closed: make(chan struct{}),
	}
}

// Authenticated says that the client has shown who it is: the bounds of unauthenticated connections no longer hold.
func (c *Conn) Authenticated() {
	if c == nil || c.authenticated.Load() || !c.authenticated.CompareAndSwap(false, true) {
		return
	}
	close(c.known)
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place != nil {
		l.settle(c)
		l.count(c.address, 0, -1)
		l.wake()
	}
}

// IsAuthenticated says whether the client has shown who it is.
func (c *Conn) IsAuthenticated() bool { return c == nil || c.authenticated.Load() }

// Refused says that a request was answered without knowing who makes it. Too many of them end the connection.
func (c *Conn) Refused() {
	if c.IsAuthenticated() {
		return
	}
	if int(c.refusals.Add(1)) > c.listener.cfg.Limits.MaxRefusals {
		_ = c.Close()
	}
}

// Read reads. What an unauthenticated client sends beyond its bytes is left in the kernel until it is authenticated,
// which happens elsewhere, with what has been read.
func (c *Conn) Read(b []byte) (int, error) {
	if c.authenticated.Load() {
		return c.Conn.Read(b)
	}
	left := c.listener.cfg.Limits.Bytes - c.received.Load()
	if left <= 0 {
		select {
		case <-c.known:
			return c.Conn.Read(b)
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), left)])
	c.received.Add(int64(n))
	return n, err
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		c.listener.mu.Lock()
		c.listener.remove(c)
		c.listener.mu.Unlock()
		close(c.closed)
		c.closeErr = c.Conn.Close()
	})
	return c.closeErr
}

// SyscallConn implements syscall.Conn, for who asks the kernel how the connection is.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("not a connection of the kernel")
	}
	return sc.SyscallConn()
}

// silent says whether nothing has come yet. What the kernel has counts, too: on a busy machine the one who reads it
// may be late.
func (c *Conn) silent() bool {
	if c.received.Load() > 0 {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	silent := true
	_ = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = err != nil || n <= 0
	})
	return silent
}
