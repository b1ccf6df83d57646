package clientgo_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monoplane.dev"
)

// client-go makes who reports an error wait until a millisecond after the one before, the first after the start of the
// program: in a bubble, whose time begins in 2000, that is decades away.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil //nolint:reassign // what the variable is there for
	m.Run()
}

// server is a cluster that can be restarted, and the way to it, which can be cut. Between two clusters nobody gets
// through.
type server struct {
	t    *testing.T
	dir  string
	mu   sync.Mutex
	now  *monoplane.Cluster
	open map[*body]bool
}

var errDown = errors.New("dial tcp: connection refused")

// start starts a cluster with simulated nodes; the end of the test stops it.
func start(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), open: make(map[*body]bool)}
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *server) up() {
	s.t.Helper()
	c, err := monoplane.Start(s.t.Context(), monoplane.Config{
		DataDir: s.dir, Runtime: monoplane.FakeRuntime(), UnsafeNoFsync: true, NodeName: "node",
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.WaitReady(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = c
}

func (s *server) down() {
	s.mu.Lock()
	c := s.now
	s.now = nil
	s.mu.Unlock()
	if c == nil {
		return
	}
	if err := c.Stop(context.Background()); err != nil {
		s.t.Errorf("stop: %v", err)
	}
}

func (s *server) restart() {
	s.t.Helper()
	s.down()
	s.up()
}

// cut ends all answers that are still being read.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.open {
		b.cancel(io.ErrUnexpectedEOF)
	}
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	c := s.now
	s.mu.Unlock()
	if c == nil {
		return nil, errDown
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	res, err := c.Transport().RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(err)
		return nil, err
	}
	b := &body{ReadCloser: res.Body, server: s, cancel: cancel}
	res.Body = b
	s.mu.Lock()
	s.open[b] = true
	s.mu.Unlock()
	return res, nil
}

// body is an answer that is being read.
type body struct {
	io.ReadCloser
	server *server
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	b.server.mu.Lock()
	delete(b.server.open, b)
	b.server.mu.Unlock()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// config returns what client-go is told, with or without protobuf. Nothing slows it down.
func (s *server) config(protobuf bool) *rest.Config {
	c := &rest.Config{Host: "http://monoplane", Transport: s, QPS: -1, WarningHandler: rest.NoWarnings{}}
	if protobuf {
		c.ContentType = runtime.ContentTypeProtobuf
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + ",application/json"
	}
	return c
}

func (s *server) client(protobuf bool) *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(s.config(protobuf))
}
