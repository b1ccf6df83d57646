package podproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
)

// conn is a connection to a port through the agent of its node. One goroutine may read while another writes.
type conn struct {
	with   define.Conversation
	hangUp context.CancelFunc // Ends what waits in Read and Write.
	rest   []byte
	end    error // Why there is nothing more to read; nil before.

	closing sync.Once
	mu      sync.Mutex
	failure error // What the agent has said of a connection that failed.
}

var _ net.Conn = (*conn)(nil)

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.end != nil {
			return 0, c.end
		}
		out, err := c.with.Recv()
		if err != nil {
			c.end = err
			continue
		}
		c.rest = out.GetData()
		switch st := out.GetStatus(); {
		case st.GetStatus() == "Success":
			c.end = io.EOF
		case st != nil:
			c.end = errors.New(st.GetMessage())
			c.mu.Lock()
			c.failure = c.end
			c.mu.Unlock()
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// reason is what the agent has said of a connection that failed.
func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	sent := 0
	for data := range slices.Chunk(b, piece) {
		if err := c.with.Send(&corev1.StreamInput{Data: slices.Clone(data)}); err != nil {
			return sent, err
		}
		sent += len(data)
	}
	return sent, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.hangUp()
		c.with.Close()
	})
	return nil
}

// address is one end of a connection through an agent.
type address struct{}

// Network implements net.Addr.
func (address) Network() string { return "agent" }

// String implements net.Addr.
func (address) String() string { return "agent" }

// LocalAddr implements net.Conn.
func (*conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (*conn) RemoteAddr() net.Addr { return address{} }

// SetDeadline implements net.Conn. There are none: the call bounds the connection.
func (*conn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (*conn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (*conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
