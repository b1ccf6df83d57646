package histories

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"testing"

	"k8s.io/client-go/rest"

	"monoplane.dev"
	"monoplane.dev/apiserver/authn"
	front "monoplane.dev/apiserver/rest"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"
)

// reach serves the REST API of a cluster over pipes, so that its clients live in virtual time as it does, and returns
// how to reach it as its administrator. Whoever impersonates somebody is that user, a node's agent.
func reach(t *testing.T, c *monoplane.Cluster) *rest.Config {
	t.Helper()
	services := servicesOf(c)
	handler, err := front.New(front.Config{
		Conn:    services.Conn(inproc.PassValues(), inproc.WithContext(object.WithOwned)),
		Version: "1.36.3+monoplane", Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(_ http.ResponseWriter, r *http.Request) *http.Request {
			u := &authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup, authn.AuthenticatedGroup}}
			if name := r.Header.Get("Impersonate-User"); name != "" {
				u = &authn.User{Name: name, Groups: []string{authn.NodesGroup, authn.AuthenticatedGroup}}
			}
			return r.WithContext(authn.WithUser(r.Context(), u))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	pipes := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler} //nolint:gosec // clients are the test's own
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipes) }()
	transport := &http.Transport{DialContext: pipes.dial, MaxIdleConnsPerHost: 100}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		handler.Close()
		if err := errors.Join(server.Close(), server.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &rest.Config{Host: "http://monoplane", Transport: transport, QPS: -1}
}

// servicesOf returns the services of a cluster, which it shows only through clients of one user. The front needs them
// for many, and a cluster without listeners has no front.
func servicesOf(c *monoplane.Cluster) *inproc.Server {
	field := reflect.ValueOf(c.Client().Conn()).Elem().FieldByName("server")
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Interface().(*inproc.Server)
}

// pipes is a listener that is called through memory.
type pipes struct {
	calls  chan net.Conn
	closed chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.calls <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept returns the next call.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the calls.
func (p *pipes) Close() error { close(p.closed); return nil }

// Addr says that there is no network.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }
