package listen_test

import (
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"monoplane.dev/apiserver/listen"
)

func TestOpen(t *testing.T) {
	none, err := listen.Open(t.Context(), "", "")
	if err != nil || none.Any() || none.REST() != "" || none.GRPC() != "" || none.Close() != nil {
		t.Errorf("without addresses: %v, %+v", err, none)
	}
	s, err := listen.Open(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Any() || s.GRPC() != "" {
		t.Errorf("one socket: %+v", s)
	}
	// A port that is taken is told with its address, and the socket that was opened before is free again.
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has loopback addresses that nobody else uses")
	}
	other, err := net.Listen("tcp", "127.61.83.7:0")
	if err != nil {
		t.Fatal(err)
	}
	free := other.Addr().String()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := listen.Open(t.Context(), free, s.REST()); err == nil ||
		!strings.Contains(err.Error(), "cannot listen on "+s.REST()) {
		t.Errorf("a taken port: %v", err)
	}
	again, err := listen.Open(t.Context(), "", free)
	if err != nil {
		t.Fatalf("the first socket was left open: %v", err)
	}
	if again.GRPC() != free || again.Close() != nil || again.Close() != nil {
		t.Errorf("opened %s on %s", again.GRPC(), free)
	}
}

// The certificate names what the addresses name, and nothing for an address that stands for all.
func TestNames(t *testing.T) {
	for address, want := range map[string][]string{
		"localhost:0": {"localhost"}, "127.0.0.1:0": {"127.0.0.1"}, "0.0.0.0:0": nil, ":0": nil, "[::]:0": nil,
	} {
		s, err := listen.Open(t.Context(), address, "")
		if err != nil {
			if strings.Contains(address, "::") {
				continue // a machine without IPv6
			}
			t.Fatal(err)
		}
		if got := s.Names(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
