// Package listen serves the API to the network: REST over HTTPS on one socket, gRPC over TLS on another. Connections
// come in through package gate, requests are authenticated by package authn, and everything else is the services' that
// it is given.
//
// Use: Open the sockets before anything else is done, so that a port that is taken is found out while nothing has
// happened; clients that come early wait until Serve.
package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"google.golang.org/grpc"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/gate"
	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/rest"
)

// Sockets are open, and nothing is served on them yet.
type Sockets struct {
	addresses  []string
	rest, grpc net.Listener // nil without
}

// Open opens a socket for each address that is not empty.
func Open(ctx context.Context, restAddress, grpcAddress string) (*Sockets, error) {
	s := &Sockets{addresses: []string{restAddress, grpcAddress}}
	for _, x := range []struct {
		address string
		to      *net.Listener
	}{{restAddress, &s.rest}, {grpcAddress, &s.grpc}} {
		if x.address == "" {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", x.address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot listen on %s: %w", x.address, err), s.Close())
		}
		*x.to = l
	}
	return s, nil
}

// Any says whether there is a socket.
func (s *Sockets) Any() bool { return s.rest != nil || s.grpc != nil }

// REST returns the host and port of the REST API, empty without one.
func (s *Sockets) REST() string { return addressOf(s.rest) }

// GRPC returns the host and port of the gRPC API, empty without one.
func (s *Sockets) GRPC() string { return addressOf(s.grpc) }

func addressOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// Names returns the hosts that clients may know the sockets by, for the server's certificate.
func (s *Sockets) Names() []string {
	var names []string
	for _, a := range s.addresses {
		host, _, err := net.SplitHostPort(a)
		if err != nil || host == "" {
			continue
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			continue
		}
		names = append(names, host)
	}
	return names
}

// Close closes the sockets that no server has closed.
func (s *Sockets) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.rest, s.grpc} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Config says what is served.
type Config struct {
	// Bundle has the certificates.
	Bundle *pki.Bundle
	// Bearers are the bearer tokens.
	Bearers *authn.Bearers
	// Impersonate judges who may act as somebody else; nil lets nobody.
	Impersonate authn.Impersonator
	// Kubeconfig is the path of the file that gives the administrator access.
	Kubeconfig string
	// REST is the front, without who authenticates.
	REST rest.Config
	// Register puts the services on a gRPC server, which runs the interceptors.
	Register func(grpc.ServiceRegistrar)
	// Limits bounds the calls that are served at once. Required.
	Limits *fair.Limiter
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor
	Logger *slog.Logger
}

// Server serves on the sockets.
type Server struct {
	cfg     Config
	auth    *authn.Authenticator
	limits  gate.Limits
	at      pki.Endpoints
	closers []func(context.Context) error
}

// Serve writes the kubeconfig and serves until Shutdown.
func (s *Sockets) Serve(ctx context.Context, cfg Config) (*Server, error) {
	limits, err := gate.ProcessLimits()
	if err != nil {
		return nil, err
	}
	server := &Server{
		cfg: cfg, limits: limits, at: pki.Endpoints{GRPC: s.GRPC()},
		auth: authn.New(authn.Config{
			ClientCAs: cfg.Bundle.ClientCAs, Bearers: cfg.Bearers, Impersonate: cfg.Impersonate,
		}),
	}
	if s.rest != nil {
		server.at.REST = "https://" + s.REST()
	}
	if err := server.writeKubeconfig(); err != nil {
		return nil, err
	}
	if s.rest != nil {
		if err := server.serveREST(s.rest); err != nil {
			return nil, errors.Join(err, server.Shutdown(ctx))
		}
	}
	if s.grpc != nil {
		server.serveGRPC(s.grpc)
	}
	return server, nil
}

func (s *Server) writeKubeconfig() error { return s.cfg.Bundle.WriteKubeconfig(s.cfg.Kubeconfig, s.at) }

// KeepRenewed renews the certificates in time, and writes the kubeconfig again with the new one, until ctx ends.
func (s *Server) KeepRenewed(ctx context.Context) error {
	return s.cfg.Bundle.KeepRenewed(ctx, s.writeKubeconfig)
}

// Shutdown ends the servers, the last first. Requests may finish for a moment.
func (s *Server) Shutdown(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// onShutdown adds what Shutdown must undo.
func (s *Server) onShutdown(f func(context.Context) error) { s.closers = append(s.closers, f) }

// letIn has the gate accept from a socket.
func (s *Server) letIn(inner net.Listener) *gate.Listener {
	l := gate.Listen(inner, gate.Config{
		TLS: s.cfg.Bundle.ServerTLS(), Known: s.auth.Known, Limits: s.limits, Logger: s.cfg.Logger,
	})
	s.onShutdown(func(context.Context) error { return l.Close() })
	return l
}
