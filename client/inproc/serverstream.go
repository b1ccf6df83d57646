package inproc

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// serverStream is the handler's end of a stream.
type serverStream struct{ stream *stream }

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *serverStream) Context() context.Context { return s.stream.ctx }

func (s *serverStream) SetHeader(md metadata.MD) error { return s.stream.t.SetHeader(md) }

func (s *serverStream) SendHeader(md metadata.MD) error { return s.stream.t.SendHeader(md) }

func (s *serverStream) SetTrailer(md metadata.MD) {
	// It fails only after the handler has returned, when nobody listens any more.
	_ = s.stream.t.SetTrailer(md)
}

// SendMsg hands a message to the client and waits while the buffer is full.
func (s *serverStream) SendMsg(m any) error {
	st := s.stream
	p, err := st.conn.detach(m)
	if err != nil {
		return err
	}
	if st.ctx.Err() != nil {
		return contextError(st.ctx)
	}
	st.t.flushHeader()
	select {
	case st.responses <- p:
		return nil
	case <-st.ctx.Done():
		return contextError(st.ctx)
	}
}

// RecvMsg waits for the client's next message; io.EOF when the client has sent all.
func (s *serverStream) RecvMsg(m any) error {
	st := s.stream
	select {
	case p, ok := <-st.requests:
		if !ok {
			return io.EOF
		}
		return deliver(m, p)
	case <-st.ctx.Done():
		return contextError(st.ctx)
	}
}
