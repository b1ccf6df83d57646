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
	certificatesv1 "monoplane.dev/api/certificates/v1"
	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/rules/rights"
)

// sharable are the kinds of which there can be shared caches. Another one is a line here.
func sharable() []sharedKind {
	return []sharedKind{
		share(func(c *client.Client) cache.Source[*corev1.Pod] { return cache.Watch(c.Pods.Watch) }),
		share(func(c *client.Client) cache.Source[*corev1.Node] { return cache.Watch(c.Nodes.Watch) }),
		share(func(c *client.Client) cache.Source[*corev1.PersistentVolumeClaim] {
			return cache.Watch(c.PersistentVolumeClaims.Watch)
		}),
		share(func(c *client.Client) cache.Source[*corev1.Service] { return cache.Watch(c.Services.Watch) }),
		share(func(c *client.Client) cache.Source[*corev1.Endpoints] { return cache.Watch(c.Endpoints.Watch) }),
		share(func(c *client.Client) cache.Source[*discoveryv1.EndpointSlice] {
			return cache.Watch(c.EndpointSlices.Watch)
		}),
		share(func(c *client.Client) cache.Source[*appsv1.ReplicaSet] { return cache.Watch(c.ReplicaSets.Watch) }),
		share(func(c *client.Client) cache.Source[*appsv1.ControllerRevision] {
			return cache.Watch(c.ControllerRevisions.Watch)
		}),
		share(func(c *client.Client) cache.Source[*batchv1.Job] { return cache.Watch(c.Jobs.Watch) }),
		share(func(c *client.Client) cache.Source[*certificatesv1.CertificateSigningRequest] {
			return cache.Watch(c.CertificateSigningRequests.Watch)
		}),
	}
}

// sharedKind is a kind and where its objects come from.
type sharedKind struct {
	kind   *object.Kind
	source any // a sourceOf
}

type sourceOf[T object.Object] func(*client.Client) cache.Source[T]

func share[T object.Object](source sourceOf[T]) sharedKind { return sharedKind{kindOf[T](), source} }

func kindOf[T object.Object]() *object.Kind {
	var none T
	return none.ObjectKind()
}

// SharedRole is what the identity of the shared caches may do: nothing but read.
func SharedRole() rights.Role {
	role := rights.Role{Name: "shared-caches", OnlyGrants: true}
	for _, k := range sharable() {
		role.Grants = append(role.Grants, rights.Grant{Verbs: "list watch", Resources: k.kind.Plural})
	}
	return role
}

// Shared are the caches of kinds that several controllers read, made once for all of them.
//
// A controller asks for a cache in its New (see Of), adds its handlers in its Run, and waits with WaitForSync before
// it works. Run feeds the caches that were asked for, and no others. What the objects are is shared, too: clone before
// changing.
//
// A controller that writes an object and must see that write before it judges again waits with Cache.WaitFor for the
// resourceVersion that the write returned. It is to be a write of the kind of the cache: others do not move it.
type Shared struct {
	api    *client.Client
	logger *slog.Logger

	mu      sync.Mutex
	running bool
	asked   []asked
}

// asked is a cache that somebody asked for.
type asked struct {
	kind   *object.Kind
	cache  any // a *cache.Cache of the kind
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

// Of returns the cache of all objects of a kind, as in Of[*corev1.Pod](s, ByNode), with the indexes that are named and
// those that others have named: what nobody names takes no memory. It panics for a kind that is not shared, and when
// the caches run already and this is not one of them.
func Of[T object.Object](s *Shared, indexes ...string) *cache.Cache[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := known[T](s)
	if c == nil {
		c = added[T](s)
	}
	for _, name := range indexes {
		c.AddIndex(name, indexOf[T](name))
	}
	return c
}

// known returns the cache of a kind that somebody asked for before; nil for none.
func known[T object.Object](s *Shared) *cache.Cache[T] {
	for _, a := range s.asked {
		if c, ok := a.cache.(*cache.Cache[T]); ok {
			return c
		}
	}
	return nil
}

// added makes the cache of a kind.
func added[T object.Object](s *Shared) *cache.Cache[T] {
	kind := kindOf[T]()
	if s.running {
		panic("controller: the shared cache of kind " + kind.Kind + " was asked for after Run, which cannot feed it")
	}
	for _, k := range sharable() {
		if source, ok := k.source.(sourceOf[T]); ok {
			c := cache.New(cache.Config[T]{Source: source(s.api), Logger: s.logger})
			s.asked = append(s.asked, asked{kind: kind, cache: c, run: c.Run, synced: c.HasSynced})
			return c
		}
	}
	panic("controller: kind " + kind.Kind + " has no shared cache")
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
			return fmt.Errorf("shared caches: reading the objects of kind %s", c.kind.Kind)
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
