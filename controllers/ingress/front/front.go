package front

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/share"
)

// Bounds of what clients may hold.
const (
	headerTime  = 10 * time.Second
	restTime    = 75 * time.Second
	moveTime    = time.Minute
	headerBytes = 64 << 10
	connections = 8192
	requests    = 16384
	// endTime is how long requests may go on when the server is to end.
	endTime = 2 * time.Second
	bufSize = 32 << 10
)

// Config is what New takes. Find and Dial are required, and Certificate for a listener of HTTPS.
type Config struct {
	// Find returns the backend for a request, by its Host header and its path; false where no route fits. A nil backend
	// is one without endpoints.
	Find func(host, path string) (*Backend, bool)
	// Dial connects to an endpoint, over "tcp".
	Dial func(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error)
	// Certificate returns what is shown to a client of HTTPS.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MaxConnections bounds the connections to each listener, which clients share (package share); further ones are
	// reset. The 64th part of the file descriptors that the process may have by default, 8192 at most.
	MaxConnections int
	// MaxRequests bounds the requests that are served at once, which clients share; further ones are answered with 503.
	// Three 128ths of the descriptors by default, since each has a connection to an endpoint, 16384 at most.
	MaxRequests int
	// Stall is how long the body of a request or of an answer may stand still on the client's side; a minute by default.
	Stall time.Duration
	// Logger is told at level Debug what goes wrong with single requests; nil discards.
	Logger *slog.Logger
}

// Front is the server. It is an http.Handler, and Serve runs it on listeners.
type Front struct {
	cfg      Config
	balancer *balancer
	proxy    *httputil.ReverseProxy
	seats    *share.Room[netip.Addr]
	// open is held for reading by requests that are being served, upgraded connections included.
	open  sync.RWMutex
	ended bool
}

// New returns a server that has not begun.
func New(cfg Config) (*Front, error) {
	if cfg.Find == nil || cfg.Dial == nil {
		return nil, errors.New("front: Find or Dial is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxConnections == 0 {
		// Two listeners have half of the share. The connections to endpoints have the rest, those at rest an eighth.
		cfg.MaxConnections = min(connections, descriptors.Ingress.Count()/4)
	}
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, min(requests, descriptors.Ingress.Count()*3/8))
	cfg.Stall = cmp.Or(cfg.Stall, moveTime)
	f := &Front{cfg: cfg, balancer: newBalancer(cfg.Dial), seats: share.NewRoom[netip.Addr](cfg.MaxRequests)}
	f.proxy = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: f.balancer, ErrorHandler: f.failed, BufferPool: &buffers{},
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return f, nil
}

// rewrite makes what an endpoint gets of what a client has sent. The transport says where it goes.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = p.In.Host // replaced for each attempt
	for name := range p.Out.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
			delete(p.Out.Header, name)
		}
	}
	p.SetXForwarded()
}

// ServeHTTP serves one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.open.RLock()
	defer f.open.RUnlock()
	if f.ended {
		return
	}
	backend, ok := f.cfg.Find(r.Host, r.URL.Path)
	if !ok {
		answer(w, http.StatusNotFound, "no Ingress has a rule for this host and path")
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	client := share.Network(net.TCPAddrFromAddrPort(from))
	if !f.seats.Take(client, 1) {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "too many requests are being served")
		return
	}
	defer f.seats.Give(client, 1)
	control := http.NewResponseController(w)
	out := &pacing{ResponseWriter: w, control: control, limit: f.cfg.Stall}
	defer out.finish()
	r = r.WithContext(context.WithValue(r.Context(), backendKey{}, backend))
	if r.Body != nil && r.Body != http.NoBody {
		out.body = &paced{ReadCloser: r.Body, control: control, limit: f.cfg.Stall}
		r.Body = out.body
	}
	f.proxy.ServeHTTP(out, r)
}

// failed answers a request for which no endpoint has an answer.
func (f *Front) failed(w http.ResponseWriter, r *http.Request, err error) {
	var body *paced
	if p, ok := w.(*pacing); ok {
		body = p.body
	}
	var refused *dialError
	var timeout net.Error
	code, why := http.StatusBadGateway, "the endpoint does not answer as it should"
	switch {
	case errors.Is(body.failure(), os.ErrDeadlineExceeded): // which ends the request's context, too
		w.Header().Set("Connection", "close")
		code, why = http.StatusRequestTimeout, "the body of the request does not move on"
	case r.Context().Err() != nil:
		why = "the client has gone"
	case errors.Is(err, errNoEndpoint):
		code, why = http.StatusServiceUnavailable, "no endpoint of the Service is ready"
	case errors.As(err, &refused):
		why = "no endpoint of the Service can be connected to"
	case errors.As(err, &timeout) && timeout.Timeout():
		code, why = http.StatusGatewayTimeout, "the endpoint does not answer"
	}
	f.cfg.Logger.Debug("a request was not served", "host", r.Host, "path", r.URL.Path, "reason", why, "error", err)
	answer(w, code, why)
}

// answer writes an answer of our own.
func answer(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintf(w, "%d %s: %s\n", code, http.StatusText(code), why)
}

// Serve serves HTTP and HTTPS on listeners, of which either may be nil, until ctx ends, and closes them. Requests that
// are being served then have two seconds. It returns ctx's error, or that of a listener; nothing of a request is left,
// and the Front serves nothing any more.
func (f *Front) Serve(ctx context.Context, plain, secure net.Listener) error {
	group, running := errgroup.WithContext(ctx)
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var servers []*http.Server
	serve := func(l net.Listener, run func(*http.Server, net.Listener) error) {
		if l == nil {
			return
		}
		s := f.server(base)
		servers = append(servers, s)
		l = share.Listen(l, share.NewRoom[netip.Addr](f.cfg.MaxConnections), share.Network)
		group.Go(func() error { return run(s, l) })
	}
	serve(plain, func(s *http.Server, l net.Listener) error { return s.Serve(l) })
	serve(secure, func(s *http.Server, l net.Listener) error {
		s.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.cfg.Certificate}
		return s.ServeTLS(l, "", "")
	})
	group.Go(func() error {
		<-running.Done()
		grace, cancel := context.WithTimeout(base, endTime)
		defer cancel()
		var ending sync.WaitGroup
		for _, s := range servers {
			ending.Go(func() { _ = s.Shutdown(grace) }) // what goes on after that is closed
		}
		ending.Wait()
		end() // upgraded connections end with it, of which the servers know nothing
		for _, s := range servers {
			_ = s.Close()
		}
		return running.Err()
	})
	err := group.Wait()
	f.open.Lock() // all requests have ended
	f.ended = true
	f.open.Unlock()
	f.balancer.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (f *Front) server(base context.Context) *http.Server {
	return &http.Server{
		Handler: f, ReadHeaderTimeout: headerTime, IdleTimeout: restTime, MaxHeaderBytes: headerBytes,
		ErrorLog:    slog.NewLogLogger(f.cfg.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
	}
}

// buffers are kept for copying bodies.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufSize]byte); ok {
		return p[:]
	}
	return new([bufSize]byte)[:]
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) {
	if len(p) == bufSize {
		b.pool.Put((*[bufSize]byte)(p))
	}
}
