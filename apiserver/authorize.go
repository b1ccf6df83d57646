package apiserver

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
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
	if m, _ := s.lookup(info.FullMethod); info.IsClientStream && !m.attributes.Namespaced {
		// The request says nothing about resources.
		if err := s.authorize(stream.Context(), info.FullMethod, nil); err != nil {
			return err
		}
		return handler(srv, stream)
	}
	return handler(srv, &authorizedStream{ServerStream: stream, server: s, method: info.FullMethod})
}

// authorizedStream authorizes the first message that its handler reads. Handlers of server streams read their
// request before they do anything else, because the generated code does it for them; those of Exec, Attach,
// PortForward and Proxy do too, since the first message says what is asked for.
//
// An agent's watch of what its pods use is judged again before everything that it is sent: a watch may last for hours,
// and the right to it ends with the pod.
type authorizedStream struct {
	grpc.ServerStream
	server *Server
	method string
	done   bool
	// again is the request, when it is judged again; else nil.
	again any
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
	if err := a.server.authorize(a.Context(), a.method, m); err != nil {
		return err
	}
	if auth.From(a.Context()).Class == auth.Node && a.server.passing(a.method) {
		a.again = m
	}
	return nil
}

// SendMsg writes a message.
func (a *authorizedStream) SendMsg(m any) error {
	if a.again != nil {
		if err := a.server.authorize(a.Context(), a.method, a.again); err != nil {
			return err
		}
	}
	return a.ServerStream.SendMsg(m)
}

// passing says whether an agent has a right to what a method reads only as long as a pod of its node refers to it.
func (s *Server) passing(full string) bool {
	m, _ := s.lookup(full)
	return m.attributes.Group == "" && (m.attributes.Resource == "configmaps" || m.attributes.Resource == "secrets")
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
	a := requested(m, req)
	if r, ok := req.(*corev1rpc.ProxyNodeRequest); ok {
		return s.judged(ctx, id, a, s.authz.AuthorizeNodePath(id, a, r.GetPath()))
	}
	err := s.authz.Authorize(id, a)
	if err == nil && id.Class == auth.Node {
		err = s.mayNodeRead(ctx, id, a)
	}
	return s.judged(ctx, id, a, err)
}

// requested returns the attributes of a request of a method; req may be nil.
func requested(m *method, req any) auth.Attributes {
	a := m.attributes
	if r, ok := req.(interface{ GetNamespace() string }); ok {
		a.Namespace = r.GetNamespace()
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		a.Name = r.GetName()
	}
	if !a.Namespaced {
		a.Namespace = ""
	}
	if a.Group == "" && a.Resource == "namespaces" {
		a.Namespace = a.Name // as in Kubernetes: a role in a namespace may be about the namespace
	}
	if r, ok := req.(interface{ GetFieldSelector() string }); ok {
		a.FieldSelector = r.GetFieldSelector()
	}
	if r, ok := req.(interface{ GetInput() *corev1.ProxyInput }); ok {
		a.Verb = verbOfHTTP(r.GetInput().GetMethod())
	}
	return a
}

// verbOfHTTP is the right that a request of some method needs which is passed on to a pod, as in Kubernetes: there is
// none for methods that only those may use who may do everything.
func verbOfHTTP(method string) string {
	switch method {
	case "", http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

// mayCreate judges an apply that makes an object: to patch what is there is another right.
func mayCreate(ctx context.Context, authz *auth.Authorizer, kind *object.Kind, namespace, name string) error {
	a := auth.Attributes{
		Verb: "create", Group: kind.Group, Resource: kind.Plural, Namespaced: kind.Namespaced, Name: name,
	}
	if kind.Namespaced {
		a.Namespace = namespace
	}
	return authz.Authorize(auth.From(ctx), a)
}

// AuthorizePath judges a request for what is no resource, such as /metrics. Errors: Unauthorized, Forbidden.
func (s *Server) AuthorizePath(ctx context.Context, verb, path string) error {
	a := auth.Attributes{Verb: verb, Path: path}
	id := auth.From(ctx)
	return s.judged(ctx, id, a, s.authz.Authorize(id, a))
}

// Impersonate is the authn.Impersonator of the server: roles decide, and each request leaves a line in the audit log.
func (s *Server) Impersonate(ctx context.Context, u *authn.User, w *authn.Wish) (*authn.User, error) {
	audit.From(ctx).Who(u)
	as, err := s.authz.Impersonate(u, w)
	if err == nil {
		s.audit.Impersonation(ctx, u.Name, as.Name, as.Groups)
	}
	return as, err
}
