package apitest

import (
	"context"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
)

// faults stands between the clients of a server and its services.
type faults struct {
	store *store.Store

	mu    sync.Mutex
	react func(ctx context.Context, method string, req any) error
	after func(ctx context.Context, method string, req, answer any) error
	calls map[string]int
	// oldest is the revision before which watches cannot resume.
	oldest int64
	// streams are what ends those that run, with a cause.
	streams map[*context.CancelCauseFunc]struct{}
}

func newFaults(s *store.Store) *faults {
	return &faults{store: s, calls: map[string]int{}, streams: map[*context.CancelCauseFunc]struct{}{}}
}

// React calls f before every call with the full name of the method, such as corev1.Pods_Bind_FullMethodName, and the
// request, which f must not change. When f returns an error the call fails with it; until f returns, the call waits. A
// call that f makes itself passes f, too. Nil removes f.
func (f *faults) React(react func(ctx context.Context, method string, req any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.react = react
}

// After calls f after every call that has succeeded and is no stream, with its answer. When f returns an error, the
// caller gets that, and the answer is lost, while what the call did has happened. Nil removes f.
func (f *faults) After(after func(ctx context.Context, method string, req, answer any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = after
}

// Calls returns how often a method was called by somebody who may.
func (f *faults) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Cut ends all watches with an error; their clients resume.
func (f *faults) Cut() { f.end(apierrors.New(apierrors.ServiceUnavailable, "the watch was cut")) }

// Expire ends all watches, and none can resume from a revision before the present one.
func (f *faults) Expire() {
	revision, err := f.store.Revision(context.Background())
	if err != nil {
		panic("apitest: " + err.Error()) // only a store that has failed or is closed does that
	}
	f.mu.Lock()
	f.oldest = revision
	f.mu.Unlock()
	f.end(expired())
}

func expired() error { return apierrors.New(apierrors.Expired, "too old resource version") }

func (f *faults) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cancel := range f.streams {
		(*cancel)(why)
	}
}

func (f *faults) before(ctx context.Context, method string, req any) error {
	f.mu.Lock()
	f.calls[method]++
	react := f.react
	f.mu.Unlock()
	if react == nil {
		return nil
	}
	return react(ctx, method, req)
}

func (f *faults) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := f.before(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	answer, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	after := f.after
	f.mu.Unlock()
	if after == nil {
		return answer, nil
	}
	if err := after(ctx, info.FullMethod, req, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func (f *faults) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.IsClientStream { // what agents and schedulers listen to; no watch
		return handler(srv, ss)
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	f.mu.Lock()
	f.streams[&cancel] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, &cancel)
	}()
	err := handler(srv, &stream{ServerStream: ss, faults: f, ctx: ctx, method: info.FullMethod})
	if ctx.Err() != nil && ss.Context().Err() == nil {
		return context.Cause(ctx)
	}
	return err
}

// stream is one on which the server sends.
type stream struct {
	grpc.ServerStream
	faults *faults
	ctx    context.Context
	method string
}

// Context ends when the stream is cut.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg reads the request, which is the only message that comes.
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := s.faults.before(s.ctx, s.method, m); err != nil {
		return err
	}
	resumed, ok := m.(interface {
		GetResourceVersion() string
		GetSendInitialEvents() bool
	})
	if !ok || resumed.GetSendInitialEvents() {
		return nil
	}
	at, err := strconv.ParseInt(resumed.GetResourceVersion(), 10, 64)
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if err == nil && at > 0 && at < s.faults.oldest {
		return expired()
	}
	return nil
}
