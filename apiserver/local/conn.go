package local

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// room is how many bytes a connection holds in each direction that the other side has not read: enough that who ends
// a stream need not wait for its reader.
const room = 64 << 10

// pipe returns the two ends of a connection inside the process. Unlike net.Pipe's, they hold what is written.
func pipe() (client, server net.Conn) {
	to, from := newFlow(), newFlow()
	return &conn{in: from, out: to}, &conn{in: to, out: from}
}

// conn is one end.
type conn struct{ in, out *flow }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions: the other side may read what was written before.
func (c *conn) Close() error {
	c.in.end(func(f *flow) { f.unread = true })
	c.out.end(func(f *flow) { f.ended = true })
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address{} }
func (c *conn) RemoteAddr() net.Addr { return address{} }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.reading.set(c.in, t)
	c.out.writing.set(c.out, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.in.reading.set(c.in, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.writing.set(c.out, t); return nil }

// address is that of both ends.
type address struct{}

func (address) Network() string { return "local" }
func (address) String() string  { return "local" }

// flow is one direction of a connection.
type flow struct {
	mu      sync.Mutex
	changed sync.Cond // whatever is below
	held    []byte    // written, and not yet read; room bytes at most
	ended   bool      // by its writer
	unread  bool      // its reader has gone
	reading deadline
	writing deadline
}

func newFlow() *flow {
	f := &flow{}
	f.changed.L = &f.mu
	return f
}

// end changes f, of which one side goes, and wakes who waits.
func (f *flow) end(change func(*flow)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	f.changed.Broadcast()
}

func (f *flow) read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.unread:
			return 0, io.ErrClosedPipe
		case f.reading.over():
			return 0, os.ErrDeadlineExceeded
		case len(f.held) > 0 || len(b) == 0:
			n := copy(b, f.held)
			if f.held = f.held[n:]; len(f.held) == 0 {
				f.held = nil // an idle connection takes no memory
			}
			f.changed.Broadcast()
			return n, nil
		case f.ended:
			return 0, io.EOF
		}
		f.changed.Wait()
	}
}

func (f *flow) write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	written := 0
	for {
		switch {
		case f.ended || f.unread:
			return written, io.ErrClosedPipe
		case f.writing.over():
			return written, os.ErrDeadlineExceeded
		}
		if n := min(len(b)-written, room-len(f.held)); n > 0 {
			f.held = append(f.held, b[written:written+n]...)
			written += n
			f.changed.Broadcast()
		}
		if written == len(b) {
			return written, nil
		}
		f.changed.Wait()
	}
}

// deadline is when reading or writing fails. What was decided is decided by the clock and not by the timer, which only
// wakes who waits: a timer that has fired is too late to be stopped.
type deadline struct {
	at    time.Time // zero for never
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(f *flow, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() && !d.over() {
		d.timer = time.AfterFunc(time.Until(at), func() { f.end(func(*flow) {}) })
	}
	f.changed.Broadcast()
}
