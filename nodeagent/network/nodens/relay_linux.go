package nodens

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/share"
)

// dialTime is how long a target may take to answer. After slowTime, two of what asks for it have been lost, and it is
// a slow one.
const (
	dialTime = 30 * time.Second
	slowTime = 3 * time.Second
)

// descriptorsOfConn is how many descriptors a connection takes that goes through this process: two sockets, and a pipe
// for each direction. Those of a flow of UDP are its two sockets.
const descriptorsOfConn, descriptorsOfFlow = 6, 2

// passage is the room for what goes through this process, by descriptors, which its clients share. A port, or the way
// out, takes half of it at most with its connections. Connections of a client that has enough are reset, and packets
// of its further flows are lost.
type passage struct {
	*share.Room[netip.Addr]
	// each is how many connections one listener may have.
	each int
	// ports are those that listen. There is no room for more than an eighth of all.
	ports *semaphore.Weighted
}

func newPassage() passage {
	n := descriptors.Network.Count()
	ports := n / 8
	n -= ports
	return passage{share.NewRoom[netip.Addr](n), n / 2 / descriptorsOfConn, semaphore.NewWeighted(int64(ports))}
}

// slow counts, by clients, the connections whose targets are slow to answer. They end by themselves only after
// dialTime, where a rule drops what asks for them: a client must not keep the others out with them.
type slow struct {
	most int

	mu sync.Mutex
	of map[netip.Addr]int
}

// begin reports whether a client may have one more.
func (c *slow) begin(client netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[client] >= c.most {
		return false
	}
	c.of[client]++
	return true
}

func (c *slow) end(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[client]--; c.of[client] == 0 {
		delete(c.of, client)
	}
}

// relay carries connections of TCP from a listener to where dial leads them, in the kernel (splice).
type relay struct {
	listener net.Listener
	dial     func(ctx context.Context, from net.Conn) (net.Conn, error)
	passage  passage
	client   func(net.Addr) netip.Addr

	ctx  context.Context
	stop context.CancelFunc
	// room is for the connections of this listener, and shared by its clients like the passage.
	room *share.Room[netip.Addr]
	done sync.WaitGroup
	slow slow
}

// newRelay begins a relay, whose clients are told apart by client.
func newRelay(ctx context.Context, l net.Listener, p passage, client func(net.Addr) netip.Addr,
	dial func(context.Context, net.Conn) (net.Conn, error),
) *relay {
	r := &relay{listener: l, dial: dial, passage: p, client: client, room: share.NewRoom[netip.Addr](p.each),
		slow: slow{most: max(1, p.each/4), of: map[netip.Addr]int{}}}
	r.ctx, r.stop = context.WithCancel(ctx)
	r.done.Go(r.accept)
	context.AfterFunc(r.ctx, func() { l.Close() })
	return r
}

func (r *relay) close() {
	r.stop()
	r.listener.Close()
	r.done.Wait()
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			if r.ctx.Err() != nil {
				return
			}
			// Out of descriptors, which passes.
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		client := r.client(conn.RemoteAddr())
		switch {
		case !r.room.Take(client, 1):
			reset(conn.(*net.TCPConn))
			continue
		case !r.passage.Take(client, descriptorsOfConn):
			r.room.Give(client, 1)
			reset(conn.(*net.TCPConn))
			continue
		}
		r.done.Go(func() {
			defer func() {
				r.passage.Give(client, descriptorsOfConn)
				r.room.Give(client, 1)
			}()
			r.serve(conn.(*net.TCPConn))
		})
	}
}

func (r *relay) serve(from *net.TCPConn) {
	to, err := r.connect(from)
	if err != nil {
		reset(from)
		return
	}
	stop := context.AfterFunc(r.ctx, func() {
		from.Close()
		to.Close()
	})
	defer stop()
	splice(from, to.(*net.TCPConn))
}

// reset ends a connection, which is as near as it gets to having been refused.
func reset(from *net.TCPConn) {
	_ = from.SetLinger(0)
	from.Close()
}

// connect connects to where a connection is to be led, unless its client has too many that wait for that.
func (r *relay) connect(from net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(r.ctx, dialTime)
	defer cancel()
	client := r.client(from.RemoteAddr())
	var mu sync.Mutex
	var over, counted bool
	timer := time.AfterFunc(slowTime, func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		if counted = r.slow.begin(client); !counted {
			cancel()
		}
	})
	to, err := r.dial(ctx, from)
	timer.Stop()
	mu.Lock()
	defer mu.Unlock()
	if over = true; counted {
		r.slow.end(client)
	}
	return to, err
}

// splice carries both directions until both have ended, each with its end, or one of them with an error.
func splice(a, b *net.TCPConn) {
	var both sync.WaitGroup
	one := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil {
			_ = to.SetLinger(0)
			_ = from.SetLinger(0)
			to.Close()
			from.Close()
			return
		}
		_ = to.CloseWrite()
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
	a.Close()
	b.Close()
}
