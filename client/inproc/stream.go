package inproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// stream is one streaming call, shared by its two ends.
//
//	client SendMsg  -> requests  -> server RecvMsg
//	client RecvMsg  <- responses <- server SendMsg
//
// The client ends its side by closing requests (CloseSend) or by ending its context; the handler ends the call by
// returning, which closes done after err is set. Messages sent before that are still received.
type stream struct {
	conn *conn
	t    *transport

	// ctx is the handler's: it ends with the client's context, with the server, and when the handler returns.
	ctx    context.Context
	cancel context.CancelFunc

	requests  chan proto.Message
	responses chan proto.Message
	// done is closed when the handler has returned.
	done chan struct{}
	// err is the handler's outcome. Invariant: written before done is closed, never after.
	err error
}

// NewStream begins a streaming call. As with any gRPC client the caller must end ctx, or receive until there is an
// error.
func (c *conn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	svc, name, err := c.server.find(method)
	if err != nil {
		return nil, err
	}
	handler, info, err := c.streamHandler(svc, name, method)
	if err != nil {
		return nil, err
	}
	if err := c.server.startStream(); err != nil {
		return nil, err
	}
	st := &stream{
		conn:      c,
		t:         &transport{method: method, sent: make(chan struct{})},
		requests:  make(chan proto.Message, c.buffer),
		responses: make(chan proto.Message, c.buffer),
		done:      make(chan struct{}),
	}
	st.ctx, st.cancel = context.WithCancel(c.handlerContext(ctx, st.t))
	unwatch := context.AfterFunc(c.server.ctx, st.cancel)
	go func() {
		defer c.server.streams.Done()
		defer unwatch()
		st.run(svc.impl, info, handler)
	}()
	return &clientStream{stream: st, ctx: ctx, desc: desc, opts: opts}, nil
}

// streamHandler finds the handler of a method; a unary one is wrapped, since a proxy may call it by streams.
func (c *conn) streamHandler(svc *service, name, method string) (grpc.StreamHandler, *grpc.StreamServerInfo, error) {
	if d := svc.stream(name); d != nil {
		info := &grpc.StreamServerInfo{
			FullMethod: method, IsClientStream: d.ClientStreams, IsServerStream: d.ServerStreams,
		}
		return d.Handler, info, nil
	}
	h := svc.unary(name)
	if h == nil {
		return nil, nil, errUnknownMethod(method)
	}
	return func(srv any, ss grpc.ServerStream) error {
		res, err := h(srv, ss.Context(), ss.RecvMsg, c.server.unary)
		if err != nil {
			return err
		}
		return ss.SendMsg(res)
	}, nil, nil
}

// run calls the handler and publishes its outcome. info is nil for a unary handler, which has its own
// interceptors.
func (s *stream) run(impl any, info *grpc.StreamServerInfo, h grpc.StreamHandler) {
	defer s.cancel()
	defer close(s.done)
	defer s.t.finish()
	defer func() {
		if v := recover(); v != nil {
			s.err = s.conn.server.panicked(s.t.method, v)
		}
	}()
	ss := &serverStream{stream: s}
	var err error
	if i := s.conn.server.stream; i != nil && info != nil {
		err = i(impl, ss, info, h)
	} else {
		err = h(impl, ss)
	}
	if err != nil && s.conn.server.ctx.Err() != nil {
		err = errStopped() // it was cut short; the client did not cancel anything
	}
	s.err = wireError(err)
}
