package inproc_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"monoplane.dev/client/inproc"
)

func BenchmarkUnary(b *testing.B) {
	req := &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: make([]byte, 2048)}}
	for name, conn := range conns(b) {
		b.Run(name, func(b *testing.B) {
			c := grpc_testing.NewTestServiceClient(conn)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.UnaryCall(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for name, conn := range conns(b) {
		b.Run(name, func(b *testing.B) {
			c := grpc_testing.NewTestServiceClient(conn)
			b.ReportAllocs()
			s, err := c.FullDuplexCall(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			req := &grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: make([]byte, 2048)}}
			for b.Loop() {
				if err := s.Send(req); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Recv(); err != nil {
					b.Fatal(err)
				}
			}
			_ = s.CloseSend()
			_, _ = s.Recv()
		})
	}
}

func conns(b *testing.B) map[string]grpc.ClientConnInterface {
	e := &echo{}
	s := newServer(b, e)
	return map[string]grpc.ClientConnInterface{
		"inproc":   s.Conn(),
		"clone":    s.Conn(inproc.WithClone()),
		"detached": s.Conn(inproc.Detached()),
		"bufconn":  overBufconn(b, e),
	}
}
