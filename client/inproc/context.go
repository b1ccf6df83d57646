package inproc

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// callContext ends when the caller's context ends but does not show the caller's values.
type callContext struct{ caller context.Context }

func (c callContext) Deadline() (time.Time, bool) { return c.caller.Deadline() }
func (c callContext) Done() <-chan struct{}       { return c.caller.Done() }
func (c callContext) Err() error                  { return c.caller.Err() }
func (c callContext) Value(any) any               { return nil }

// AfterFunc lets package context derive contexts from this one without a goroutine each.
func (c callContext) AfterFunc(f func()) func() bool { return context.AfterFunc(c.caller, f) }

// address is what handlers see as the peer's network address.
type address struct{}

func (address) Network() string { return "inproc" }
func (address) String() string  { return "inproc" }

var _ net.Addr = address{}

// handlerContext makes the context that a handler runs in from the caller's.
func (c *conn) handlerContext(caller context.Context, t *transport) context.Context {
	ctx := caller
	if !c.passValues {
		ctx = callContext{caller}
	}
	if md, ok := metadata.FromOutgoingContext(caller); ok {
		ctx = metadata.NewIncomingContext(ctx, md)
	} else if c.passValues {
		// The metadata of the call that the caller itself is handling is not ours.
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{})
	}
	if c.passValues {
		// Nor is what a front would send: calls that the handler makes start afresh.
		ctx = metadata.NewOutgoingContext(ctx, metadata.MD{})
	}
	ctx = peer.NewContext(ctx, c.peer)
	ctx = grpc.NewContextWithServerTransportStream(ctx, t)
	for _, f := range c.contexts {
		ctx = f(ctx)
	}
	return ctx
}
