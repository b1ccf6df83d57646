package inproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// conn is a connection; it implements grpc.ClientConnInterface.
type conn struct {
	server     *Server
	contexts   []func(context.Context) context.Context
	passValues bool
	clone      bool
	detached   bool
	buffer     int
	fixed      context.Context
}

var _ grpc.ClientConnInterface = (*conn)(nil)

// Invoke performs a unary call.
func (c *conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) (err error) {
	t := &transport{method: method}
	defer func() { finishCall(t, opts, err) }()
	if c.server.ctx.Err() != nil {
		return errStopped()
	}
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	svc, name, err := c.server.find(method)
	if err != nil {
		return err
	}
	handler := svc.unary(name)
	if handler == nil {
		return errUnknownMethod(method)
	}
	req, err := c.detach(args)
	if err != nil {
		return err
	}
	var res any
	if c.detached {
		res, err = c.callDetached(ctx, t, svc.impl, handler, req)
	} else {
		res, err = c.call(ctx, t, svc.impl, handler, req)
	}
	if err != nil {
		return err
	}
	out, err := c.detach(res)
	if err != nil {
		return err
	}
	return deliver(reply, out)
}

// call runs a unary handler on this goroutine.
func (c *conn) call(
	ctx context.Context, t *transport, impl any, h grpc.MethodHandler, req proto.Message,
) (res any, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = nil, c.server.panicked(t.method, v)
		}
		t.finish()
	}()
	res, err = h(impl, c.handlerContext(ctx, t), func(in any) error { return deliver(in, req) }, c.server.unary)
	if err == nil && res == nil {
		return nil, status.Error(codes.Internal, "the handler returned neither a message nor an error")
	}
	return res, wireError(err)
}

// callDetached runs a unary handler on a goroutine of its own and waits for it or for the context.
func (c *conn) callDetached(
	ctx context.Context, t *transport, impl any, h grpc.MethodHandler, req proto.Message,
) (any, error) {
	type result struct {
		res any
		err error
	}
	done := make(chan result, 1)
	if err := c.server.startStream(); err != nil {
		return nil, err
	}
	go func() {
		defer c.server.streams.Done()
		res, err := c.call(ctx, t, impl, h, req)
		done <- result{res, err}
	}()
	select {
	case r := <-done:
		return r.res, r.err
	case <-ctx.Done():
		return nil, contextError(ctx)
	}
}

// finishCall hands header, trailer and the outcome to the call options that ask for them.
func finishCall(t *transport, opts []grpc.CallOption, err error) {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			h, _ := t.result()
			*o.HeaderAddr = copyMD(h)
		case grpc.TrailerCallOption:
			_, tr := t.result()
			*o.TrailerAddr = copyMD(tr)
		case grpc.PeerCallOption:
			*o.PeerAddr = peer.Peer{Addr: address{}}
		case grpc.OnFinishCallOption:
			o.OnFinish(err)
		}
	}
}

// copyMD copies metadata; it is never nil, as in a network client.
func copyMD(md metadata.MD) metadata.MD {
	if md == nil {
		return metadata.MD{}
	}
	return md.Copy()
}
