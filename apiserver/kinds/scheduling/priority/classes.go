package priority

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// cached accepts any state: see the package comment.
const cached = "0"

// Classes are the priority classes of a store.
type Classes struct {
	Store *store.Store
}

// Of returns the class that a pod names, or the global default when it names none; nil when there is no default. The
// error is NotFound for a name that no class has.
func (c Classes) Of(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		return c.Default(ctx)
	}
	key := store.Key{Kind: schedulingv1.PriorityClassKind, Name: name}
	o, err := c.Store.Get(ctx, key, cached)
	if apierrors.Is(err, apierrors.NotFound) {
		// Another server of the same etcd may have created it.
		o, err = c.Store.Get(ctx, key, "")
	}
	if err != nil {
		return nil, err
	}
	return o.(*schedulingv1.PriorityClass), nil
}

// Default returns the global default, nil if there is none.
func (c Classes) Default(ctx context.Context) (*schedulingv1.PriorityClass, error) {
	return c.defaultAt(ctx, cached)
}

// NewestDefault is Default as it is now on whatever server it was made.
func (c Classes) NewestDefault(ctx context.Context) (*schedulingv1.PriorityClass, error) {
	return c.defaultAt(ctx, "")
}

func (c Classes) defaultAt(ctx context.Context, rv string) (*schedulingv1.PriorityClass, error) {
	all, err := c.Store.List(ctx, schedulingv1.PriorityClassKind, store.ListOptions{ResourceVersion: rv})
	if err != nil {
		return nil, err
	}
	return lowestDefault(all.Objects), nil
}

// lowestDefault returns the default among classes. Should two servers of an older version have made two, the lowest
// counts, as in Kubernetes.
func lowestDefault(classes []object.Object) *schedulingv1.PriorityClass {
	var lowest *schedulingv1.PriorityClass
	for _, o := range classes {
		class := o.(*schedulingv1.PriorityClass)
		if class.GetGlobalDefault() && (lowest == nil || class.GetValue() < lowest.GetValue()) {
			lowest = class
		}
	}
	return lowest
}
