package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"
)

// guard is the transport of one registry: wherever redirections and challenges lead, it makes no connections to
// addresses of this machine, unless the registry itself is there, and speaks HTTP only with those who may. It gives up
// who sends next to nothing.
type guard struct {
	host  string // of the registry, without the port
	plain bool   // HTTP may be spoken
	stall time.Duration
	next  *http.Transport
	// proxies are the addresses of proxies, which may be anywhere.
	proxies sync.Map
}

// The times of connections.
const (
	dialTimeout      = 15 * time.Second
	handshakeTimeout = 15 * time.Second
	idleTimeout      = 30 * time.Second
)

// leastProgress is how many bytes must come in the time in which a registry counts as stalled.
const leastProgress = 4 << 10

func newGuard(host string, plain bool, caFile string, stall time.Duration) (*guard, error) {
	g := &guard{host: host, plain: plain, stall: stall}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("certificates for registry %s: %w", host, err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificates for registry %s: %s holds none in PEM", host, caFile)
		}
	}
	g.next = &http.Transport{
		Proxy:                 g.proxy,
		DialContext:           g.dial,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   handshakeTimeout,
		ResponseHeaderTimeout: stall,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConnsPerHost:   4,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // the digest is that of what is sent
	}
	return g, nil
}

func (g *guard) proxy(req *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(req)
	if u != nil {
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
		}
		g.proxies.Store(net.JoinHostPort(u.Hostname(), port), true)
	}
	return u, err
}

func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTimeout}
	if _, isProxy := g.proxies.Load(addr); !isProxy && host != g.host && !isHere(ctx, g.host) {
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if ip, err := netip.ParseAddrPort(address); err != nil || ownAddress(ip.Addr()) {
				return fmt.Errorf("%w: registry %s leads to %s (%s), an address of this machine", ErrRefused, g.host, host,
					address)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, addr)
}

// isHere reports whether a host is this machine. One that cannot be found is not.
func isHere(ctx context.Context, host string) bool {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false
	}
	for _, ip := range ips {
		if ownAddress(ip) {
			return true
		}
	}
	return false
}

// ownAddress reports whether an address is one of this machine, or of its link, where clouds tell machines their
// secrets.
func ownAddress(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip {
			return true
		}
	}
	return false
}

// isLoopback reports whether a host's name says that it is on this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !g.plain {
		return nil, fmt.Errorf("%w: %s would be asked without TLS; a registry without it must be named in the configuration",
			ErrRefused, req.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	p := &progress{cancel: cancel, stall: g.stall, host: req.URL.Host}
	p.timer = time.AfterFunc(g.stall, p.stalled)
	resp, err := g.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		p.timer.Stop()
		if cause := context.Cause(ctx); cause != nil && req.Context().Err() == nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	p.body, p.ctx = resp.Body, ctx
	resp.Body = p
	return resp, nil
}

// progress is a body that must go on: its request is cancelled when next to nothing comes for too long.
type progress struct {
	ctx    context.Context
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	host   string
	since  int // bytes since the timer was set
}

func (p *progress) stalled() {
	p.cancel(fmt.Errorf("%w: %s sent less than %d bytes in %v", ErrUnavailable, p.host, leastProgress, p.stall))
}

// Read implements io.Reader.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if p.since += n; p.since >= leastProgress {
		p.since = 0
		p.timer.Reset(p.stall)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // a Reader's EOF is bare
		if cause := context.Cause(p.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer.
func (p *progress) Close() error {
	p.timer.Stop()
	err := p.body.Close()
	p.cancel(nil)
	return err
}
