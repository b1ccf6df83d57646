package front

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"monoplane.dev/internal/descriptors"
)

const (
	// mostTried is how many endpoints of a backend are tried for one request.
	mostTried = 3
	// dialTime bounds one attempt to connect to an endpoint.
	dialTime = 3 * time.Second
	// answerTime bounds the time from the end of a request to the header of the answer.
	answerTime = time.Minute
	// idleTime is how long a connection to an endpoint is kept without requests, and mostIdle how many of them for each
	// endpoint; mostIdleAll is for all together.
	idleTime    = 30 * time.Second
	mostIdle    = 64
	mostIdleAll = 1024
	// mostHeader bounds the header of an answer, in bytes.
	mostHeader = 256 << 10
)

// errNoEndpoint says that a backend has no endpoint that is ready.
var errNoEndpoint = errors.New("no endpoint is ready")

// dialError is a failure to connect: nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

type backendKey struct{}

// balancer sends requests to endpoints of the backend in their context.
type balancer struct{ http1, http2 *http.Transport }

// newBalancer returns a balancer that connects with dial.
func newBalancer(dial func(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error)) *balancer {
	transport := func(set func(*http.Protocols)) *http.Transport {
		t := &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				at, err := netip.ParseAddrPort(address)
				if err != nil {
					return nil, &dialError{err}
				}
				ctx, cancel := context.WithTimeout(ctx, dialTime)
				defer cancel()
				conn, err := dial(ctx, network, at)
				if err != nil {
					return nil, &dialError{err}
				}
				return conn, nil
			},
			Protocols: new(http.Protocols), DisableCompression: true, ResponseHeaderTimeout: answerTime,
			IdleConnTimeout:        idleTime,
			MaxIdleConns:           min(mostIdleAll, max(1, descriptors.Ingress.Count()/16)),
			MaxIdleConnsPerHost:    mostIdle,
			MaxResponseHeaderBytes: mostHeader, ExpectContinueTimeout: time.Second,
		}
		set(t.Protocols)
		return t
	}
	return &balancer{
		http1: transport(func(p *http.Protocols) { p.SetHTTP1(true) }),
		http2: transport(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
	}
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	backend, _ := r.Context().Value(backendKey{}).(*Backend)
	var tried []*target
	last := errNoEndpoint
	for len(tried) < mostTried {
		t, http2 := backend.pick(tried)
		if t == nil {
			break
		}
		attempt, at := r.WithContext(r.Context()), *r.URL
		at.Host = t.address
		attempt.URL = &at
		if r.Body != nil && r.Body != http.NoBody {
			// The transport closes the body of an attempt for which no connection comes about, and has read nothing of it
			// then. Who made the request closes it for good.
			attempt.Body = io.NopCloser(r.Body)
		}
		by := b.http1
		if http2 {
			by = b.http2
		}
		response, err := by.RoundTrip(attempt)
		if err == nil || !mayRepeat(r, err) || r.Context().Err() != nil {
			return response, err
		}
		t.failed()
		tried, last = append(tried, t), err
	}
	return nil, last
}

// mayRepeat says whether a request that has failed may go to another endpoint: nothing of it was sent, or the
// connection broke before an answer and it makes no difference how often the request is made. An endpoint that ends
// resets the connections that it has not accepted yet.
func mayRepeat(r *http.Request, err error) bool {
	var refused *dialError
	if errors.As(err, &refused) {
		return true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
	default:
		return false
	}
	broken := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
	return broken && (r.Body == nil || r.Body == http.NoBody)
}

// close lets go of the connections that are kept.
func (b *balancer) close() {
	b.http1.CloseIdleConnections()
	b.http2.CloseIdleConnections()
}
