package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/metering"
	"monoplane.dev/apiserver/warning"
)

// observeUnary is the outermost interceptor: it counts and times, turns panics and unknown errors into
// Internal, and sends warnings. A front that collects the warnings of its requests sends them, and counts, itself.
func (s *Server) observeUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (answer any, err error) {
	m, _ := s.lookup(info.FullMethod)
	var own *warning.Collector
	var request metering.Request
	if !warning.Collected(ctx) {
		ctx, own = warning.WithCollector(ctx)
		request = m.begin(req)
	}
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, panicked(r)
		}
		err = s.translate(ctx, info.FullMethod, err)
		if own == nil {
			return
		}
		request.End(m.answer(req, err))
		if texts := own.Texts(); len(texts) > 0 {
			// An error here means that the client has gone.
			_ = grpc.SetHeader(ctx, metadata.MD{warning.MetadataKey: texts})
		}
	}()
	return handler(ctx, req)
}

// observeStream is observeUnary for streams. Their duration is counted like any other; a watch is long. Warnings go
// with the header, so that only those count that are there when the service accepts the request.
func (s *Server) observeStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	var own *observed
	if !warning.Collected(stream.Context()) {
		m, _ := s.lookup(info.FullMethod)
		own = &observed{ServerStream: stream, method: m}
		own.ctx, own.own = warning.WithCollector(stream.Context())
		stream = own
	}
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
		err = s.translate(stream.Context(), info.FullMethod, err)
		if own != nil {
			own.end(err)
		}
	}()
	return handler(srv, stream)
}

// observed is a stream that sends, with its header, what its handler has been warned of until then, and that is
// counted from its first message on, which says what is asked for.
type observed struct {
	grpc.ServerStream
	ctx context.Context
	own *warning.Collector

	method  *method
	begun   bool
	request metering.Request
}

// Context has the collector.
func (w *observed) Context() context.Context { return w.ctx }

// RecvMsg reads a message.
func (w *observed) RecvMsg(m any) error {
	err := w.ServerStream.RecvMsg(m)
	if err == nil {
		w.begin(m)
	}
	return err
}

func (w *observed) begin(req any) {
	if !w.begun {
		w.begun, w.request = true, w.method.begin(req)
	}
}

func (w *observed) end(err error) {
	w.begin(nil)
	w.request.End(w.method.answer(nil, err))
}

// SendHeader sends the warnings besides what is in md.
func (w *observed) SendHeader(md metadata.MD) error {
	if texts := w.own.Texts(); len(texts) > 0 {
		md = metadata.Join(md, metadata.MD{warning.MetadataKey: texts})
	}
	return w.ServerStream.SendHeader(md)
}

// panicError carries the stack to the log.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return "panic: " + apierrors.PanicText(p.value) }

func panicked(r any) error { return &panicError{value: r, stack: debug.Stack()} }

// translate makes every error one that the API defines. What clients are not told is logged.
func (s *Server) translate(ctx context.Context, full string, err error) error {
	var api *apierrors.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api):
		if api.Reason() != apierrors.InternalError || api.Unwrap() == nil {
			return api
		}
		err = api.Unwrap()
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.New(apierrors.Timeout, "the request did not end within its deadline")
	case errors.Is(err, context.Canceled):
		return apierrors.New(apierrors.Timeout, "the request was canceled")
	default:
		if _, ok := status.FromError(err); ok {
			return err // from gRPC itself, such as a stream that the client has left
		}
	}
	attrs := []slog.Attr{slog.String("method", full), slog.String("user", auth.From(ctx).Name), slog.Any("error", err)}
	var p *panicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	s.log.LogAttrs(ctx, slog.LevelError, "request failed", attrs...)
	return apierrors.NewInternal(err)
}
