package monoplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	adminv1 "monoplane.dev/api/admin/v1"
	nodev1 "monoplane.dev/api/node/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/apiserver/admin"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/gate"
	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/client/inproc"
	"monoplane.dev/codec/grpccodec"
	"monoplane.dev/object"
)

// kubernetesVersion is the version whose API is served.
const kubernetesVersion = "1.36.3+monoplane"

// listen opens the listeners that are configured, before anything else is done: a port that is taken is found out
// while nothing has happened. Clients that come early wait until serve.
func (c *Cluster) listen(ctx context.Context, p *parts) (err error) {
	if c.cfg.Listen != "" {
		if p.rest, err = c.open(ctx, c.cfg.Listen); err != nil {
			return err
		}
		c.address = p.rest.Addr().String()
	}
	if c.cfg.GRPCListen != "" {
		if p.grpc, err = c.open(ctx, c.cfg.GRPCListen); err != nil {
			return err
		}
		c.grpcAddress = p.grpc.Addr().String()
	}
	return nil
}

// serve writes the kubeconfig, and again when its certificate is renewed, and serves on the listeners.
func (c *Cluster) serve(running context.Context, p *parts) error {
	if p.bundle == nil {
		return nil
	}
	tokens := authn.NewTokens()
	tokens.Add(p.bundle.AdminToken(), authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup}})
	auth := authn.New(authn.Config{ClientCAs: p.bundle.ClientCAs, Tokens: tokens})
	limits, err := connectionLimits()
	if err != nil {
		return err
	}
	letIn := func(inner net.Listener) *gate.Listener {
		l := gate.Listen(inner, gate.Config{TLS: p.bundle.ServerTLS(), Known: auth.Known, Limits: limits, Logger: c.cfg.Logger})
		c.onStop(func(context.Context) error { return l.Close() })
		return l
	}
	at := pki.Endpoints{GRPC: c.grpcAddress}
	if c.address != "" {
		at.REST = "https://" + c.address
	}
	write := func() error { return p.bundle.WriteKubeconfig(c.Kubeconfig(), at) }
	if err := write(); err != nil {
		return err
	}
	c.run(running, "certificates", func(ctx context.Context) error { return p.bundle.KeepRenewed(ctx, write) })
	if p.rest != nil {
		if err := c.serveREST(p, auth, letIn); err != nil {
			return err
		}
	}
	if p.grpc != nil {
		c.serveGRPC(p, auth, letIn)
	}
	return nil
}

// open listens on an address. The listener is closed by Stop, if its server has not done so.
func (c *Cluster) open(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	c.onStop(func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return l, nil
}

func (c *Cluster) serveREST(p *parts, auth *authn.Authenticator, letIn func(net.Listener) *gate.Listener) error {
	handler, err := rest.New(rest.Config{
		Conn: p.inproc.Conn(inproc.PassValues(), inproc.WithContext(object.WithOwned)), Authenticate: auth.Middleware, Table: p.api.Table,
		Metrics: promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}), AuthorizePath: p.api.AuthorizePath,
		Live: c.checks[:1], Ready: c.checks, Version: kubernetesVersion, Logger: c.cfg.Logger,
	})
	if err != nil {
		return err
	}
	server := rest.NewServer(handler, p.bundle.ServerTLS(), c.cfg.Logger)
	listener := letIn(p.rest)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	c.onStop(func(ctx context.Context) error {
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
func (c *Cluster) serveGRPC(p *parts, auth *authn.Authenticator, letIn func(net.Listener) *gate.Listener) {
	healthServer := health.NewServer()
	options := append(gate.ServerOptions(auth.Tap),
		grpc.ForceServerCodecV2(grpccodec.Codec{}),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{owned}, p.api.UnaryInterceptors()...)...),
		grpc.ChainStreamInterceptor(p.api.StreamInterceptors()...),
	)
	listener := letIn(p.grpc)
	c.serveOne(c.newGRPC(p, healthServer, options), listener.Known())
	c.serveOne(c.newGRPC(p, healthServer, append(options, gate.ForUnknown())), listener.Unknown())
	c.onStop(func(context.Context) error { healthServer.Shutdown(); return nil })
}

// newGRPC returns a server with all services.
func (c *Cluster) newGRPC(p *parts, healthServer *health.Server, options []grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(options...)
	p.api.Register(server)
	nodev1.RegisterNodeStreamsServer(server, p.broker)
	schedulingv1.RegisterSchedulerStreamsServer(server, p.asking)
	adminv1.RegisterAdminServer(server, admin.New(administered{c}))
	healthpb.RegisterHealthServer(server, healthServer)
	reflection.Register(server)
	return server
}

// serveOne serves until the cluster stops.
func (c *Cluster) serveOne(server *grpc.Server, listener net.Listener) {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	c.onStop(func(ctx context.Context) error {
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

// grpcGrace is how long gRPC calls may go on once the cluster stops.
const grpcGrace = 200 * time.Millisecond

// listenNames returns the hosts of the listeners, for the server's certificate.
func listenNames(addresses ...string) []string {
	var names []string
	for _, a := range addresses {
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
