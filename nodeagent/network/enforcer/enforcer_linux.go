package enforcer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/policies"
	"monoplane.dev/object"
	"monoplane.dev/rules/phase"
)

const (
	// verifyEvery is the time between two looks at whether somebody else has changed the rules, retryAfter the wait after
	// a failure.
	verifyEvery = 10 * time.Second
	retryAfter  = time.Second
	// mostWait bounds how long a pod waits until policies are known. It is tried again by who starts it.
	mostWait = 10 * time.Second
)

// ErrUnknown says that it is not known yet which policies there are.
var ErrUnknown = errors.New("it is not known yet which NetworkPolicies there are")

// Sandbox is a pod that is being connected.
type Sandbox struct {
	// ID tells it from all others.
	ID string
	// Namespace, Name, UID and Labels are the pod's; the labels count until the API knows the pod.
	Namespace, Name, UID string
	Labels               map[string]string
	Addrs                []netip.Addr
}

// Enforcer isolates the pods of one node. Its methods may be called from any goroutine.
type Enforcer struct {
	log *slog.Logger
	// known is closed when everything was read for the first time.
	known chan struct{}
	wake  chan struct{}

	// mu guards the world and the kernel's table.
	mu        sync.Mutex
	world     *policies.World
	applier   *policies.Applier // nil before there is a node namespace
	own       []netip.Addr
	sandboxes map[string]Sandbox
	watched   *watched // nil before Run

	// pending is what caches have seen change since it was last taken in; they must not wait for mu.
	pendingMu sync.Mutex
	pending   changes
}

// watched are copies of what the API has.
type watched struct {
	client     *client.Client
	node       string
	policies   *cache.Cache[*networkingv1.NetworkPolicy]
	namespaces *cache.Cache[*corev1.Namespace]
	pods       *cache.Cache[*corev1.Pod]
}

type changes struct {
	policies, pods map[cache.Key]bool
	namespaces     map[string]bool
}

func newChanges() changes {
	return changes{policies: map[cache.Key]bool{}, pods: map[cache.Key]bool{}, namespaces: map[string]bool{}}
}

// New returns an Enforcer that knows of nothing. A nil logger is none.
func New(log *slog.Logger) *Enforcer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Enforcer{
		log: log, known: make(chan struct{}), wake: make(chan struct{}, 1), world: policies.NewWorld(),
		sandboxes: map[string]Sandbox{}, pending: newChanges(),
	}
}

// Run watches the API, and keeps the rules what policies say, until ctx ends; it returns its error, and is called
// once. The rules stay.
func (e *Enforcer) Run(ctx context.Context, api *client.Client, node string) error {
	w := e.watch(api, node)
	e.mu.Lock()
	e.watched = w
	e.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.policies.Run(ctx) })
	group.Go(func() error { return w.namespaces.Run(ctx) })
	group.Go(func() error { return w.pods.Run(ctx) })
	group.Go(func() error { return e.work(ctx, w) })
	return group.Wait()
}

func (e *Enforcer) watch(api *client.Client, node string) *watched {
	note := func(f func(*changes)) {
		e.pendingMu.Lock()
		f(&e.pending)
		e.pendingMu.Unlock()
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
	w := &watched{
		client: api, node: node,
		policies: cache.New(cache.Config[*networkingv1.NetworkPolicy]{
			Source: cache.Watch(api.NetworkPolicies.Watch), Logger: e.log,
		}),
		namespaces: cache.New(cache.Config[*corev1.Namespace]{Source: cache.Watch(api.Namespaces.Watch), Logger: e.log}),
		pods:       cache.New(cache.Config[*corev1.Pod]{Source: cache.Watch(api.Pods.Watch), Logger: e.log}),
	}
	w.policies.AddHandler(onChange(func(p *networkingv1.NetworkPolicy) {
		note(func(c *changes) { c.policies[cache.KeyOf(p)] = true })
	}, nil))
	w.namespaces.AddHandler(onChange(func(n *corev1.Namespace) {
		note(func(c *changes) { c.namespaces[n.GetMetadata().GetName()] = true })
	}, nil))
	w.pods.AddHandler(onChange(func(p *corev1.Pod) {
		note(func(c *changes) { c.pods[cache.KeyOf(p)] = true })
	}, differs))
	return w
}

// onChange returns a handler that hears of each change, or of those alone that are what it is asked for.
func onChange[T object.Object](f func(T), differs func(old, now T) bool) cache.Handler[T] {
	return cache.Handler[T]{OnAdd: f, OnDelete: f, OnUpdate: func(old, now T) {
		if differs == nil || differs(old, now) {
			f(now)
		}
	}}
}

// differs tells whether a change of a pod is one for policies. Its ports never change.
func differs(old, now *corev1.Pod) bool {
	a, b := old.GetMetadata(), now.GetMetadata()
	return a.GetUid() != b.GetUid() || !maps.Equal(a.GetLabels(), b.GetLabels()) ||
		old.GetSpec().GetNodeName() != now.GetSpec().GetNodeName() || phase.Terminal(old) != phase.Terminal(now) ||
		!slices.Equal(addresses(old), addresses(now))
}

// work makes changes count until ctx ends.
func (e *Enforcer) work(ctx context.Context, w *watched) error {
	for _, wait := range []func(context.Context) error{
		w.policies.WaitForSync, w.namespaces.WaitForSync, w.pods.WaitForSync,
	} {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	e.mu.Lock()
	e.takeIn()
	e.mu.Unlock()
	close(e.known)
	verify := time.NewTicker(verifyEvery)
	defer verify.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		check := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.wake:
		case <-retry.C:
		case <-verify.C:
			check = true
		}
		if err := e.refresh(ctx, check); err != nil && ctx.Err() == nil {
			e.log.Error("NetworkPolicies could not be put in force; it is tried again", "error", err)
			retry.Reset(retryAfter)
		}
	}
}

// refresh has all that is known count; check reads what cannot be watched.
func (e *Enforcer) refresh(ctx context.Context, check bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if check {
		e.world.SetNode(e.nodeAddresses())
	}
	e.takeIn()
	switch {
	case e.applier == nil:
		return nil
	case check:
		return e.applier.Verify(ctx, e.world)
	default:
		return e.applier.Apply(ctx, e.world)
	}
}

// Use has the rules made in a node namespace, from now on and instead of another. own are the addresses that the node
// itself has in it, there are the pods that are connected to it or that are going to be.
func (e *Enforcer) Use(ctx context.Context, namespace policies.Config, own []netip.Addr, there []Sandbox) error {
	select {
	case <-e.known:
	default:
		return ErrUnknown
	}
	applier, err := policies.NewApplier(namespace)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applier, e.own = applier, slices.Clone(own)
	e.world.SetNode(e.nodeAddresses())
	e.takeIn()
	for id, s := range e.sandboxes {
		if !slices.ContainsFunc(there, func(t Sandbox) bool { return t.ID == id }) {
			delete(e.sandboxes, id)
			e.world.SetPod(s.Namespace, sandboxID(id), nil)
		}
	}
	for _, s := range there {
		e.sandboxes[s.ID] = s
		e.setSandbox(s)
	}
	if err := applier.Apply(ctx, e.world); err != nil {
		return fmt.Errorf("NetworkPolicies cannot be put in force: %w", err)
	}
	return nil
}

// nodeAddresses returns those of the node and of the machine.
func (e *Enforcer) nodeAddresses() []netip.Addr {
	out := slices.Clone(e.own)
	all, err := net.InterfaceAddrs()
	if err != nil {
		e.log.Warn("the addresses of the machine cannot be read", "error", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}

// Await waits until the policies of a namespace are known that there are now, for at most 10 s. An empty name waits
// until anything is known. It is called before a pod of the namespace is admitted.
func (e *Enforcer) Await(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, mostWait, ErrUnknown)
	defer cancel()
	select {
	case <-e.known:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if namespace == "" {
		return nil
	}
	e.mu.Lock()
	w := e.watched
	e.mu.Unlock()
	// The cache may be behind the agent, who knows the pod already. A policy that it has and that is gone by now
	// isolates more than it should, for a moment.
	list, err := w.client.NetworkPolicies.List(ctx, &metav1.ListRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("the NetworkPolicies of namespace %s: %w", namespace, err)
	}
	for _, p := range list.GetItems() {
		if err := w.policies.WaitFor(ctx, p.GetMetadata().GetResourceVersion()); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Admit isolates a pod that is about to be connected, and makes it known to policies of others. After an error it must
// not be connected. Asked again, it repairs.
func (e *Enforcer) Admit(ctx context.Context, s Sandbox) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.applier == nil {
		return ErrUnknown
	}
	e.sandboxes[s.ID] = s
	e.takeIn()
	e.setSandbox(s)
	if err := e.applier.Apply(ctx, e.world); err != nil {
		return fmt.Errorf("NetworkPolicies cannot be put in force for the pod: %w", err)
	}
	return nil
}

// Forget is told that a pod is not connected any more. What cannot be taken away now is later.
func (e *Enforcer) Forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.sandboxes[id]; ok {
		delete(e.sandboxes, id)
		e.world.SetPod(s.Namespace, sandboxID(s.ID), nil)
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}
