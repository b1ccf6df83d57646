package inproc_test

import (
	"runtime"
	"testing"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"monoplane.dev/client/inproc"
)

// A server that is gone leaves nothing behind: whoever starts many clusters in one process, with descriptions of their
// own, does not fill the memory with them.
func TestServersLeaveNothingBehind(t *testing.T) {
	var descriptions []weak.Pointer[grpc.ServiceDesc]
	for range 10 {
		s := inproc.NewServer(nil, nil)
		desc := grpc_testing.TestService_ServiceDesc
		s.RegisterService(&desc, &echo{})
		c := grpc_testing.NewTestServiceClient(s.Conn())
		if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil {
			t.Fatal(err)
		}
		if n := len(s.GetServiceInfo()["grpc.testing.TestService"].Methods); n != len(desc.Methods)+len(desc.Streams) {
			t.Errorf("%d methods are described", n)
		}
		s.Stop()
		descriptions = append(descriptions, weak.Make(&desc))
	}
	runtime.GC()
	runtime.GC()
	for i, d := range descriptions {
		if d.Value() != nil {
			t.Errorf("server %d has left its description behind", i)
		}
	}
}
