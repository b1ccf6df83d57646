package inproc

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// callContext ends when the caller's context ends. It shows what the handlers of all calls of the connection see,
// and the caller's values only to those that may see them.
type callContext struct {
	caller context.Context
	conn   *conn
}

func (c callContext) Deadline() (time.Time, bool) { return c.caller.Deadline() }
func (c callContext) Done() <-chan struct{}       { return c.caller.Done() }
func (c callContext) Err() error                  { return c.caller.Err() }

func (c callContext) Value(key any) any {
	if v := c.conn.fixed.Value(key); v != nil || !c.conn.passValues {
		return v
	}
	return c.caller.Value(key)
}

// handlerContext is what a handler runs in: the values of its own chain, the end of the caller's context.
type handlerContext struct {
	context.Context
	caller context.Context
}

// AfterFunc lets package context derive contexts from this one without a goroutine each.
func (c handlerContext) AfterFunc(f func()) func() bool { return context.AfterFunc(c.caller, f) }

// address is what handlers see as the peer's network address.
type address struct{}

func (address) Network() string { return "inproc" }
func (address) String() string  { return "inproc" }

var _ net.Addr = address{}

// fixedContext holds the values that are the same for all calls of the connection.
func (c *conn) fixedContext() context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: address{}})
	if c.passValues {
		// The metadata of the call that the caller itself is handling is not ours, nor is what a front would send:
		// calls that the handler makes start afresh.
		ctx = metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, nil), nil)
	}
	return ctx
}

// handlerContext makes the context that a handler runs in from the caller's.
func (c *conn) handlerContext(caller context.Context, t *transport) context.Context {
	var ctx context.Context = callContext{caller, c}
	if md, ok := metadata.FromOutgoingContext(caller); ok {
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	ctx = grpc.NewContextWithServerTransportStream(ctx, t)
	for _, f := range c.contexts {
		ctx = f(ctx)
	}
	if c.passValues {
		return ctx // package context finds the caller's by itself
	}
	return handlerContext{ctx, caller}
}
