package inproc

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// clientStream is the caller's end of a stream. As in gRPC one goroutine may send while another receives.
type clientStream struct {
	stream *stream
	ctx    context.Context
	desc   *grpc.StreamDesc
	opts   []grpc.CallOption

	closeSend sync.Once
	closed    bool // CloseSend was called; only the sending goroutine looks
	abandoned bool // the request was not sent, because the context had ended; likewise
	finish    sync.Once
}

var _ grpc.ClientStream = (*clientStream)(nil)

func (c *clientStream) Context() context.Context { return c.ctx }

// Header waits until the header is there. Without one (the call failed at once) it is nil; RecvMsg says why.
func (c *clientStream) Header() (metadata.MD, error) {
	st := c.stream
	select {
	case <-st.t.sent:
	case <-st.done:
		select {
		case <-st.t.sent:
		default:
			return nil, nil
		}
	case <-c.ctx.Done():
		return nil, c.end(contextError(c.ctx))
	}
	h, _ := st.t.result()
	return copyMD(h), nil
}

// Trailer returns the trailer; it is complete once RecvMsg has returned an error.
func (c *clientStream) Trailer() metadata.MD {
	_, tr := c.stream.t.result()
	return copyMD(tr)
}

// CloseSend says that no more messages follow. Generated clients call it also after a request that was not sent.
func (c *clientStream) CloseSend() error {
	if c.abandoned {
		return nil
	}
	c.closeSend.Do(func() {
		c.closed = true
		close(c.stream.requests)
	})
	return nil
}

// SendMsg hands a message to the handler and waits while the buffer is full. When the call has ended it
// returns io.EOF, and RecvMsg says why; in a call with a single request it returns nil then, because generated clients
// would take io.EOF for the reason.
func (c *clientStream) SendMsg(m any) error {
	st := c.stream
	if c.closed {
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	}
	p, err := st.conn.detach(m)
	if err != nil {
		return err
	}
	select {
	case <-st.done:
		err = io.EOF
	case <-c.ctx.Done():
		// The handler's context ends too. It is not told that nothing follows: it would have to take that for no
		// request.
		if c.desc.ClientStreams {
			return io.EOF
		}
		c.abandoned = true
		return nil
	case st.requests <- p:
	}
	if !c.desc.ClientStreams {
		return c.CloseSend()
	}
	return err
}

// RecvMsg waits for the next message. At the end of the call it returns io.EOF or the call's status.
func (c *clientStream) RecvMsg(m any) error {
	if c.ctx.Err() != nil {
		return c.end(contextError(c.ctx))
	}
	st := c.stream
	select {
	case p := <-st.responses:
		return c.receive(m, p)
	case <-c.ctx.Done():
		return c.end(contextError(c.ctx))
	case <-st.done:
	}
	select { // what the handler sent before it returned
	case p := <-st.responses:
		return c.receive(m, p)
	default:
	}
	if st.err != nil {
		return c.end(st.err)
	}
	if !c.desc.ServerStreams {
		return c.end(status.Error(codes.Internal, "the handler returned without an answer"))
	}
	_ = c.end(nil) // there is no error to return
	return io.EOF
}

// receive delivers one message; when only one can come it also waits for the call's status, which wins.
func (c *clientStream) receive(m any, p proto.Message) error {
	if err := deliver(m, p); err != nil {
		return err
	}
	if c.desc.ServerStreams {
		return nil
	}
	select {
	case <-c.stream.done:
		return c.end(c.stream.err)
	case <-c.ctx.Done():
		return c.end(contextError(c.ctx))
	}
}

// end reports the outcome to the call options, once, and stops a handler that is still running.
func (c *clientStream) end(err error) error {
	c.finish.Do(func() {
		c.stream.cancel()
		finishCall(c.stream.t, c.opts, err)
	})
	return err
}
