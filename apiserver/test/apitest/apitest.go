// Package apitest runs the real API server for tests, in the same process and without listeners: the services and all
// their rules over a store with an etcd of its own that does not wait for the disk.
//
// What it guarantees: a client sees what it would see of a cluster, its identity and the rights that go with it
// included. When somebody changes an object in place that the store holds, the test fails, at the next change of that
// kind or at the end. A server starts in ten milliseconds, works inside a testing/synctest bubble, and leaves nothing
// behind when the test has ended: in a bubble, the end of the bubble shows that.
//
// Tests put faults between clients and server: React makes calls fail or wait, or looks at them, After does so with
// their answers, Cut ends watches, and Expire makes them start over. They come behind authorization, where the
// services themselves would fail.
package apitest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"os"
	"testing"

	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/apiserver/store/etcd/external"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/client"
	"monoplane.dev/client/inproc"
	"monoplane.dev/controllers"
	"monoplane.dev/object/builtin"
)

// Config is what a test may want of its server. Its zero value is what most want.
type Config struct {
	// Dir is the directory of the server's etcd; a new one if it is empty.
	Dir string
	// Endpoints are the client URLs of an etcd that is used instead.
	Endpoints []string
	// Store is how the store is opened, but for its etcd. Its resources have a default.
	Store store.Config
	// API is how the services are made. With a store, they use that, which whoever opened it closes; then the above does
	// not count.
	API apiserver.Config
	// Durable has the store keep its promises over a power cut and not look for mutations. Benchmarks want that.
	Durable bool
	// NoAccounts leaves namespaces without the service account that pods name when they name none. A controller gives
	// them one in a cluster; here they have it at once.
	NoAccounts bool
}

// Server is a running API server.
type Server struct {
	// API and Store are for what no client can do.
	API   *apiserver.Server
	Store *store.Store

	// Inproc has the services, and takes further ones.
	Inproc *inproc.Server
	// Bearers knows the tokens that the server issues, which Tokens makes.
	Bearers *authn.Bearers
	Tokens  *tokens.Authority

	owned bool // the store
	*faults
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, Config{})
}

// StartWith is Start for a test that wants something of its server.
func StartWith(t testing.TB, cfg Config) *Server {
	t.Helper()
	if cfg.Dir == "" && len(cfg.Endpoints) == 0 {
		cfg.Dir = t.TempDir()
	}
	if cfg.Store.OnMutation == nil && !cfg.Durable {
		cfg.Store.OnMutation = func(err error) { t.Error(err) }
	}
	s, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Example runs a server for an example, which has no test that ends: stop ends it. Both panic when they fail.
func Example() (s *Server, stop func()) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "apitest")
	must(err)
	s, err = open(Config{Dir: dir})
	must(err)
	return s, func() { must(errors.Join(s.stop(), os.RemoveAll(dir))) }
}

func open(cfg Config) (*Server, error) {
	ctx := context.Background()
	if cfg.Store.Collections == nil {
		cfg.Store.Collections = apiserver.Collections()
	}
	if cfg.API.Controllers == nil {
		cfg.API.Controllers = controllers.Roles()
	}
	cfg.Store.Connect = embedded.Connect(embedded.Config{Dir: cfg.Dir, UnsafeNoFsync: !cfg.Durable})
	if len(cfg.Endpoints) > 0 {
		cfg.Store.Connect = external.Connect(external.Config{Endpoints: cfg.Endpoints})
	}
	owned := cfg.API.Store == nil
	var err error
	if owned {
		if cfg.API.Store, err = store.Open(ctx, cfg.Store); err != nil {
			return nil, err
		}
	}
	s := &Server{Store: cfg.API.Store, owned: owned, faults: newFaults(cfg.API.Store)}
	if cfg.API.Tokens == nil {
		if cfg.API.Tokens, err = issuer(cfg.API); err != nil {
			return nil, errors.Join(err, s.closeStore())
		}
		cfg.API.Bearers = &authn.Bearers{Accounts: cfg.API.Tokens}
	}
	s.Bearers, s.Tokens = cfg.API.Bearers, cfg.API.Tokens
	if s.API, err = apiserver.New(ctx, cfg.API); err != nil {
		return nil, errors.Join(err, s.closeStore())
	}
	unary := append(s.API.UnaryInterceptors(), s.unary)
	if !cfg.NoAccounts {
		for _, namespace := range builtin.Namespaces() {
			if err := s.account(ctx, namespace); err != nil {
				return nil, errors.Join(err, s.closeStore())
			}
		}
		unary = append(unary, s.withAccount)
	}
	s.Inproc = inproc.NewServer(unary, append(s.API.StreamInterceptors(), s.stream))
	s.API.Register(s.Inproc)
	return s, nil
}

// key is the only key of tokens.
type key struct{ *ecdsa.PrivateKey }

func (k key) Signing() *ecdsa.PrivateKey    { return k.PrivateKey }
func (k key) Verifying() []*ecdsa.PublicKey { return []*ecdsa.PublicKey{&k.PublicKey} }
func (k key) All() []*ecdsa.PublicKey       { return k.Verifying() }

// issuer issues tokens with a key of its own.
func issuer(api apiserver.Config) (*tokens.Authority, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return tokens.New(tokens.Config{Keys: key{private}, Objects: api.Store, Clock: api.Clock, Rand: rand.Reader}), nil
}

// withAccount gives a namespace that was created its default service account.
func (s *Server) withAccount(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	answer, err := handler(ctx, req)
	if ns, ok := req.(*corev1rpc.CreateNamespaceRequest); ok && err == nil && len(ns.GetDryRun()) == 0 &&
		info.FullMethod == corev1rpc.Namespaces_Create_FullMethodName {
		err = s.account(ctx, answer.(*corev1.Namespace).GetMetadata().GetName())
	}
	return answer, err
}

// account puts the default service account of a namespace into the store, unless it is there. It gives its pods no
// tokens: what tests make stays as they made it, and waits for no certificate, which another controller publishes.
func (s *Server) account(ctx context.Context, namespace string) error {
	const name = "default"
	none := false
	_, err := s.Store.Commit(ctx, store.Txn{Ops: []store.Op{{
		Key: store.Key{Kind: corev1.ServiceAccountKind, Namespace: namespace, Name: name},
		Object: &corev1.ServiceAccount{
			Metadata:                     &metav1.ObjectMeta{Namespace: namespace, Name: name, Uid: "default-of-" + namespace},
			AutomountServiceAccountToken: &none,
		},
	}}})
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		return nil
	}
	return err
}

func (s *Server) stop() error {
	s.Inproc.Stop()
	return s.closeStore()
}

func (s *Server) closeStore() error {
	if !s.owned {
		return nil
	}
	return s.Store.Close()
}

// Stop stops the server before the test ends, which tells what went wrong while it did.
func (s *Server) Stop() { _ = s.stop() }

// Conn returns a connection of a user; of nobody for nil, or of whom an option says.
func (s *Server) Conn(u *authn.User, opts ...inproc.Option) grpc.ClientConnInterface {
	if u != nil {
		opts = append(opts, inproc.WithContext(func(ctx context.Context) context.Context { return authn.WithUser(ctx, u) }))
	}
	return s.Inproc.Conn(opts...)
}

// As returns clients of a user.
func (s *Server) As(name string, groups ...string) *client.Client {
	return client.New(s.Conn(User(name, groups...)))
}

// Admin returns clients of the administrator.
func (s *Server) Admin() *client.Client { return s.As(authn.AdminName, authn.AdminsGroup) }

// Agent returns clients of the agent of a node.
func (s *Server) Agent(node string) *client.Client {
	return s.As(authn.NodePrefix+node, authn.NodesGroup)
}

// Scheduler returns clients of the scheduler.
func (s *Server) Scheduler() *client.Client { return s.As(authn.SchedulerName) }

// Controller returns clients of a controller.
func (s *Server) Controller(name string) *client.Client { return s.As(authn.ControllerPrefix + name) }

// User returns a user whose credentials are their own.
func User(name string, groups ...string) *authn.User {
	return &authn.User{Name: name, Groups: groups, UID: name}
}

// Namespaces creates namespaces.
func (s *Server) Namespaces(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name}}
		if _, err := s.Admin().Namespaces.Create(t.Context(), &corev1rpc.CreateNamespaceRequest{Object: ns}); err != nil {
			t.Fatal(err)
		}
	}
}
