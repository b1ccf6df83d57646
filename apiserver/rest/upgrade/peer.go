package upgrade

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// goneAfter is how long a client's machine may leave what was sent to it without an acknowledgement. That is the
// machine's kernel: it acknowledges also while the client reads nothing, as one does whose output somebody pages
// through. What a kernel itself does, to send again and again, takes a quarter of an hour.
const goneAfter = 2 * time.Minute

var errGone = errors.New("the client's machine has not been heard of for " + goneAfter.String())

// watchPeer cancels when nothing has been heard of the other end of a connection for some time, although it has
// something to acknowledge. What it returns ends the watch. A connection of which the kernel cannot be asked is left
// alone.
func watchPeer(conn net.Conn, patience time.Duration, cancel context.CancelCauseFunc) (stop func()) {
	raw := rawOf(conn)
	if raw == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		ticker := time.NewTicker(patience / 8)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if peerSilent(raw) >= patience {
				cancel(errGone)
				return
			}
		}
	}()
	return end
}

// rawOf returns the connection of the kernel beneath layers such as TLS; nil when there is none.
func rawOf(conn net.Conn) syscall.RawConn {
	for {
		switch c := conn.(type) {
		case syscall.Conn:
			raw, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// taker is a ResponseWriter that remembers the connection that was taken from it.
type taker struct {
	http.ResponseWriter
	conn net.Conn // Nil before.
}

// Hijack implements http.Hijacker.
func (t *taker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (t *taker) Unwrap() http.ResponseWriter { return t.ResponseWriter }
