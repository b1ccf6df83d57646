package monoplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/admin"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/claim"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/listen"
	"monoplane.dev/apiserver/local"
	"monoplane.dev/apiserver/nodestreams"
	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/schedulerstreams"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/apiserver/store/etcd/external"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/client"
	"monoplane.dev/client/inproc"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/dirlock"
	"monoplane.dev/internal/machinekey"
	"monoplane.dev/object"
)

// Start starts a cluster and returns when its API can be used; WaitReady waits for the rest. The cluster runs
// until Stop, whatever becomes of ctx. An error leaves nothing running.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := &Cluster{
		cfg: cfg, starting: make(chan struct{}, startingNodes), done: make(chan struct{}), emptying: newEmptying(),
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// kubernetesVersion is the version whose API is served.
const kubernetesVersion = "1.36.3+monoplane"

// kubeletVersion is what nodes say of their agents. Clients parse it, and compare it with that of the API: it is the
// same, with that of the program as a part of what semantic versions call the build.
func kubeletVersion(program string) string {
	return "v" + kubernetesVersion + "." + strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
			return r
		default:
			return '-'
		}
	}, program)
}

// startingNodes is how many nodes start at the same time: enough to keep the disk busy, without the memory that a
// thousand at once would take.
const startingNodes = 64

// parts is what start hands from step to step.
type parts struct {
	metrics *prometheus.Registry
	slis    *slis
	bundle  *pki.Bundle // nil without listeners
	// tokenKeys sign the tokens of service accounts, which tokens issues and bearers knows.
	tokenKeys *pki.TokenKeys
	tokens    *tokens.Authority
	bearers   *authn.Bearers
	api       *apiserver.Server
	broker    *nodestreams.Broker
	// usages says what the nodes use.
	usages *usages
	// asking reaches the schedulers.
	asking *schedulerstreams.Broker
	inproc *inproc.Server
	// front is the REST front, without who authenticates.
	front rest.Config
	// register puts all services on a server.
	register func(grpc.ServiceRegistrar)
	// machine is this machine's key; newMachine says that it was made in this start.
	machine    machinekey.Key
	newMachine bool
	// recorder is the one that simulated nodes share.
	recorder *record.Recorder
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.dir, err = datadir.Make(c.cfg.DataDir); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := dirlock.AcquireIn(c.dir)
	if err != nil {
		return err
	}
	c.onStop(func(context.Context) error { return lock.Release() })
	if c.cfg.Locked != nil {
		if err := c.cfg.Locked(); err != nil {
			return err
		}
	}
	c.onStop(func(context.Context) error {
		if c.cfg.Emptied != nil && c.stopErr == nil && c.isEmpty() {
			return c.cfg.Emptied()
		}
		return nil
	})
	if err := datadir.Sweep(c.cfg.DataDir); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	p := &parts{metrics: prometheus.NewRegistry(), slis: newSLIs()}
	p.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c.sockets, err = listen.Open(ctx, c.cfg.Listen, c.cfg.GRPCListen); err != nil {
		return err
	}
	c.onStop(func(context.Context) error { return c.sockets.Close() })
	if err := c.listenIngress(ctx); err != nil {
		return err
	}
	if err := c.openStore(ctx, p); err != nil {
		return err
	}
	if err := c.claim(ctx, p); err != nil {
		return err
	}
	if err := c.makeAPI(ctx, p); err != nil {
		return err
	}
	// The components outlive ctx, which bounds the start only.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.components = cancel
	c.group, running = errgroup.WithContext(running)
	c.running = running
	c.run(running, "keys of tokens", p.tokenKeys.KeepRotated)
	if err := c.startComponents(ctx, running, p); err != nil {
		return err
	}
	if err := c.serve(ctx, running, p); err != nil {
		return err
	}
	c.group.Go(func() error { return c.watchStore(running) })
	return nil
}

// openStore opens the store and, at the same time, makes the certificates and the machine's key.
func (c *Cluster) openStore(ctx context.Context, p *parts) error {
	if len(c.cfg.EtcdEndpoints) == 0 {
		dir, err := c.dir.Make(datadir.Etcd)
		if err == nil {
			err = dir.CheckTree(-1) // etcd opens its files by itself
		}
		if err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	var g errgroup.Group
	g.Go(func() error { return c.identify(p) })
	g.Go(func() (err error) {
		path := filepath.Join(c.cfg.DataDir, "pki")
		if c.sockets.Any() {
			names := append(c.sockets.Names(), c.serviceNames()...)
			p.bundle, err = pki.Ensure(path, pki.Options{Names: names, Logger: c.cfg.Logger})
			if err != nil {
				return err
			}
		}
		p.tokenKeys, err = pki.EnsureTokenKeys(path, pki.Options{Logger: c.cfg.Logger})
		return err
	})
	g.Go(func() (err error) {
		c.store, err = store.Open(ctx, store.Config{
			Connect: c.cfg.etcd(), Collections: c.cfg.collections(),
			Keys:   func(used bool) (*seal.Keys, error) { return seal.Ensure(c.dir, used) },
			Logger: c.cfg.Logger, Registerer: p.metrics, OnMutation: c.cfg.onMutation,
		})
		return err
	})
	err := g.Wait()
	if c.store != nil {
		c.onStop(func(context.Context) error { return c.store.Close() })
	}
	return err
}

// etcd leads to the etcd that the configuration names, or to that of the data directory.
func (cfg Config) etcd() etcd.Connect {
	if len(cfg.EtcdEndpoints) > 0 {
		return external.Connect(external.Config{
			Endpoints: cfg.EtcdEndpoints, TLS: cfg.EtcdTLS, Maintain: cfg.EtcdMaintenance,
		})
	}
	return embedded.Connect(embedded.Config{
		Dir: filepath.Join(cfg.DataDir, datadir.Etcd), Logger: cfg.Logger, UnsafeNoFsync: cfg.UnsafeNoFsync,
	})
}

// identify finds out which machine this is. A copy forgets how the original was reached.
func (c *Cluster) identify(p *parts) (err error) {
	if p.machine, p.newMachine, err = machinekey.Ensure(c.dir); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if p.newMachine || !c.sockets.Any() {
		return c.dir.Remove(datadir.Kubeconfig)
	}
	return nil
}

// claim finds out which of the node names are this machine's.
func (c *Cluster) claim(ctx context.Context, p *parts) error {
	key, refused, err := claim.Names(ctx, claim.Config{
		Store: c.store, Dir: c.dir, Key: p.machine, Fresh: p.newMachine, Nodes: c.cfg.nodeNames(), Logger: c.cfg.Logger,
		Simulated: c.cfg.Runtime.Simulated(), Shared: len(c.cfg.EtcdEndpoints) > 0, OriginalDead: c.cfg.ConfirmOriginalDead,
	})
	if err != nil {
		return err
	}
	p.machine, c.owner = key, key.Owner
	for _, r := range refused {
		c.refused = append(c.refused, fmt.Errorf(
			"node %s is refused: %w, whose pods may still run; of the data directory %s: %s",
			r.Node, ErrNodeRefused, c.cfg.DataDir, r.Why))
		c.refusedNodes = append(c.refusedNodes, r.Node)
	}
	return nil
}

// collections returns what is stored, with the bounds that cfg sets.
func (cfg Config) collections() []store.Collection {
	list := apiserver.Collections()
	for i := range list {
		if list[i].Kind == corev1.EventKind {
			list[i].Max = max(cfg.MaxEvents, 0)
		}
	}
	return list
}

// descriptorsOfCall is how many file descriptors a command that somebody runs takes, a connection to the shim and both
// ends of three pipes, and one to spare. Logs and port-forward take fewer.
const descriptorsOfCall = 8

// maxCalls is how many of these a node serves at once.
func (c *Cluster) maxCalls() int {
	n := descriptors.Streams.Count() / descriptorsOfCall
	if !c.cfg.Runtime.Simulated() {
		n /= max(1, c.cfg.Nodes)
	}
	return min(nodestreams.MaxCalls, max(1, n))
}

// makeAPI puts the services on the in-process server.
func (c *Cluster) makeAPI(ctx context.Context, p *parts) error {
	p.broker = nodestreams.New(nodestreams.Config{
		Machine:  func(ctx context.Context, node string) (string, bool, error) { return claim.Machine(ctx, c.store, node) },
		MaxCalls: c.maxCalls(), Shared: len(c.cfg.EtcdEndpoints) > 0, Logger: c.cfg.Logger,
	})
	p.usages = &usages{streams: p.broker}
	p.asking = schedulerstreams.New(schedulerstreams.Config{Logger: c.cfg.Logger})
	issuer := tokens.New(tokens.Config{Keys: p.tokenKeys, Objects: c.store, Rand: rand.Reader})
	p.bearers = &authn.Bearers{Tokens: authn.NewTokens(), Accounts: issuer}
	if p.bundle != nil {
		p.bearers.Tokens.Add(p.bundle.AdminToken(), authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup}})
	}
	p.tokens = issuer
	trail, err := c.openAudit(p.metrics)
	if err != nil {
		return err
	}
	p.api, err = apiserver.New(ctx, apiserver.Config{
		Store: c.store, Logs: p.broker, Streams: p.broker, Usage: p.usages, Documents: p.broker, Scheduler: p.asking,
		Controllers: controllers.Roles(), Tokens: issuer, Bearers: p.bearers, Logger: c.cfg.Logger,
		Registerer: p.metrics, Services: c.cfg.services, Audit: trail, PodNetwork: c.hasNetwork(),
		Ingress: c.cfg.Ingress.on(),
		PodSecurity: security.Config{
			Defaults: c.cfg.PodSecurity.Defaults, Namespaces: c.cfg.PodSecurity.ExemptNamespaces,
			Users: c.cfg.PodSecurity.ExemptUsers, RuntimeClasses: c.cfg.PodSecurity.ExemptRuntimeClasses,
		},
	})
	if err != nil {
		return err
	}
	p.inproc = inproc.NewServer(append(p.api.UnaryInterceptors(), authn.Unary),
		append(p.api.StreamInterceptors(), authn.Stream))
	c.onStop(func(context.Context) error { p.inproc.Stop(); return nil })
	p.register = func(r grpc.ServiceRegistrar) {
		p.api.Register(r)
		nodev1rpc.RegisterNodeStreamsServer(r, p.broker)
		schedulingv1rpc.RegisterSchedulerStreamsServer(r, p.asking)
		adminv1rpc.RegisterAdminServer(r, admin.New(administered{c}))
	}
	p.register(p.inproc)

	admin := &authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup, authn.AuthenticatedGroup}}
	c.shared = p.clientOf(admin)
	c.client = p.clientOf(admin, inproc.WithClone(), inproc.WithContext(object.WithOwned))
	c.checks = append(c.checks, rest.Check{Name: "store", Run: p.api.Ready})
	p.front = rest.Config{
		Conn:  p.inproc.Conn(inproc.PassValues(), inproc.WithContext(object.WithOwned)),
		Audit: trail, Limits: fair.New(fair.Config{}),
		Live:   []rest.Check{{Name: "store", Run: p.api.Live}},
		OpenID: p.tokens, Meter: p.api.Meter(), Table: p.api.Table, AuthorizePath: p.api.AuthorizePath,
		Paths: c.paths(p), Health: p.slis.observe,
		Version: kubernetesVersion, Logger: c.cfg.Logger,
	}
	c.local = local.New(local.Config{Logger: c.cfg.Logger, Front: func() (*rest.Handler, error) {
		cfg := p.front
		cfg.Ready = c.checks
		cfg.Authenticate = authn.New(authn.Config{
			Bearers: p.bearers, Impersonate: p.api.Impersonate, Default: admin,
		}).Authenticate
		return rest.New(cfg)
	}})
	c.onStop(c.local.Shutdown)
	return nil
}

// clientOf returns in-process clients that act as u.
func (p *parts) clientOf(u *authn.User, opts ...inproc.Option) *client.Client {
	return client.New(p.connOf(u, opts...))
}

// connOf returns an in-process connection of u.
func (p *parts) connOf(u *authn.User, opts ...inproc.Option) grpc.ClientConnInterface {
	identity := inproc.WithContext(func(ctx context.Context) context.Context { return authn.WithUser(ctx, u) })
	return p.inproc.Conn(append(opts, identity)...)
}

// serve serves the API on the sockets, if there are any.
func (c *Cluster) serve(ctx, running context.Context, p *parts) error {
	if p.bundle == nil {
		return nil
	}
	front := p.front
	front.Ready = c.checks
	server, err := c.sockets.Serve(ctx, listen.Config{
		Bundle: p.bundle, Bearers: p.bearers, Impersonate: p.api.Impersonate,
		Kubeconfig: c.Kubeconfig(), Register: p.register, Logger: c.cfg.Logger,
		Unary: p.api.UnaryInterceptors(), Stream: p.api.StreamInterceptors(),
		REST: front, Limits: front.Limits,
	})
	if err != nil {
		return err
	}
	c.onStop(server.Shutdown)
	c.run(running, "certificates", server.KeepRenewed)
	return nil
}

// watchStore ends the cluster when the store has failed.
func (c *Cluster) watchStore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.store.Failed():
		err := fmt.Errorf("the store has failed: %w", c.store.Err())
		c.finish(err)
		return err
	}
}
