// Package registry serves any kind of object over the store. A Registry is the object.Backend of one kind:
// everything that kinds have in common is here (names, metadata, compare-and-swap, preconditions, finalizers,
// dry run, patches, selectors), and what is special about a kind is in its Strategy.
//
// # The way of a write
//
//	create  name → defaults → owners of fields → admission → allotment → validation → rules of the namespace → guards
//	        and quotas → one transaction: the object absent, its namespace as seen
//	update  live → merge (status or spec kept) → metadata rules → owners of fields → rights → validation → rules of the
//	        namespace → quotas → one transaction
//	patch   live → JSON → patch → decode → as update
//	delete  live → the kind's rules (generic: finalizers hold) → one transaction
//
// Guarantees:
//   - Every decision is a function of the live object and the request. It is made anew for every attempt of the
//     compare-and-swap, so it always judges the revision that the transaction compares (OBJ-2, DEL-8).
//   - A write that is refused changes nothing, and a refusal for validity names every bad field (OBJ-3).
//   - What a client sends is never changed in place, unless it was given away (object.Owned), and what the store holds
//     is never changed at all.
//   - Dry run takes the same way up to the transaction (OBJ-8).
//
// Authorization by verb and resource happens before, in package auth; rights that depend on the object itself
// are the strategy's. The registry opens no goroutines that outlive a call.
package registry

import (
	"context"
	"crypto/rand"
	"io"

	"k8s.io/utils/clock"

	"monoplane.dev/apiserver/fieldmanager"
	"monoplane.dev/apiserver/patch"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Deps is what all registries of a server share.
type Deps struct {
	// Store holds the objects.
	Store *store.Store
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Rand is where uids and generated names come from; crypto/rand by default. It must be safe for concurrent use.
	Rand io.Reader
	// Support checks objects against what this version supports. It is shared because it caches.
	Support *validation.Support
	// MayCreate judges whether the caller may create an object, where the request is no create: an apply or update of
	// what is not there. Nil lets everybody.
	MayCreate func(ctx context.Context, kind *object.Kind, namespace, name string) error
	// Admission is the rules that namespaces have for what is written in them; nil for none.
	Admission Admission
}

// Complete fills in what is optional.
func (d Deps) Complete() Deps {
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	if d.Rand == nil {
		d.Rand = rand.Reader
	}
	if d.Support == nil {
		d.Support = validation.NewSupport()
	}
	return d
}

// Registry serves one kind. Use New.
type Registry struct {
	deps     Deps
	strategy *Strategy
	// kind is what clients see: the strategy's, or that of a view.
	kind *object.Kind
	view *View
	// schema says how strategic patches merge; schemas say so for the subresources with a shape of their own.
	schema  *patch.Schema
	schemas map[string]*patch.Schema
	// owners tracks who owns which fields of what is stored.
	owners *fieldmanager.Kind
}

var _ object.Backend = (*Registry)(nil)

// New returns the backend of the strategy's kind, whose objects are served by these views as well.
func New(deps Deps, s *Strategy, views ...*View) *Registry {
	r := &Registry{
		deps: deps.Complete(), strategy: s, kind: s.Kind, schema: schemaOf(s.Kind), owners: ownersOf(s, views),
	}
	for name, rules := range s.Resources {
		if rules.Shape == nil {
			continue
		}
		if r.schemas == nil {
			r.schemas = make(map[string]*patch.Schema)
		}
		r.schemas[name] = schemaOf(rules.Shape.Kind)
	}
	return r
}

// NewView returns a backend that serves the strategy's objects as another kind, v, which is one of views.
func NewView(deps Deps, s *Strategy, v *View, views ...*View) *Registry {
	return &Registry{
		deps: deps.Complete(), strategy: s, kind: v.Kind, view: v, schema: schemaOf(v.Kind),
		owners: ownersOf(s, views),
	}
}

// ownersOf returns what tracks the fields of objects, each in the version in which it was written.
func ownersOf(s *Strategy, views []*View) *fieldmanager.Kind {
	versions := make([]fieldmanager.Version, len(views))
	for i, v := range views {
		versions[i] = fieldmanager.Version{Kind: v.Kind, In: v.In, Out: v.Out}
	}
	return fieldmanager.New(s.Kind, versions...)
}

func schemaOf(k *object.Kind) *patch.Schema {
	return patch.NewSchema(k.New().ProtoReflect().Descriptor())
}

// Strategy returns the strategy.
func (r *Registry) Strategy() *Strategy { return r.strategy }

// key names a stored object.
func (r *Registry) key(namespace, name string) store.Key {
	return store.Key{Kind: r.strategy.Kind, Namespace: namespace, Name: name}
}

// stored turns what a client sent into the kind that is stored.
func (r *Registry) stored(o object.Object) object.Object {
	if r.view == nil || o == nil {
		return o
	}
	return r.view.In(o)
}

// settle ends a write. What is written is written: when the caches cannot be waited for, the client does not wait any
// more either, or the store is about to fail.
func (r *Registry) settle(ctx context.Context) {
	if r.strategy.ReadCached {
		_, _ = r.deps.Store.Revision(ctx)
	}
}

// asStored says that everybody sees objects as they are stored.
func (r *Registry) asStored() bool { return r.view == nil && r.strategy.Show == nil }

// seen turns what is stored into what the caller sees of it.
func (r *Registry) seen(ctx context.Context, o object.Object) object.Object {
	if r.strategy.Show != nil && o != nil {
		o = r.strategy.Show(ctx, o)
	}
	return r.viewed(o)
}

// viewed turns what is stored into the kind that clients see.
func (r *Registry) viewed(o object.Object) object.Object {
	if r.view == nil || o == nil {
		return o
	}
	return r.view.Out(o)
}

// shaped turns an object as the caller sees it into the shape that a subresource has.
func (u *UpdateRules) shaped(o object.Object) object.Object {
	if u.Shape == nil || o == nil {
		return o
	}
	return u.Shape.Of(o)
}

// meta returns an object's metadata, which is empty rather than nil.
func meta(o object.Object) *metav1.ObjectMeta {
	if m := o.GetMetadata(); m != nil {
		return m
	}
	m := new(metav1.ObjectMeta)
	o.SetMetadata(m)
	return m
}
