package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"
)

// The probes of silent connections: after how long, and how long the client may take to answer.
const (
	ProbeAfter   = 30 * time.Second
	ProbeTimeout = 15 * time.Second
	// minPing is how far apart the probes of a client must be.
	minPing = 10 * time.Second
)

// ServerOptions are for a gRPC server on a Listener. Authenticate judges each call by its headers, before anything
// else is done for it. A server that takes connections of unknown clients needs ForUnknown, too.
func ServerOptions(authenticate tap.ServerInHandle) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(handshaken{}),
		grpc.InTapHandle(authenticate),
		grpc.MaxHeaderListSize(MaxHeaderBytes),
		grpc.MaxConcurrentStreams(MaxStreams),
		grpc.ConnectionTimeout(OpeningTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: ProbeAfter, Timeout: ProbeTimeout,
			MaxConnectionIdle: IdleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
}

// AuthInfo is what gRPC knows of a connection.
type AuthInfo struct {
	credentials.TLSInfo

	// Conn is the connection below TLS.
	Conn *Conn
}

// handshaken are credentials for connections whose TLS handshake a Listener has made.
type handshaken struct{}

// ServerHandshake takes the connection as it is.
func (handshaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := c.(*tls.Conn)
	below := of(c)
	if !ok || below == nil {
		return nil, nil, errors.New("gate: not a connection of a Listener")
	}
	state := t.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return nil, nil, fmt.Errorf("gate: gRPC needs HTTP/2, and the client has negotiated %q", state.NegotiatedProtocol)
	}
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{
		SecurityLevel: credentials.PrivacyAndIntegrity}}
	return c, AuthInfo{TLSInfo: info, Conn: below}, nil
}

// ClientHandshake refuses: these credentials are a server's.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("gate: these credentials are for servers")
}

// Info describes the protocol.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns the same: there is no state.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName is for clients only.
func (handshaken) OverrideServerName(string) error { return nil }

// ForUnknown is for a gRPC server whose clients may be unknown. It ends the contexts of a connection's calls with the
// connection. gRPC does so itself, but for calls that are refused by their headers: their deadlines, which the client
// sets to whatever it likes, would keep the connection in memory. It makes a call a tenth slower, so that known
// clients (Known) have a server without it.
func ForUnknown() grpc.ServerOption { return grpc.StatsHandler(connections{}) }

// connections is told when connections begin and end.
type connections struct{}

type endKey struct{}

// TagConn makes the context of the connection one that can be ended.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, endKey{}, cancel)
}

// HandleConn ends it with the connection.
func (connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); !ok {
		return
	}
	if cancel, ok := ctx.Value(endKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// TagRPC leaves calls as they are.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}
