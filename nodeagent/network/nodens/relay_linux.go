package nodens

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"monoplane.dev/internal/descriptors"
)

// dialTime is how long a target may take to answer.
const dialTime = 30 * time.Second

// descriptorsOfConn is how many descriptors a connection takes that goes through this process: two sockets, and a pipe
// for each direction. Those of a flow of UDP are its two sockets.
const descriptorsOfConn, descriptorsOfFlow = 6, 2

// passage is the room for what goes through this process, by descriptors. A port, or the way out, takes half of it at
// most with its connections; further ones wait, and packets of further flows are lost.
type passage struct {
	*semaphore.Weighted
	each int // How many connections one listener may have.
}

func newPassage() passage {
	n := descriptors.Network.Count()
	return passage{semaphore.NewWeighted(int64(n)), n / 2 / descriptorsOfConn}
}

// relay carries connections of TCP from a listener to where dial leads them, in the kernel (splice).
type relay struct {
	listener net.Listener
	dial     func(ctx context.Context, from net.Conn) (net.Conn, error)
	passage  passage

	ctx  context.Context
	stop context.CancelFunc
	room chan struct{}
	done sync.WaitGroup
}

func newRelay(ctx context.Context, l net.Listener, p passage,
	dial func(context.Context, net.Conn) (net.Conn, error),
) *relay {
	r := &relay{listener: l, dial: dial, passage: p, room: make(chan struct{}, p.each)}
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
		select {
		case r.room <- struct{}{}:
		case <-r.ctx.Done():
			conn.Close()
			return
		}
		if r.passage.Acquire(r.ctx, descriptorsOfConn) != nil {
			conn.Close()
			return
		}
		r.done.Go(func() {
			defer func() {
				r.passage.Release(descriptorsOfConn)
				<-r.room
			}()
			r.serve(conn.(*net.TCPConn))
		})
	}
}

func (r *relay) serve(from *net.TCPConn) {
	ctx, cancel := context.WithTimeout(r.ctx, dialTime)
	to, err := r.dial(ctx, from)
	cancel()
	if err != nil {
		_ = from.SetLinger(0) // A reset, which is as near as it gets to having been refused.
		from.Close()
		return
	}
	stop := context.AfterFunc(r.ctx, func() {
		from.Close()
		to.Close()
	})
	defer stop()
	splice(from, to.(*net.TCPConn))
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
