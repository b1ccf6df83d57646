// Package pipes has listeners within the process, for tests: connections to them live in the virtual time of a bubble
// of testing/synctest, and end by deadlines as those of sockets do.
package pipes

import (
	"context"
	"net"
	"net/netip"
	"syscall"
)

// Listener is a net.Listener. Listen makes one.
type Listener struct {
	address string
	coming  chan net.Conn
	done    chan struct{}
}

// Listen returns a listener that says that it has this address.
func Listen(address string) *Listener {
	return &Listener{address: address, coming: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.coming:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.address))
}

// Dial connects. It fails as the kernel does when nobody listens any more.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.coming <- far:
		return near, nil
	case <-l.done:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
