package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

func TestUnaryMetadata(t *testing.T) {
	wires(t, func(t *testing.T, e *echo, c grpc_testing.TestServiceClient) {
		ctx := context.WithValue(t.Context(), callerKey{}, "secret")
		ctx = metadata.AppendToOutgoingContext(ctx, "sent", "hello")
		var header, trailer metadata.MD
		req := &grpc_testing.SimpleRequest{
			ResponseStatus: &grpc_testing.EchoStatus{Message: "me"},
			Payload:        &grpc_testing.Payload{Body: []byte("body")},
		}
		res, err := c.UnaryCall(ctx, req, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		if res.GetUsername() != "me" || string(res.GetPayload().GetBody()) != "body" {
			t.Errorf("answer %v", res)
		}
		if first(header["got"]) != "hello" || first(trailer["last"]) != "words" {
			t.Errorf("header %v, trailer %v", header, trailer)
		}
		if e.leftValue != nil {
			t.Errorf("a value of the caller's context reached the handler: %v", e.leftValue)
		}
	})
}

func TestErrorsCross(t *testing.T) {
	secret := errors.New("password 1234")
	cases := []struct {
		name   string
		err    error
		code   codes.Code
		reason apierrors.Reason
	}{
		{"status", status.Error(codes.Aborted, "no"), codes.Aborted, apierrors.Conflict},
		{"api error", apierrors.NewNotFound(&object.Kind{Plural: "pods"}, "a"), codes.NotFound, apierrors.NotFound},
		{"wrapped api error", fmt.Errorf("while: %w", apierrors.New(apierrors.Invalid, "bad")), codes.InvalidArgument,
			apierrors.Invalid},
		{"internal", apierrors.NewInternal(secret), codes.Internal, apierrors.InternalError},
		{"bare", errors.New("odd"), codes.Unknown, apierrors.InternalError},
		{"canceled", context.Canceled, codes.Canceled, apierrors.InternalError},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded, apierrors.Timeout},
	}
	wires(t, func(t *testing.T, e *echo, c grpc_testing.TestServiceClient) {
		for _, tc := range cases {
			e.unary = func(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
				return nil, tc.err
			}
			e.down = func(*grpc_testing.StreamingOutputCallRequest,
				grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
				return tc.err
			}
			_, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
			check(t, tc.name, err, tc.code, tc.reason, secret)
			s, err := c.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Recv()
			check(t, tc.name+" in a stream", err, tc.code, tc.reason, secret)
		}
	})
}

func check(t *testing.T, name string, err error, code codes.Code, reason apierrors.Reason, secret error) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: code %v, want %v (%v)", name, status.Code(err), code, err)
	}
	if got := apierrors.From(err).Reason(); got != reason {
		t.Errorf("%s: reason %v, want %v", name, got, reason)
	}
	if errors.Is(err, secret) || strings.Contains(err.Error(), "1234") {
		t.Errorf("%s: the cause crossed", name)
	}
}

func TestUnknownMethods(t *testing.T) {
	wires(t, func(t *testing.T, _ *echo, c grpc_testing.TestServiceClient) {
		if _, err := c.EmptyCall(t.Context(), &grpc_testing.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("unimplemented method: %v", err)
		}
		s, err := c.HalfDuplexCall(t.Context())
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("unimplemented stream: %v", err)
		}
	})
}

func TestClientStream(t *testing.T) {
	wires(t, func(t *testing.T, _ *echo, c grpc_testing.TestServiceClient) {
		s, err := c.StreamingInputCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := s.Send(&grpc_testing.StreamingInputCallRequest{Payload: &grpc_testing.Payload{Body: make([]byte,
				3)}}); err != nil {
				t.Fatal(err)
			}
		}
		res, err := s.CloseAndRecv()
		if err != nil || res.GetAggregatedPayloadSize() != 300 {
			t.Errorf("got %v, %v", res, err)
		}
	})
}

func TestServerStream(t *testing.T) {
	wires(t, func(t *testing.T, _ *echo, c grpc_testing.TestServiceClient) {
		req := &grpc_testing.StreamingOutputCallRequest{}
		for i := range 100 {
			req.ResponseParameters = append(req.ResponseParameters, &grpc_testing.ResponseParameters{Size: int32(i)})
		}
		s, err := c.StreamingOutputCall(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			m, err := s.Recv()
			if err != nil || len(m.GetPayload().GetBody()) != i {
				t.Fatalf("message %d: %v, %v", i, m, err)
			}
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end: %v", err)
		}
		if first(s.Trailer()["last"]) != "words" {
			t.Errorf("trailer %v", s.Trailer())
		}
	})
}

func TestBidiStream(t *testing.T) {
	wires(t, func(t *testing.T, _ *echo, c grpc_testing.TestServiceClient) {
		s, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Header()
		if err != nil || first(h["hello"]) != "there" {
			t.Errorf("header %v, %v", h, err)
		}
		for i := range 50 {
			body := []byte{byte(i)}
			if err := s.Send(&grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: body}}); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv()
			if err != nil || m.GetPayload().GetBody()[0] != byte(i) {
				t.Fatalf("echo %d: %v, %v", i, m, err)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !apierrors.Is(err, apierrors.Conflict) {
			t.Errorf("end: %v", err)
		}
		err = s.Send(&grpc_testing.StreamingOutputCallRequest{})
		if err == nil {
			t.Error("sent after CloseSend")
		}
	})
}

// A handler sees its client go, by cancellation and by deadline, and the client does not wait for ever.
func TestContextEnds(t *testing.T) {
	wires(t, func(t *testing.T, e *echo, c grpc_testing.TestServiceClient) {
		const tries = 16
		begun, seen := make(chan bool, tries), make(chan error, tries)
		e.unary = func(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
			begun <- true
			<-ctx.Done()
			seen <- ctx.Err()
			return nil, ctx.Err()
		}
		gone := make(chan error, 1)
		e.down = func(_ *grpc_testing.StreamingOutputCallRequest,
			s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
			for {
				if err := s.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
					gone <- s.Context().Err()
					return err
				}
			}
		}
		// A busy machine may call the handler after the deadline, or never.
		for n := range tries {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond<<n)
			_, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
			cancel()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("unary: %v", err)
			}
			if len(begun) > 0 {
				break
			}
		}
		<-begun
		if <-seen == nil {
			t.Error("the handler's context went on")
		}
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel()
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.Canceled {
			t.Errorf("stream: %v", err)
		}
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the handler's context: %v", err)
		}
	})
}
