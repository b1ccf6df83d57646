// Package local serves the REST API to programs in the same process, without a socket: an http.RoundTripper whose
// connections are buffers, and whose server is a front like the one on the network, with all that HTTP can: watches,
// upgraded connections, deadlines. Its goroutines, timers and channels belong to who made it and to who asks, so that
// everything works in virtual time (testing/synctest); before the first request there are only channels.
//
// Use: make a Server with New, give its Transport to clients, end it with Shutdown.
package local

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"monoplane.dev/apiserver/gate"
	"monoplane.dev/apiserver/rest"
)

// ErrStopped is the error of requests after Shutdown.
var ErrStopped = errors.New("the cluster has been stopped")

// Config is what New needs.
type Config struct {
	// Front makes the handler of all requests, when the first one comes.
	Front func() (*rest.Handler, error)
	// Logger gets what net/http has to say.
	Logger *slog.Logger
}

// Server answers the requests of its Transport. It is safe for concurrent use.
type Server struct {
	cfg       Config
	transport *http.Transport
	// accept hands connections to the server, until stopped is closed.
	accept  chan net.Conn
	stopped chan struct{}

	mu      sync.Mutex
	closed  bool
	handler *rest.Handler // nil before the first request
	server  *http.Server
	ended   chan error
}

// New returns a Server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, accept: make(chan net.Conn), stopped: make(chan struct{}), ended: make(chan error, 1)}
	s.transport = &http.Transport{
		DialContext: s.dial,
		// Whatever the scheme of a client's address, nobody else can read what goes through a buffer of this process.
		DialTLSContext:      s.dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: gate.MaxStreams,
		IdleConnTimeout:     gate.IdleTimeout / 2, // before the server closes it
	}
	return s
}

// Transport returns what carries requests to the API, whatever host and scheme they name. It keeps to HTTP/1.1, so
// that connections can be upgraded, with one for each request at a time.
func (s *Server) Transport() http.RoundTripper { return s.transport }

// dial connects to the server, which begins with the first connection.
func (s *Server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	client, server := pipe()
	select {
	case s.accept <- server:
		return client, nil
	case <-s.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrStopped
	case s.server != nil:
		return nil
	}
	handler, err := s.cfg.Front()
	if err != nil {
		return err
	}
	s.handler, s.server = handler, rest.NewServer(handler, nil, s.cfg.Logger)
	go func() { s.ended <- s.server.Serve(listener{s}) }()
	return nil
}

// Shutdown ends streams, lets other requests finish until ctx ends, and closes all connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed || s.server == nil {
		return nil
	}
	s.handler.Close()
	// A connection on which no request has come yet is not idle to the server before five seconds have passed. The
	// transport makes such, when another one becomes free for the request.
	s.transport.CloseIdleConnections()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// listener is where the server gets its connections from.
type listener struct{ *Server }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.stopped:
		return nil, net.ErrClosed
	}
}

// Close is called once, by the server.
func (l listener) Close() error {
	close(l.stopped)
	return nil
}

func (l listener) Addr() net.Addr { return address{} }
