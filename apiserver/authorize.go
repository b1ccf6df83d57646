package apiserver

import (
	"context"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
)

func (s *Server) authorizeUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := s.authorize(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// authorizeStream judges a stream when its first message, the request, has been read.
func (s *Server) authorizeStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	if info.IsClientStream {
		// The request says nothing about resources.
		if err := s.authorize(stream.Context(), info.FullMethod, nil); err != nil {
			return err
		}
		return handler(srv, stream)
	}
	return handler(srv, &authorizedStream{ServerStream: stream, server: s, method: info.FullMethod})
}

// authorizedStream authorizes the first message that its handler reads. Handlers of server streams read their
// request before they do anything else, because the generated code does it for them.
type authorizedStream struct {
	grpc.ServerStream
	server *Server
	method string
	done   bool
}

// RecvMsg reads a message.
func (a *authorizedStream) RecvMsg(m any) error {
	if err := a.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if a.done {
		return nil
	}
	a.done = true
	return a.server.authorize(a.Context(), a.method, m)
}

func (s *Server) authorize(ctx context.Context, full string, req any) error {
	m, ok := s.lookup(full)
	switch {
	case !ok:
		return apierrors.New(apierrors.MethodNotAllowed, "unknown method %s", full)
	case m.open:
		return nil
	}
	id := auth.From(ctx)
	a := m.attributes
	if r, ok := req.(interface{ GetNamespace() string }); ok {
		a.Namespace = r.GetNamespace()
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		a.Name = r.GetName()
	}
	if r, ok := req.(interface{ GetFieldSelector() string }); ok {
		a.FieldSelector = r.GetFieldSelector()
	}
	if err := s.authz.Authorize(id, a); err != nil || id.Class != auth.Node {
		return err
	}
	return s.mayNodeRead(ctx, id, a)
}

// AuthorizePath judges a request for what is no resource, such as /metrics. Errors: Unauthorized, Forbidden.
func (s *Server) AuthorizePath(ctx context.Context, verb, path string) error {
	return s.authz.Authorize(auth.From(ctx), auth.Attributes{Verb: verb, Path: path})
}
