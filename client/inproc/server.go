package inproc

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server holds services and hands out connections to them. It implements grpc.ServiceRegistrar, and what the
// reflection service asks of a server.
type Server struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor

	ctx  context.Context // ends with Stop
	stop context.CancelFunc

	services atomic.Pointer[map[string]*service]
	onPanic  atomic.Pointer[func(method string, value any, stack []byte)]

	mu      sync.Mutex
	stopped bool
	streams sync.WaitGroup
}

// service is an implementation with its description. A service has so few methods that looking through them is as
// quick as a map, which each of a thousand simulated nodes' servers would have for itself.
type service struct {
	impl any
	desc *grpc.ServiceDesc
}

// unary returns the handler of a method, nil when there is none.
func (s *service) unary(name string) grpc.MethodHandler {
	for i := range s.desc.Methods {
		if m := &s.desc.Methods[i]; m.MethodName == name {
			return m.Handler
		}
	}
	return nil
}

// stream returns the description of a stream, nil when there is none.
func (s *service) stream(name string) *grpc.StreamDesc {
	for i := range s.desc.Streams {
		if d := &s.desc.Streams[i]; d.StreamName == name {
			return d
		}
	}
	return nil
}

func (s *service) info() grpc.ServiceInfo {
	info := grpc.ServiceInfo{Metadata: s.desc.Metadata}
	for i := range s.desc.Methods {
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: s.desc.Methods[i].MethodName})
	}
	for i := range s.desc.Streams {
		d := &s.desc.Streams[i]
		info.Methods = append(info.Methods, grpc.MethodInfo{
			Name: d.StreamName, IsClientStream: d.ClientStreams, IsServerStream: d.ServerStreams,
		})
	}
	return info
}

// NewServer returns a server without services. The interceptors wrap every call, the first one outermost.
func NewServer(unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) *Server {
	s := &Server{unary: chainUnary(unary), stream: chainStream(stream)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.services.Store(&map[string]*service{})
	return s
}

// RegisterService adds a service. It panics when impl does not implement the service or when the service
// is registered twice, as grpc.Server does: both are mistakes of the program, not of its input.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if impl != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if got := reflect.TypeOf(impl); !got.Implements(want) {
			panic(fmt.Sprintf("inproc: %v does not implement %v", got, want))
		}
	}
	svc := &service{impl: impl, desc: desc}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.services.Load()
	if _, ok := old[desc.ServiceName]; ok {
		panic(fmt.Sprintf("inproc: service %s is registered twice", desc.ServiceName))
	}
	services := make(map[string]*service, len(old)+1)
	for k, v := range old {
		services[k] = v
	}
	services[desc.ServiceName] = svc
	s.services.Store(&services)
}

// OnPanic sets what is told about panics in handlers, to log them. Without it they are only answered with
// Internal.
func (s *Server) OnPanic(f func(method string, value any, stack []byte)) { s.onPanic.Store(&f) }

// GetServiceInfo lists the services, for the reflection service.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	services := *s.services.Load()
	infos := make(map[string]grpc.ServiceInfo, len(services))
	for name, svc := range services {
		infos[name] = svc.info()
	}
	return infos
}

// Conn returns a connection to the server's services, those registered later included.
func (s *Server) Conn(opts ...Option) grpc.ClientConnInterface {
	c := &conn{server: s, buffer: 16}
	for _, o := range opts {
		o(c)
	}
	c.fixed = c.fixedContext()
	return c
}

// Stop refuses new calls with Unavailable, cancels the contexts of running streams and waits until their
// handlers have returned. Running unary calls end by themselves, on their callers' goroutines.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.stop()
	s.streams.Wait()
}

// startStream counts a new stream, unless the server has stopped.
func (s *Server) startStream() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped()
	}
	s.streams.Add(1)
	return nil
}

func errStopped() error { return status.Error(codes.Unavailable, "the server has stopped") }

// find resolves a full method name such as "/monoplane.core.v1.Pods/Get".
func (s *Server) find(method string) (*service, string, error) {
	path := strings.TrimPrefix(method, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return nil, "", status.Errorf(codes.Unimplemented, "malformed method name: %q", method)
	}
	svc, ok := (*s.services.Load())[path[:i]]
	if !ok {
		return nil, "", status.Errorf(codes.Unimplemented, "unknown service %v", path[:i])
	}
	return svc, path[i+1:], nil
}

func errUnknownMethod(method string) error {
	return status.Errorf(codes.Unimplemented, "unknown method %s", method)
}
