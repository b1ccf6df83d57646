package inproc_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"monoplane.dev/client/inproc"
)

var _ reflection.GRPCServer = (*inproc.Server)(nil)

// What a message points to is shared, unless the connection clones.
func TestPointersPass(t *testing.T) {
	body := &grpc_testing.Payload{Body: []byte("x")}
	var got *grpc_testing.Payload
	e := &echo{unary: func(_ context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
		got = r.GetPayload()
		return &grpc_testing.SimpleResponse{Payload: body}, nil
	}}
	s := newServer(t, e)
	for _, clone := range []bool{false, true} {
		var opts []inproc.Option
		if clone {
			opts = append(opts, inproc.WithClone())
		}
		c := grpc_testing.NewTestServiceClient(s.Conn(opts...))
		sent := &grpc_testing.Payload{}
		res, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{Payload: sent})
		if err != nil {
			t.Fatal(err)
		}
		if (got == sent) == clone || (res.GetPayload() == body) == clone {
			t.Errorf("clone %v: request shared %v, answer shared %v", clone, got == sent, res.GetPayload() == body)
		}
	}
}

func TestContextOptions(t *testing.T) {
	type key struct{}
	var seen []any
	e := &echo{unary: func(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		seen = []any{ctx.Value(key{}), ctx.Value(callerKey{}), len(md)}
		return &grpc_testing.SimpleResponse{}, nil
	}}
	s := newServer(t, e)
	ctx := context.WithValue(t.Context(), callerKey{}, "caller")
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("of", "the outer call"))
	with := inproc.WithContext(func(ctx context.Context) context.Context {
		return context.WithValue(ctx, key{},
			"owner")
	})
	for _, tc := range []struct {
		opts []inproc.Option
		want []any
	}{
		{[]inproc.Option{with}, []any{"owner", nil, 0}},
		{[]inproc.Option{inproc.PassValues()}, []any{nil, "caller", 0}},
		{[]inproc.Option{with, inproc.PassValues()}, []any{"owner", "caller", 0}},
	} {
		c := grpc_testing.NewTestServiceClient(s.Conn(tc.opts...))
		if _, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); err != nil {
			t.Fatal(err)
		}
		for i := range tc.want {
			if seen[i] != tc.want[i] {
				t.Errorf("saw %v, want %v", seen, tc.want)
			}
		}
	}
}

func TestInterceptorsChain(t *testing.T) {
	var order []string
	u := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			order = append(order, name+info.FullMethod)
			return h(ctx, req)
		}
	}
	st := func(name string) grpc.StreamServerInterceptor {
		return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			order = append(order, name+info.FullMethod)
			return h(srv, ss)
		}
	}
	s := inproc.NewServer([]grpc.UnaryServerInterceptor{u("1"), u("2"), u("3")},
		[]grpc.StreamServerInterceptor{st("4"), st("5")})
	defer s.Stop()
	grpc_testing.RegisterTestServiceServer(s, &echo{})
	c := grpc_testing.NewTestServiceClient(s.Conn())
	if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	str, err := c.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := str.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	const un, out = grpc_testing.TestService_UnaryCall_FullMethodName,
		grpc_testing.TestService_StreamingOutputCall_FullMethodName
	want := []string{"1" + un, "2" + un, "3" + un, "4" + out, "5" + out}
	if len(order) != len(want) {
		t.Fatalf("order %v", order)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Errorf("order %v", order)
		}
	}
}

func TestPanicsDoNotCross(t *testing.T) {
	e := &echo{
		unary: func(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
			panic("secret")
		},
		down: func(*grpc_testing.StreamingOutputCallRequest,
			grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
			panic("secret")
		},
	}
	s := newServer(t, e)
	told := make(chan any, 2)
	s.OnPanic(func(_ string, v any, stack []byte) {
		if len(stack) > 0 {
			told <- v
		}
	})
	c := grpc_testing.NewTestServiceClient(s.Conn())
	_, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	if status.Code(err) != codes.Internal || <-told != "secret" {
		t.Errorf("unary: %v", err)
	}
	str, err := c.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := str.Recv(); status.Code(err) != codes.Internal || <-told != "secret" {
		t.Errorf("stream: %v", err)
	}
}

// A sender waits when the receiver does not read; a client that walks away leaves nothing running.
func TestBackPressureAndAbandonedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		var ended atomic.Bool
		e := &echo{down: func(_ *grpc_testing.StreamingOutputCallRequest,
			s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
			defer ended.Store(true)
			for {
				if err := s.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
					return err
				}
				sent.Add(1)
			}
		}}
		s := inproc.NewServer(nil, nil)
		grpc_testing.RegisterTestServiceServer(s, e)
		c := grpc_testing.NewTestServiceClient(s.Conn(inproc.WithBuffer(4)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := c.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if sent.Load() != 4 || ended.Load() {
			t.Errorf("sent %d messages into a buffer of 4, ended %v", sent.Load(), ended.Load())
		}
		time.Sleep(time.Hour) // virtual: the deadline passes
		synctest.Wait()
		if !ended.Load() {
			t.Error("the handler outlived its client")
		}
		s.Stop()
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inproc.NewServer(nil, nil)
		grpc_testing.RegisterTestServiceServer(s, &echo{})
		c := grpc_testing.NewTestServiceClient(s.Conn())
		str, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Stop()
		if _, err := str.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("running stream: %v", err)
		}
		if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("new call: %v", err)
		}
		if _, err := c.FullDuplexCall(t.Context()); status.Code(err) != codes.Unavailable {
			t.Errorf("new stream: %v", err)
		}
	})
}

// A call made Detached ends with its context even when the handler does not.
func TestDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := &echo{unary: func(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
			<-release
			return &grpc_testing.SimpleResponse{}, nil
		}}
		s := inproc.NewServer(nil, nil)
		grpc_testing.RegisterTestServiceServer(s, e)
		c := grpc_testing.NewTestServiceClient(s.Conn(inproc.Detached()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		close(release)
		s.Stop()
	})
}

// A stream takes one goroutine, also when its handler bounds it in time: there may be thousands.
func TestStreamTakesOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{down: func(_ *grpc_testing.StreamingOutputCallRequest,
			s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
			ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
			defer cancel()
			<-ctx.Done()
			return nil
		}}
		s := newServer(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		const streams = 20
		before := runtime.NumGoroutine()
		for range streams {
			c := grpc_testing.NewTestServiceClient(s.Conn())
			if _, err := c.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > streams {
			t.Errorf("%d streams take %d goroutines", streams, n)
		}
		cancel()
		synctest.Wait()
	})
}

// A call that was refused before its request came says why, as gRPC's own client does.
func TestRefusedBeforeTheRequest(t *testing.T) {
	refuse := func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
		return status.Error(codes.PermissionDenied, "not you")
	}
	s := inproc.NewServer(nil, []grpc.StreamServerInterceptor{refuse})
	grpc_testing.RegisterTestServiceServer(s, &echo{})
	t.Cleanup(s.Stop)
	for name, tc := range map[string]struct {
		desc   grpc.StreamDesc
		method string
		sent   error
	}{
		"one request":   {grpc.StreamDesc{ServerStreams: true}, "StreamingOutputCall", nil},
		"many requests": {grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "FullDuplexCall", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := s.Conn().NewStream(t.Context(), &tc.desc, "/grpc.testing.TestService/"+tc.method)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = stream.Header() // returns when the call has ended
			// More often than the buffer is long, so that sending is not what could go on.
			for range 100 {
				if err := stream.SendMsg(&grpc_testing.StreamingOutputCallRequest{}); tc.sent == nil {
					if err != nil {
						t.Fatalf("sent: %v", err)
					}
					break
				} else if errors.Is(err, tc.sent) {
					break
				}
			}
			if err := stream.RecvMsg(&grpc_testing.StreamingOutputCallResponse{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("received: %v", err)
			}
		})
	}
}

// A client that goes before its request has been taken is gone for the handler too: it did not send nothing.
func TestClientGoesBeforeItsRequest(t *testing.T) {
	ended := make(chan error, 1)
	s := inproc.NewServer(nil, []grpc.StreamServerInterceptor{
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			err := handler(srv, ss)
			ended <- err
			return err
		},
	})
	grpc_testing.RegisterTestServiceServer(s, &echo{})
	t.Cleanup(s.Stop)
	desc := &grpc.StreamDesc{StreamName: "StreamingOutputCall", ServerStreams: true}
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := s.Conn().NewStream(ctx, desc, grpc_testing.TestService_StreamingOutputCall_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_ = c.SendMsg(&grpc_testing.StreamingOutputCallRequest{}) // RecvMsg has the status
		_ = c.CloseSend()                                         // as generated clients do
		if err := c.RecvMsg(&grpc_testing.StreamingOutputCallResponse{}); status.Code(err) != codes.Canceled {
			t.Fatalf("the client: %v", err)
		}
		if err := <-ended; err != nil && status.Code(err) != codes.Canceled {
			t.Fatalf("the handler: %v", err)
		}
	}
}
