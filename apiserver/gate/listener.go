package gate

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Config is what Listen needs.
type Config struct {
	// TLS is the server's configuration. Required.
	TLS *tls.Config
	// Known says whether a connection's client certificate shows who the client is; nil when certificates never do.
	Known func(*tls.ConnectionState) bool
	// Limits bound the connections.
	Limits Limits
	// Logger is told what keeps connections from being accepted. Required.
	Logger *slog.Logger
}

// Listener accepts connections and makes their TLS handshakes. It is safe for concurrent use. Make one with Listen.
type Listener struct {
	cfg   Config
	inner net.Listener
	// known and unknown have connections whose handshake is over, by whether their clients are.
	known, unknown chan *tls.Conn
	// changed has an element when there may be room.
	changed chan struct{}
	// ctx ends with the listener.
	ctx   context.Context
	close context.CancelFunc
	// running are the goroutines of the listener.
	running sync.WaitGroup

	mu   sync.Mutex
	open int
	// waiting are the unauthenticated connections, oldest first.
	waiting   list.List
	addresses map[netip.Prefix]address
}

// address counts the connections of one remote address.
type address struct{ all, unauthenticated int }

var _ net.Listener = (*Listener)(nil)

// Listen begins to accept from inner, which it closes with itself.
func Listen(inner net.Listener, cfg Config) *Listener {
	cfg.Limits.complete()
	l := &Listener{
		cfg: cfg, inner: inner, known: make(chan *tls.Conn), unknown: make(chan *tls.Conn), changed: make(chan struct{}, 1),
		addresses: make(map[netip.Prefix]address),
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	l.running.Add(1)
	go l.run()
	return l
}

// Accept returns the next connection, a *tls.Conn whose handshake is over.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.known:
		return c, nil
	case c := <-l.unknown:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Known returns a listener that accepts only connections whose client the handshake has shown, Unknown one for the
// others. Closing them closes nothing else. Who uses one of them uses both, and not Accept.
func (l *Listener) Known() net.Listener { return &part{l, l.known, make(chan struct{}), sync.Once{}} }

// Unknown returns a listener for the connections that Known does not accept.
func (l *Listener) Unknown() net.Listener {
	return &part{l, l.unknown, make(chan struct{}), sync.Once{}}
}

// part accepts some of a listener's connections.
type part struct {
	*Listener
	conns  chan *tls.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *part) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *part) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close ends the listener and the handshakes that are going on. Connections that Accept has returned go on.
func (l *Listener) Close() error {
	l.close()
	err := l.inner.Close()
	l.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// The pauses after an error of accept: they grow from the first to the last, and the error is told at most once in
// quietFor.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
	quietFor   = time.Minute
)

// run accepts until the listener is closed. No other error ends it: descriptors may be free again in a moment.
func (l *Listener) run() {
	defer l.running.Done()
	pause := firstPause
	var told time.Time
	for l.ctx.Err() == nil {
		raw, err := l.inner.Accept()
		switch {
		case err == nil:
			pause = firstPause
			l.begin(raw)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		if now := time.Now(); told.IsZero() || now.Sub(told) >= quietFor {
			told = now
			l.cfg.Logger.Warn("cannot accept connections; trying again", "address", l.inner.Addr().String(), "error", err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-l.ctx.Done():
		}
	}
}

// begin makes room for a connection and starts its handshake.
func (l *Listener) begin(raw net.Conn) {
	c := newConn(l, raw)
	if !l.admit(c) {
		_ = raw.Close()
		return
	}
	l.running.Add(1)
	go func() {
		defer l.running.Done()
		l.handshake(c)
	}()
}

// handshake makes the TLS handshake and hands the connection to Accept.
func (l *Listener) handshake(c *Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Limits.HandshakeTimeout)
	defer cancel()
	conn := tls.Server(c, l.cfg.TLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		// What a client alone can bring about (a port scan, a health check over TCP, a certificate that it does not trust)
		// is no news for the operator.
		l.cfg.Logger.Debug("no TLS handshake", "peer", c.RemoteAddr().String(), "error", err)
		var wrong tls.RecordHeaderError
		if errors.As(err, &wrong) && wrong.Conn != nil && isHTTP(wrong.RecordHeader) {
			_, _ = c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"))
		}
		_ = c.Close()
		return
	}
	state := conn.ConnectionState()
	if len(state.PeerCertificates) > 0 && l.cfg.Known != nil && l.cfg.Known(&state) {
		c.Authenticated()
	}
	to := l.unknown
	if c.IsAuthenticated() {
		to = l.known
	}
	select {
	case to <- conn:
	case <-l.ctx.Done():
		_ = c.Close()
	}
}

// isHTTP says whether the first bytes of a connection are a request without TLS, whose sender deserves a word.
func isHTTP(first [5]byte) bool {
	switch string(first[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	default:
		return false
	}
}
