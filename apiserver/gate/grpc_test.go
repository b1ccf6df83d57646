package gate_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"monoplane.dev/apiserver/gate"
)

// serveGRPC serves the health service on a gate on a real socket, and returns a way to connect.
func serveGRPC(t *testing.T, judge tap.ServerInHandle) func(protocols ...string) *grpc.ClientConn {
	t.Helper()
	l, _ := listenTCP(t, gate.Limits{})
	server := grpc.NewServer(append(gate.ServerOptions(judge), gate.ForUnknown())...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(protocols ...string) *grpc.ClientConn {
		t.Helper()
		creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func check(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// Nothing of a call that was refused by its headers is left when its connection is, however far its deadline is away.
func TestRefusedCallsAreForgotten(t *testing.T) {
	var mu sync.Mutex
	var seen []context.Context
	dial := serveGRPC(t, func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, ctx)
		return nil, errors.New("no")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
	defer cancel()
	conn := dial("h2")
	if err := check(ctx, conn); status.Code(err) != codes.PermissionDenied {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if deadline, ok := seen[0].Deadline(); !ok || time.Until(deadline) < 999*time.Hour {
		t.Fatalf("the call has deadline %v", deadline)
	}
	select {
	case <-seen[0].Done():
	case <-time.After(time.Minute):
		t.Error("the call's context has not ended, and keeps its connection in memory")
	}
}

// The judge sees the connection, which only comes over HTTP/2, and the bounds of a call's header hold.
func TestServerOptions(t *testing.T) {
	dial := serveGRPC(t, func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		p, _ := peer.FromContext(ctx)
		if info, ok := p.AuthInfo.(gate.AuthInfo); !ok || info.Conn.IsAuthenticated() ||
			info.State.NegotiatedProtocol != "h2" {
			t.Errorf("the peer is %+v", p)
		} else {
			info.Conn.Authenticated()
		}
		return ctx, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := check(ctx, dial("h2")); err != nil {
		t.Error(err)
	}
	large := func(size int) error {
		return check(metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("x", size)), dial("h2"))
	}
	if err := large(gate.MaxHeaderBytes - 1024); err != nil {
		t.Errorf("a large header: %v", err)
	}
	if err := large(gate.MaxHeaderBytes + 1024); err == nil {
		t.Error("a header beyond the bound was taken")
	}
}
