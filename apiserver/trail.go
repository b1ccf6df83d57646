package apiserver

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
)

// This file feeds the audit log. A request over REST has its record already; one over gRPC, from the network or from a
// component, gets one here.

// auditKey is the metadata of an answer that says by which ID the audit knows the call.
const auditKey = "audit-id"

// auditUnary records a call.
func (s *Server) auditUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (answer any, err error) {
	m, ok := s.lookup(info.FullMethod)
	if !ok || m.open {
		return handler(ctx, req)
	}
	record := audit.From(ctx)
	own := record == nil
	if own {
		ctx, record = s.begin(ctx, m, info.FullMethod, req)
		// An error here means that the client has gone.
		_ = grpc.SetHeader(ctx, metadata.Pairs(auditKey, record.ID()))
	}
	record.Request(req)
	done := false
	defer func() {
		if done {
			record.Response(answer, err)
		} else {
			record.Panicked()
			record.Failed(apierrors.NewInternal(nil).Status())
		}
		if own {
			record.Complete(codeOf(err))
		}
	}()
	answer, err = handler(ctx, req)
	done = true
	return answer, err
}

// auditStream is auditUnary for streams, whose request is the first message.
func (s *Server) auditStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	m, ok := s.lookup(info.FullMethod)
	if !ok || m.open {
		return handler(srv, stream)
	}
	r := &recorded{ServerStream: stream, server: s, method: m, full: info.FullMethod, ctx: stream.Context()}
	r.record = audit.From(r.ctx)
	if r.record == nil {
		r.own = true
		if info.IsClientStream && !m.attributes.Namespaced { // the request says nothing about resources
			r.begin(nil)
		}
	}
	done := false
	defer func() {
		code := codeOf(err)
		switch {
		case !done:
			r.record.Panicked()
			r.record.Failed(apierrors.NewInternal(nil).Status())
		case err != nil && r.started && stream.Context().Err() != nil:
			code = http.StatusOK // The caller has hung up, and was answered so far.
		case err != nil:
			if r.own && r.record == nil { // it was refused before anybody read what it asks for
				r.begin(nil)
			}
			r.record.Response(nil, err)
		}
		if r.own {
			r.record.Complete(code)
		}
	}()
	err = handler(srv, r)
	done = true
	return err
}

// recorded is a stream with a record.
type recorded struct {
	grpc.ServerStream
	server *Server
	method *method
	full   string
	ctx    context.Context //nolint:containedctx // gRPC's streams have one
	record *audit.Record
	// own says that the record is of this call, and not of a request over REST that it belongs to.
	own     bool
	started bool
}

func (r *recorded) begin(req any) {
	r.ctx, r.record = r.server.begin(r.ctx, r.method, r.full, req)
	_ = r.SetHeader(metadata.Pairs(auditKey, r.record.ID()))
}

// Context has the record.
func (r *recorded) Context() context.Context { return r.ctx }

// RecvMsg begins the record with the first message.
func (r *recorded) RecvMsg(m any) error {
	if err := r.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if r.record == nil {
		r.begin(m)
	}
	return nil
}

// SendHeader is how a service accepts a call that may take long to answer anything.
func (r *recorded) SendHeader(md metadata.MD) error {
	r.start()
	return r.ServerStream.SendHeader(md)
}

// SendMsg writes a message.
func (r *recorded) SendMsg(m any) error {
	r.start()
	return r.ServerStream.SendMsg(m)
}

func (r *recorded) start() {
	if r.own && !r.started {
		r.started = true
		r.record.Started(http.StatusOK)
	}
}

// begin begins the record of a call.
func (s *Server) begin(ctx context.Context, m *method, full string, req any) (context.Context, *audit.Record) {
	from := audit.Source{URI: full}
	if p, ok := peer.FromContext(ctx); ok {
		if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
			from.Address = host
		}
	}
	if agent := metadata.ValueFromIncomingContext(ctx, "user-agent"); len(agent) > 0 {
		from.UserAgent = agent[0]
	}
	a := requested(m, req)
	ctx, record := s.trail.Begin(ctx, from, audit.Attributes{
		Verb: a.Verb, Objects: a.Resource != "", Group: a.Group, Version: m.version, Resource: a.Resource,
		Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name, Path: a.Path,
	})
	record.Received(authn.UserFrom(ctx))
	return ctx, record
}

// judged notes what the authorizer has said to somebody, and returns it.
func (s *Server) judged(ctx context.Context, id auth.Identity, a auth.Attributes, err error) error {
	if s.trail == nil {
		return err
	}
	if record := audit.From(ctx); record != nil {
		record.Judged(err == nil, s.authz.Why(id, a, err == nil))
	}
	return err
}

// codeOf is the code of HTTP that an error has over REST.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return int(apierrors.From(err).Status().GetCode())
}
