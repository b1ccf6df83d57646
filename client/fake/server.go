package fake

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/client"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"
)

// Server is an API server in memory. All methods may be called from any goroutine.
type Server struct {
	conn *inproc.Server

	mu       sync.Mutex
	revision int64
	oldest   int64 // watches cannot resume before this revision
	kinds    map[*object.Kind]*backend
	react    func(ctx context.Context, method string, req any) error
	cut      chan struct{} // closed to end all watches
	uids     int
	calls    map[string]int
}

// New returns an empty server. Stop ends it.
func New() *Server {
	s := &Server{
		revision: 100, // so that "0" and small numbers stay special
		kinds:    map[*object.Kind]*backend{},
		cut:      make(chan struct{}),
		calls:    map[string]int{},
	}
	s.conn = inproc.NewServer(
		[]grpc.UnaryServerInterceptor{func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if err := s.before(ctx, info.FullMethod, req); err != nil {
				return nil, err
			}
			return h(ctx, req)
		}},
		[]grpc.StreamServerInterceptor{func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if err := s.before(ss.Context(), info.FullMethod, nil); err != nil {
				return err
			}
			return h(srv, ss)
		}},
	)
	s.conn.OnPanic(func(method string, v any, stack []byte) {
		fmt.Fprintf(os.Stderr, "fake: %s: %v\n%s", method, v, stack)
	})
	for _, svc := range services.All() {
		if !svc.Stores() {
			continue
		}
		b := s.backend(svc.Kind)
		server := svc.Adapt(b)
		if svc.Kind == corev1.PodKind {
			server = &podsServer{PodsBackend: corev1.PodsBackend{Backend: b}, server: s}
		}
		s.conn.RegisterService(svc.Desc, server)
	}
	return s
}

// Client returns clients of the server.
func (s *Server) Client() *client.Client { return client.New(s.Conn()) }

// Conn returns a connection to the server.
func (s *Server) Conn(opts ...inproc.Option) grpc.ClientConnInterface { return s.conn.Conn(opts...) }

// Stop ends all watches and refuses further calls.
func (s *Server) Stop() { s.conn.Stop() }

// React calls f before every call with the full method name, such as corev1.Pods_Bind_FullMethodName, and the request (nil for
// streams). When f returns an error, the call fails with it. Nil removes f.
func (s *Server) React(f func(ctx context.Context, method string, req any) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.react = f
}

// Calls returns how often a method was called.
func (s *Server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Cut ends all watches with an error; their clients resume.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Expire forgets all history, so that no watch can resume from a revision before now.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.revision
	for _, b := range s.kinds {
		b.log = nil
	}
}

func (s *Server) before(ctx context.Context, method string, req any) error {
	s.mu.Lock()
	s.calls[method]++
	f := s.react
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, method, req)
}

func (s *Server) backend(k *object.Kind) *backend {
	b := &backend{server: s, kind: k, objects: map[key]object.Object{}, changed: make(chan struct{})}
	s.kinds[k] = b
	return b
}

// uid makes a uid; the caller holds mu.
func (s *Server) uid() string {
	s.uids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids)
}

func now() time.Time { return time.Now() }
