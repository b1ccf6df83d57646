package inproc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"monoplane.dev/apierrors"
	"monoplane.dev/client/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type callerKey struct{}

// echo is a service with every kind of method.
type echo struct {
	grpc_testing.UnimplementedTestServiceServer
	unary func(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error)
	down  func(*grpc_testing.StreamingOutputCallRequest,
		grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error
	leftValue any
}

func (e *echo) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if e.unary != nil {
		return e.unary(ctx, r)
	}
	e.leftValue = ctx.Value(callerKey{})
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetHeader(ctx, metadata.Pairs("got", first(md["sent"]))); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("last", "words")); err != nil {
		return nil, err
	}
	return &grpc_testing.SimpleResponse{Username: r.GetResponseStatus().GetMessage(), Payload: r.GetPayload()}, nil
}

func (e *echo) StreamingInputCall(
	s grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse],
) error {
	n := 0
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(n)})
		}
		if err != nil {
			return err
		}
		n += len(m.GetPayload().GetBody())
	}
}

func (e *echo) StreamingOutputCall(
	r *grpc_testing.StreamingOutputCallRequest, s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse],
) error {
	if e.down != nil {
		return e.down(r, s)
	}
	for _, p := range r.GetResponseParameters() {
		err := s.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: make([]byte,
			p.GetSize())}})
		if err != nil {
			return err
		}
	}
	s.SetTrailer(metadata.Pairs("last", "words"))
	return nil
}

func (e *echo) FullDuplexCall(
	s grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse],
) error {
	if err := s.SendHeader(metadata.Pairs("hello", "there")); err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return apierrors.New(apierrors.Conflict, "the end")
		}
		if err != nil {
			return err
		}
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{Payload: m.GetPayload()}); err != nil {
			return err
		}
	}
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// wires runs a test over a network connection and over ours, so that the network is the oracle.
func wires(t *testing.T, f func(t *testing.T, e *echo, c grpc_testing.TestServiceClient)) {
	t.Run("bufconn", func(t *testing.T) {
		e := &echo{}
		f(t, e, grpc_testing.NewTestServiceClient(overBufconn(t, e)))
	})
	t.Run("inproc", func(t *testing.T) {
		e := &echo{}
		s := newServer(t, e)
		f(t, e, grpc_testing.NewTestServiceClient(s.Conn()))
	})
	t.Run("clone", func(t *testing.T) {
		e := &echo{}
		s := newServer(t, e)
		f(t, e, grpc_testing.NewTestServiceClient(s.Conn(inproc.WithClone(), inproc.WithBuffer(0))))
	})
	t.Run("detached", func(t *testing.T) {
		e := &echo{}
		s := newServer(t, e)
		f(t, e, grpc_testing.NewTestServiceClient(s.Conn(inproc.Detached())))
	})
}

func newServer(t testing.TB, e *echo) *inproc.Server {
	s := inproc.NewServer(nil, nil)
	grpc_testing.RegisterTestServiceServer(s, e)
	t.Cleanup(s.Stop)
	return s
}

func overBufconn(t testing.TB, e *echo) grpc.ClientConnInterface {
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(s, e)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c, err := grpc.NewClient("passthrough:bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		s.Stop()
		<-done
	})
	return c
}
