package authn

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

const authorizationKey = "authorization"

// Unary authenticates unary calls that come over the network.
func (a *Authenticator) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, err := a.call(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// Stream authenticates streams that come over the network.
func (a *Authenticator) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, err := a.call(stream.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		return handler(srv, &authenticated{stream, ctx})
	}
}

type authenticated struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context with the user.
func (s *authenticated) Context() context.Context { return s.ctx }

// call returns the context of a call with its user, and without its credentials.
func (a *Authenticator) call(ctx context.Context, method string) (context.Context, error) {
	var state *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			state = &info.State
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	header := md.Get(authorizationKey)
	u, err := a.user(state, header)
	switch {
	case err != nil:
		return nil, err
	case u == nil && !a.open[method]:
		return nil, unauthorized("no client certificate and no bearer token")
	case u == nil:
		u = anonymous()
	}
	if len(header) > 0 {
		md.Delete(authorizationKey)
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	return WithUser(ctx, u), nil
}
