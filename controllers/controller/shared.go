package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	appsv1 "monoplane.dev/api/apps/v1"
	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/endpoint"
	"monoplane.dev/rules/rights"
)

// The indexes of the shared caches. An object to which one does not apply is not in it.
const (
	// ByController finds objects by the uid of the owner that manages them, the one with controller=true.
	ByController = "controller"
	// ByNamespace finds the objects of a namespace.
	ByNamespace = "namespace"
	// Unmanaged finds the objects of a namespace that no owner manages, and which one may adopt.
	Unmanaged = "unmanaged"
	// ByNode finds pods by the name of the node to which they are bound.
	ByNode = "node"
	// ByClaim finds pods by the persistent volume claims that they use, "NAMESPACE/NAME".
	ByClaim = "claim"
	// ByService finds slices by the service whose endpoints they hold, "NAMESPACE/NAME".
	ByService = "service"
)

// SharedRole is what the identity of the shared caches may do: nothing but read.
func SharedRole() rights.Role {
	return rights.Role{Name: "shared-caches", OnlyGrants: true, Grants: []rights.Grant{
		{Verbs: "list watch", Resources: "pods nodes replicasets controllerrevisions persistentvolumeclaims jobs"},
		{Verbs: "list watch", Resources: "services endpoints endpointslices"},
	}}
}

// Shared are the caches of kinds that several controllers read, made once for all of them.
//
// A controller asks for a cache in its New, adds its handlers in its Run, and waits with WaitForSync before it works.
// Run feeds the caches that were asked for, and no others. What the objects are is shared, too: clone before changing.
//
// A controller that writes an object and must see that write before it judges again waits with Cache.WaitFor for the
// resourceVersion that the write returned. It is to be a write of the kind of the cache: others do not move it.
type Shared struct {
	api    *client.Client
	logger *slog.Logger

	mu      sync.Mutex
	running bool
	asked   []asked

	pods        *cache.Cache[*corev1.Pod]
	nodes       *cache.Cache[*corev1.Node]
	replicaSets *cache.Cache[*appsv1.ReplicaSet]
	revisions   *cache.Cache[*appsv1.ControllerRevision]
	claims      *cache.Cache[*corev1.PersistentVolumeClaim]
	jobs        *cache.Cache[*batchv1.Job]

	services       *cache.Cache[*corev1.Service]
	endpoints      *cache.Cache[*corev1.Endpoints]
	endpointSlices *cache.Cache[*discoveryv1.EndpointSlice]
}

// asked is a cache that somebody asked for.
type asked struct {
	kind   string
	run    func(context.Context) error
	synced func() bool
}

// NewShared returns the caches of the objects that api reads. A nil logger discards.
func NewShared(api *client.Client, logger *slog.Logger) *Shared {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Shared{api: api, logger: logger}
}

// Pods returns the cache of all pods, with the indexes ByController, Unmanaged, ByNamespace, ByNode and ByClaim.
func (s *Shared) Pods() *cache.Cache[*corev1.Pod] {
	return ask(s, &s.pods, cache.Config[*corev1.Pod]{
		Source: cache.Watch(s.api.Pods.Watch),
		Indexes: map[string]func(*corev1.Pod) []string{
			ByController: managerOf[*corev1.Pod],
			Unmanaged:    unmanaged[*corev1.Pod],
			ByNamespace:  namespaceOf[*corev1.Pod],
			ByNode:       func(p *corev1.Pod) []string { return unlessEmpty(p.GetSpec().GetNodeName()) },
			ByClaim: func(p *corev1.Pod) []string {
				var keys []string
				for _, name := range storage.ClaimNames(p) {
					keys = append(keys, cache.Key{Namespace: p.GetMetadata().GetNamespace(), Name: name}.String())
				}
				return keys
			},
		},
	})
}

// Nodes returns the cache of all nodes.
func (s *Shared) Nodes() *cache.Cache[*corev1.Node] {
	return ask(s, &s.nodes, cache.Config[*corev1.Node]{Source: cache.Watch(s.api.Nodes.Watch)})
}

// ReplicaSets returns the cache of all ReplicaSets, with the indexes ByController, Unmanaged and ByNamespace.
func (s *Shared) ReplicaSets() *cache.Cache[*appsv1.ReplicaSet] {
	return ask(s, &s.replicaSets, cache.Config[*appsv1.ReplicaSet]{
		Source: cache.Watch(s.api.ReplicaSets.Watch),
		Indexes: map[string]func(*appsv1.ReplicaSet) []string{
			ByController: managerOf[*appsv1.ReplicaSet],
			Unmanaged:    unmanaged[*appsv1.ReplicaSet],
			ByNamespace:  namespaceOf[*appsv1.ReplicaSet],
		},
	})
}

// ControllerRevisions returns the cache of all ControllerRevisions, with the indexes ByController and Unmanaged.
func (s *Shared) ControllerRevisions() *cache.Cache[*appsv1.ControllerRevision] {
	return ask(s, &s.revisions, cache.Config[*appsv1.ControllerRevision]{
		Source: cache.Watch(s.api.ControllerRevisions.Watch),
		Indexes: map[string]func(*appsv1.ControllerRevision) []string{
			ByController: managerOf[*appsv1.ControllerRevision],
			Unmanaged:    unmanaged[*appsv1.ControllerRevision],
		},
	})
}

// PersistentVolumeClaims returns the cache of all claims.
func (s *Shared) PersistentVolumeClaims() *cache.Cache[*corev1.PersistentVolumeClaim] {
	return ask(s, &s.claims, cache.Config[*corev1.PersistentVolumeClaim]{
		Source: cache.Watch(s.api.PersistentVolumeClaims.Watch),
	})
}

// Jobs returns the cache of all Jobs, with the indexes ByController and ByNamespace.
func (s *Shared) Jobs() *cache.Cache[*batchv1.Job] {
	return ask(s, &s.jobs, cache.Config[*batchv1.Job]{
		Source: cache.Watch(s.api.Jobs.Watch),
		Indexes: map[string]func(*batchv1.Job) []string{
			ByController: managerOf[*batchv1.Job],
			ByNamespace:  namespaceOf[*batchv1.Job],
		},
	})
}

// Services returns the cache of all services, with the index ByNamespace.
func (s *Shared) Services() *cache.Cache[*corev1.Service] {
	return ask(s, &s.services, cache.Config[*corev1.Service]{
		Source:  cache.Watch(s.api.Services.Watch),
		Indexes: map[string]func(*corev1.Service) []string{ByNamespace: namespaceOf[*corev1.Service]},
	})
}

// Endpoints returns the cache of all Endpoints.
func (s *Shared) Endpoints() *cache.Cache[*corev1.Endpoints] {
	return ask(s, &s.endpoints, cache.Config[*corev1.Endpoints]{Source: cache.Watch(s.api.Endpoints.Watch)})
}

// EndpointSlices returns the cache of all EndpointSlices, with the index ByService.
func (s *Shared) EndpointSlices() *cache.Cache[*discoveryv1.EndpointSlice] {
	return ask(s, &s.endpointSlices, cache.Config[*discoveryv1.EndpointSlice]{
		Source: cache.Watch(s.api.EndpointSlices.Watch),
		Indexes: map[string]func(*discoveryv1.EndpointSlice) []string{
			ByService: func(s *discoveryv1.EndpointSlice) []string {
				m := s.GetMetadata()
				name := m.GetLabels()[endpoint.ServiceName]
				if name == "" {
					return nil
				}
				return []string{cache.Key{Namespace: m.GetNamespace(), Name: name}.String()}
			},
		},
	})
}

// Run feeds the caches until ctx ends, and returns ctx's error. It must be called once, after all controllers were
// made.
func (s *Shared) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	caches := s.asked
	s.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range caches {
		g.Go(func() error { return c.run(ctx) })
	}
	g.Go(func() error { <-ctx.Done(); return ctx.Err() })
	return g.Wait()
}

// Ready returns nil once all caches have been read, and until then which one has not.
func (s *Shared) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.asked {
		if !c.synced() {
			return fmt.Errorf("shared caches: reading the objects of kind %s", c.kind)
		}
	}
	return nil
}

// Synced is what WaitForSync waits for: caches of any kind.
type Synced interface {
	// WaitForSync waits until the first complete state has been read and handled, or until ctx ends.
	WaitForSync(ctx context.Context) error
}

// WaitForSync waits until each of some caches has been read, or until ctx ends.
func WaitForSync(ctx context.Context, caches ...Synced) error {
	var errs []error
	for _, c := range caches {
		errs = append(errs, c.WaitForSync(ctx))
	}
	return errors.Join(errs...)
}

// ask returns the cache in slot, which it makes when nobody asked for it before.
func ask[T object.Object](s *Shared, slot **cache.Cache[T], cfg cache.Config[T]) *cache.Cache[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *slot != nil {
		return *slot
	}
	var none T
	kind := none.ObjectKind().Kind
	if s.running {
		panic("controller: the shared cache of kind " + kind + " was asked for after Run, which cannot feed it any more")
	}
	cfg.Logger = s.logger
	c := cache.New(cfg)
	*slot = c
	s.asked = append(s.asked, asked{kind: kind, run: c.Run, synced: c.HasSynced})
	return c
}

// ManagerOf returns the reference to the owner that manages o, the one with controller=true; nil for none.
func ManagerOf(o object.Object) *metav1.OwnerReference {
	for _, r := range o.GetMetadata().GetOwnerReferences() {
		if r.GetController() {
			return r
		}
	}
	return nil
}

func managerOf[T object.Object](o T) []string { return unlessEmpty(ManagerOf(o).GetUid()) }

func unmanaged[T object.Object](o T) []string {
	if ManagerOf(o) != nil {
		return nil
	}
	return namespaceOf(o)
}

func namespaceOf[T object.Object](o T) []string { return unlessEmpty(o.GetMetadata().GetNamespace()) }

func unlessEmpty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}
