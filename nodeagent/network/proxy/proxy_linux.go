package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/network/dns"
	"monoplane.dev/nodeagent/network/services"
	"monoplane.dev/nodeagent/resolvconf"
	"monoplane.dev/object"
	"monoplane.dev/rules/endpoint"
)

const (
	// verifyEvery is the time between two looks at whether somebody else has changed the rules, retryAfter the wait after
	// a failure.
	verifyEvery = 10 * time.Second
	retryAfter  = time.Second

	byService = "service"
	// onMachine is the index of the Services that have to do with ports of the machine, which are all under one key: how
	// many others there are costs nothing.
	onMachine = "machine"
	zoneLabel = "topology.kubernetes.io/zone"
)

// Config is what a Proxy works with. Client, NodeName, NFTables, Packets and Listeners are required.
type Config struct {
	// Client acts as system:controller:nodenetwork.
	Client *client.Client
	// NodeName is the node whose network this is.
	NodeName string
	// ClusterDomain is the domain of the cluster's names; cluster.local when empty.
	ClusterDomain string

	// NFTables and Netfilter open connections in the node namespace, see services.Config.
	NFTables  func() (*nftables.Conn, error)
	Netfilter func() (*netlink.Conn, error)
	// PodRanges are what pods have their addresses from.
	PodRanges []netip.Prefix
	// Arrivals are addresses, one of each family at most, at which the node namespace takes what the kernel leads there
	// for an address of the machine: the first that the node has of the family.
	Arrivals []netip.Addr
	// API is where the API server answers in the node namespace, in each family. Without any, the endpoints of the
	// Service kubernetes count.
	API []netip.AddrPort

	// DNSService is the address of the Service kube-dns of namespace kube-system, which is made when it is missing.
	// Nothing is made when it is not valid.
	DNSService netip.Addr
	// Packets and Listeners are the sockets on which names are answered, each bound to an address of the node namespace.
	// Where the Service kube-dns has no selector, it leads to them.
	Packets   []net.PacketConn
	Listeners []net.Listener
	// Resolver says how other names are resolved; as the machine does it when nil.
	Resolver func() (resolvconf.Config, error)

	// Ports is told which ports of the machine lead to Services, at the start and whenever that changes, after the rules
	// have been made. It must not block. Who serves them says by Served which are. Nil for nobody.
	Ports func([]Port)
	// Own is told the machine's addresses, at which pods reach its ports by rules, at the start and whenever that may
	// have changed. Nil for nobody.
	Own func([]netip.Addr)
	// HealthListener listens on all addresses of the machine, at the port where the health of a Service is asked for
	// (spec.healthCheckNodePort). Nobody is answered when it is nil.
	HealthListener func(ctx context.Context, port uint16) (net.Listener, error)
	// Logger defaults to none.
	Logger *slog.Logger
}

// Proxy is the network's side of Services on a node.
type Proxy struct {
	cfg     Config
	applier *services.Applier
	zone    *dns.Zone
	dns     *dns.Server

	services   *cache.Cache[*corev1.Service]
	slices     *cache.Cache[*discoveryv1.EndpointSlice]
	namespaces *cache.Cache[*corev1.Namespace]
	nodes      *cache.Cache[*corev1.Node]

	mu    sync.Mutex
	dirty map[cache.Key]bool
	all   bool
	wake  chan struct{}

	// arrivals are those of services.Node. Only work changes them.
	arrivals map[netip.Addr]netip.Addr

	zoneName string
	// own are the machine's addresses when the node was looked at last.
	own []netip.Addr
	// lots are what Services of type LoadBalancer get; served and failed say what became of the ports of the machine.
	lots   map[cache.Key]lot
	served map[Port]error
	failed map[Port]failure

	// told has a token when there may be a status to write.
	told chan struct{}
	// unserved is what was told of ports, with the reasons. It belongs to tell.
	unserved map[unserved]string
	events   *record.Recorder
	ports    []Port
	health   *health
	// working is true since traffic has been carried, behind while changes cannot be carried out.
	working, behind atomic.Bool
}

// New returns a Proxy that has not begun.
func New(cfg Config) (*Proxy, error) {
	switch {
	case cfg.Client == nil || cfg.NodeName == "":
		return nil, errors.New("proxy: Client or NodeName is missing")
	case len(cfg.Packets) == 0 || len(cfg.Listeners) == 0:
		return nil, errors.New("proxy: Packets or Listeners are missing")
	}
	if cfg.ClusterDomain == "" {
		cfg.ClusterDomain = "cluster.local"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = cfg.Logger.With("node", cfg.NodeName)
	if cfg.Resolver == nil {
		cfg.Resolver = func() (resolvconf.Config, error) { return resolvconf.Read(resolvconf.System, resolvconf.Upstream) }
	}
	p := &Proxy{cfg: cfg, zone: dns.NewZone(cfg.ClusterDomain), dirty: map[cache.Key]bool{}, wake: make(chan struct{}, 1),
		failed: map[Port]failure{}, told: make(chan struct{}, 1)}
	p.events = record.New(record.Config{
		Events: cfg.Client.Events, Controller: "service-load-balancer", Instance: cfg.NodeName, Logger: cfg.Logger,
	})
	p.health = newHealth(&cfg, p.events, func() bool { return p.working.Load() && !p.behind.Load() })
	var err error
	p.applier, err = services.NewApplier(services.Config{
		NFTables: cfg.NFTables, Netfilter: cfg.Netfilter, Inside: cfg.PodRanges, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	if p.dns, err = dns.NewServer(dns.Config{Zone: p.zone, Resolver: cfg.Resolver, Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	p.watch()
	return p, nil
}

// watch makes the caches, and has what changes in them noted.
func (p *Proxy) watch() {
	api, logger := p.cfg.Client, p.cfg.Logger
	p.services = cache.New(cache.Config[*corev1.Service]{
		Source: cache.Watch(api.Services.Watch), Logger: logger,
		Indexes: map[string]func(*corev1.Service) []string{
			onMachine: func(s *corev1.Service) []string {
				if concernsMachine(s) {
					return []string{""}
				}
				return nil
			},
		},
	})
	p.services.AddHandler(onChange(func(s *corev1.Service) { p.touch(cache.KeyOf(s)) }))
	p.slices = cache.New(cache.Config[*discoveryv1.EndpointSlice]{
		Source: cache.Watch(api.EndpointSlices.Watch), Logger: logger,
		Indexes: map[string]func(*discoveryv1.EndpointSlice) []string{
			byService: func(s *discoveryv1.EndpointSlice) []string {
				if key, ok := serviceOf(s); ok {
					return []string{key.String()}
				}
				return nil
			},
		},
	})
	p.slices.AddHandler(onChange(func(s *discoveryv1.EndpointSlice) {
		if key, ok := serviceOf(s); ok {
			p.touch(key)
		}
	}))
	p.namespaces = cache.New(cache.Config[*corev1.Namespace]{Source: cache.Watch(api.Namespaces.Watch), Logger: logger})
	p.namespaces.AddHandler(cache.Handler[*corev1.Namespace]{
		OnAdd:    func(n *corev1.Namespace) { p.zone.SetNamespace(n.GetMetadata().GetName(), true) },
		OnDelete: func(n *corev1.Namespace) { p.zone.SetNamespace(n.GetMetadata().GetName(), false) },
	})
	p.nodes = cache.New(cache.Config[*corev1.Node]{
		Source: cache.Watch(api.Nodes.Watch), FieldSelector: "metadata.name=" + p.cfg.NodeName, Logger: logger,
	})
	p.nodes.AddHandler(onChange(func(*corev1.Node) { p.touchAll() }))
}

func (p *Proxy) servicesOnMachine() []*corev1.Service { return p.services.ByIndex(onMachine, "") }

// onChange returns a handler that hears of an object before and after each change.
func onChange[T object.Object](f func(T)) cache.Handler[T] {
	return cache.Handler[T]{
		OnAdd: f, OnDelete: f,
		OnUpdate: func(old, now T) {
			f(old)
			f(now)
		},
	}
}

func serviceOf(s *discoveryv1.EndpointSlice) (cache.Key, bool) {
	name := s.GetMetadata().GetLabels()[endpoint.ServiceName]
	return cache.Key{Namespace: s.GetMetadata().GetNamespace(), Name: name}, name != ""
}

func (p *Proxy) touch(key cache.Key) {
	p.mu.Lock()
	p.dirty[key] = true
	p.mu.Unlock()
	p.signal()
}

// touchAll has everything looked at again if the node has moved to another zone, or has other addresses.
func (p *Proxy) touchAll() {
	zone, own := "", []netip.Addr(nil)
	if n, ok := p.nodes.Get("", p.cfg.NodeName); ok {
		zone, own = n.GetMetadata().GetLabels()[zoneLabel], p.ownAddresses(n)
	}
	p.mu.Lock()
	changed := zone != p.zoneName || !slices.Equal(own, p.own)
	p.zoneName, p.own, p.all = zone, own, p.all || changed
	p.mu.Unlock()
	if changed {
		p.signal()
	}
}

func (p *Proxy) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns its error. The rules stay, so that connections go on.
func (p *Proxy) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.services.Run(ctx) })
	group.Go(func() error { return p.slices.Run(ctx) })
	group.Go(func() error { return p.namespaces.Run(ctx) })
	group.Go(func() error { return p.nodes.Run(ctx) })
	group.Go(func() error { return p.dns.Serve(ctx, p.cfg.Packets, p.cfg.Listeners) })
	group.Go(func() error { return p.work(ctx) })
	if p.cfg.Ports != nil {
		group.Go(func() error { return p.tell(ctx) })
	}
	if p.cfg.HealthListener != nil {
		group.Go(func() error { return p.health.run(ctx) })
	}
	if p.cfg.Ports != nil || p.cfg.HealthListener != nil {
		group.Go(func() error { return p.events.Run(ctx) })
	}
	if p.cfg.DNSService.IsValid() {
		group.Go(func() error { return p.keepDNSService(ctx) })
	}
	return group.Wait()
}

// work makes batches.
func (p *Proxy) work(ctx context.Context) error {
	for _, wait := range []func(context.Context) error{
		p.services.WaitForSync, p.slices.WaitForSync, p.namespaces.WaitForSync, p.nodes.WaitForSync,
	} {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.all = true
	p.mu.Unlock()
	verify := time.NewTicker(verifyEvery)
	defer verify.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
		case <-retry.C:
		case <-verify.C:
			if err := p.applier.Verify(ctx); err != nil {
				p.cfg.Logger.Error("Rules of Services could not be verified", "err", err)
			}
		}
		err := p.batch(ctx)
		p.behind.Store(err != nil)
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.Error("Traffic to Services could not be set up; it is tried again", "err", err)
			retry.Reset(retryAfter)
		}
	}
}

// item is a Service of a batch; service is nil when it is gone.
type item struct {
	key     cache.Key
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

// batch makes what has changed count: names go, rules change, names come.
func (p *Proxy) batch(ctx context.Context) error {
	var lots map[cache.Key]lot
	if p.cfg.Ports != nil {
		lots = p.draw()
	}
	p.mu.Lock()
	keys, all := p.dirty, p.all
	p.dirty, p.all = map[cache.Key]bool{}, false
	node := services.Node{Name: p.cfg.NodeName, Zone: p.zoneName, Standins: p.standins(),
		Own: p.own, Arrivals: p.arrivals}
	p.mu.Unlock()
	if all {
		if p.cfg.Own != nil {
			p.cfg.Own(node.Own)
		}
		for _, s := range p.services.List("", nil) {
			keys[cache.KeyOf(s)] = true
		}
	}
	if len(keys) == 0 && p.working.Load() {
		return nil
	}
	items := make([]item, 0, len(keys))
	changes := make([]services.Change, 0, len(keys))
	for key := range keys {
		it := item{key: key}
		change := services.Change{Service: key}
		if s, ok := p.services.Get(key.Namespace, key.Name); ok {
			it.service, it.slices = drawn(s, lots), p.slices.ByIndex(byService, key.String())
			of := node
			if len(s.GetSpec().GetSelector()) > 0 {
				of.Standins = nil // somebody serves it with pods
			}
			change.Rules = services.Compile(of, it.service, it.slices)
		} else {
			p.zone.Delete(key)
		}
		items, changes = append(items, it), append(changes, change)
	}
	if err := p.applier.Apply(ctx, changes); err != nil {
		p.mu.Lock()
		for key := range keys {
			p.dirty[key] = true
		}
		p.all = p.all || all
		p.mu.Unlock()
		return err
	}
	p.tellSoon()
	for _, it := range items {
		p.health.set(it.key, it.service, services.LocalReady(p.cfg.NodeName, it.slices))
		if it.service != nil {
			p.zone.Set(it.service, it.slices)
		}
	}
	p.zone.Open()
	p.working.Store(true)
	if p.cfg.Ports != nil {
		now := ports(drawnAll(p.servicesOnMachine(), lots), p.arrivals)
		if p.ports == nil || !slices.Equal(now, p.ports) {
			p.ports = append([]Port{}, now...)
			p.cfg.Ports(now)
		}
	}
	return nil
}

// standins says where the Services of the control plane are reached from the node namespace.
func (p *Proxy) standins() map[cache.Key]map[string][]netip.AddrPort {
	out := map[cache.Key]map[string][]netip.AddrPort{}
	if len(p.cfg.API) > 0 {
		out[cache.Key{Namespace: "default", Name: "kubernetes"}] = map[string][]netip.AddrPort{"https": p.cfg.API}
	}
	udp, tcp := []netip.AddrPort{}, []netip.AddrPort{}
	for _, c := range p.cfg.Packets {
		if a, ok := addrPort(c.LocalAddr()); ok {
			udp = append(udp, a)
		}
	}
	for _, l := range p.cfg.Listeners {
		if a, ok := addrPort(l.Addr()); ok {
			tcp = append(tcp, a)
		}
	}
	out[dnsService] = map[string][]netip.AddrPort{"dns": udp, "dns-tcp": tcp}
	return out
}

func addrPort(a net.Addr) (netip.AddrPort, bool) {
	at, err := netip.ParseAddrPort(a.String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err == nil && !at.Addr().IsUnspecified()
}
