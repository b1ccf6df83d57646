package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"monoplane.dev/apiserver/gate"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/codec/grpccodec"
	"monoplane.dev/object"
)

// grpcGrace is how long gRPC calls may go on once the server is shut down.
const grpcGrace = 200 * time.Millisecond

func (s *Server) serveREST(socket net.Listener) error {
	cfg := s.cfg.REST
	cfg.Authenticate = s.auth.Authenticate
	handler, err := rest.New(cfg)
	if err != nil {
		return err
	}
	server := rest.NewServer(handler, s.cfg.Bundle.ServerTLS(), s.cfg.Logger)
	listener := s.letIn(socket)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	s.onShutdown(func(ctx context.Context) error {
		handler.Close()
		if err := server.Shutdown(ctx); err != nil {
			return errors.Join(err, server.Close())
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// serveGRPC serves gRPC by two servers, of which the one for clients that their certificates have shown is the faster.
func (s *Server) serveGRPC(socket net.Listener) {
	healthServer := health.NewServer()
	options := append(gate.ServerOptions(s.auth.Tap),
		grpc.ForceServerCodecV2(grpccodec.Codec{}),
		grpc.ChainUnaryInterceptor(slices.Concat(
			[]grpc.UnaryServerInterceptor{owned}, s.cfg.Unary, []grpc.UnaryServerInterceptor{s.cfg.Limits.Unary})...),
		grpc.ChainStreamInterceptor(slices.Concat(
			s.cfg.Stream, []grpc.StreamServerInterceptor{s.cfg.Limits.Stream})...),
	)
	listener := s.letIn(socket)
	s.serveOne(s.newGRPC(healthServer, options), listener.Known())
	s.serveOne(s.newGRPC(healthServer, append(options, gate.ForUnknown())), listener.Unknown())
	s.onShutdown(func(context.Context) error { healthServer.Shutdown(); return nil })
}

// newGRPC returns a server with all services.
func (s *Server) newGRPC(healthServer *health.Server, options []grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(options...)
	s.cfg.Register(server)
	healthpb.RegisterHealthServer(server, healthServer)
	reflection.Register(server)
	return server
}

// serveOne serves until the server is shut down.
func (s *Server) serveOne(server *grpc.Server, listener net.Listener) {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	s.onShutdown(func(ctx context.Context) error {
		// Streams may be open for ever: the context of the running calls ends them.
		stopped := make(chan struct{})
		go func() { server.GracefulStop(); close(stopped) }()
		select {
		case <-stopped:
		case <-time.After(grpcGrace):
			server.Stop()
			<-stopped
		case <-ctx.Done():
			server.Stop()
			<-stopped
		}
		return <-ended
	})
}

// owned says that what comes over the network is nobody else's.
func owned(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	return h(object.WithOwned(ctx), req)
}
