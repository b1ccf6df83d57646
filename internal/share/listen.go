package share

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The pauses after an error of accept grow from the first to the last.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Listen returns a listener whose clients, who are told apart by client, share room. The connections of who has enough
// are reset.
func Listen(l net.Listener, room *Room[netip.Addr], client func(net.Addr) netip.Addr) net.Listener {
	return &listener{Listener: l, room: room, client: client, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	room   *Room[netip.Addr]
	client func(net.Addr) netip.Addr
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	pause := firstPause
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			client := l.client(c.RemoteAddr())
			if l.room.Take(client, 1) {
				return &conn{Conn: c, give: sync.OnceFunc(func() { l.room.Give(client, 1) })}, nil
			}
			reset(c)
			pause = firstPause
			continue
		case errors.Is(err, net.ErrClosed):
			return nil, err
		}
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// reset closes a connection so that the client sees at once that it is not served.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// conn gives its place back.
type conn struct {
	net.Conn
	give func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.give()
	return err
}

// CloseWrite says that nothing more is sent.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
