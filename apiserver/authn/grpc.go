package authn

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"monoplane.dev/apiserver/gate"
)

const authorizationKey = "authorization"

// Tap authenticates calls that come over the network as soon as their headers are there: before a message is read, and
// before anything is kept for a call of somebody unknown. It is for grpc.InTapHandle.
func (a *Authenticator) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	var state *tls.ConnectionState
	var conn *gate.Conn
	if p, ok := peer.FromContext(ctx); ok {
		switch known := p.AuthInfo.(type) {
		case gate.AuthInfo:
			state, conn = &known.State, known.Conn
		case credentials.TLSInfo:
			state = &known.State
		}
	}
	header := info.Header[authorizationKey]
	u, err := a.user(ctx, state, header)
	switch {
	case err != nil:
	case u != nil:
		conn.Authenticated()
	case a.open[info.FullMethodName]:
		conn.Refused()
		u = anonymous()
	default:
		err = unauthorized("no client certificate and no bearer token")
	}
	if err == nil {
		u, err = a.acting(ctx, u, info.Header)
	}
	if err != nil {
		conn.Refused()
		return nil, err
	}
	if len(header) > 0 || asksToAct(info.Header) {
		md := info.Header.Copy()
		delete(md, authorizationKey)
		withoutWish(md)
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	return WithUser(ctx, u), nil
}

// Unary refuses impersonation in calls that do not come over the network, where Tap does.
func Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := refuseImpersonation(ctx); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is Unary for streams.
func Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := refuseImpersonation(stream.Context()); err != nil {
		return err
	}
	return handler(srv, stream)
}

func refuseImpersonation(ctx context.Context) error {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok || len(md) == 0 {
		return nil
	}
	return Impersonates(UserFrom(ctx), md)
}
