package kinds

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/priority"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// defaultTurn is taken by every write that makes a class the global default.
const defaultTurn = "priorityclasses/default"

// priorityClass describes the kind. One class at most is the global default (PRIO-1), because the writes that make
// one so happen one after another, in turn. Pods look classes up in the cache.
func (c Config) priorityClass() definition {
	return definition{strategy: registry.Typed[*schedulingv1.PriorityClass]{
		Kind:       schedulingv1.PriorityClassKind,
		Default:    defaults.PriorityClass,
		DefaultNew: defaults.NewPriorityClass,
		Validate:   validation.PriorityClass,
		Guards: func(ctx context.Context, o *schedulingv1.PriorityClass) ([]store.Guard, error) {
			return onlyDefault(ctx, c.Deps.Store, o, nil)
		},
		Protected: func(o *schedulingv1.PriorityClass) error {
			for _, class := range SystemPriorityClasses() {
				if name := class.Metadata.Name; name == o.GetMetadata().GetName() {
					return apierrors.NewForbidden(schedulingv1.PriorityClassKind, name,
						"this is a system priority class and cannot be deleted")
				}
			}
			return nil
		},
		Main: registry.TypedResource[*schedulingv1.PriorityClass]{
			Authorize: func(ctx context.Context, u *registry.Update, next, live *schedulingv1.PriorityClass) (err error) {
				u.Guards, err = onlyDefault(ctx, c.Deps.Store, next, live)
				return err
			},
			Validate: validation.PriorityClassUpdate,
		},
		ReadCached: true,
		Table: columns[*schedulingv1.PriorityClass]{
			{"Value", "integer", 0, "Priority of the pods of the class.", func(o *schedulingv1.PriorityClass, _ moment) any {
				return int64(o.GetValue())
			}},
			{"Global-Default", "boolean", 0, "Whether pods that name no class get this one.", func(o *schedulingv1.PriorityClass, _ moment) any {
				return o.GetGlobalDefault()
			}},
			age[*schedulingv1.PriorityClass](),
			{"PreemptionPolicy", "string", 0, "Whether the pods may displace others.", func(o *schedulingv1.PriorityClass, _ moment) any {
				return o.GetPreemptionPolicy()
			}},
		},
	}.Strategy()}
}

// onlyDefault refuses a second global default, and returns the turn of a write that makes one. Live is the class that
// next replaces, nil for a new one, which is refused even when the default has its name.
func onlyDefault(ctx context.Context, s *store.Store, next, live *schedulingv1.PriorityClass) ([]store.Guard, error) {
	if !next.GetGlobalDefault() {
		return nil, nil
	}
	turn, err := s.Turn(ctx, defaultTurn)
	if err != nil {
		return nil, err
	}
	is, err := priority.Classes{Store: s}.NewestDefault(ctx)
	switch {
	case err != nil:
		return nil, err
	case is != nil && (live == nil || is.GetMetadata().GetName() != live.GetMetadata().GetName()):
		return nil, apierrors.NewForbidden(schedulingv1.PriorityClassKind, next.GetMetadata().GetName(),
			"PriorityClass %v is already marked as default. Only one default can exist", is.GetMetadata().GetName())
	case live.GetGlobalDefault():
		return nil, nil // it is one by an earlier turn
	default:
		return []store.Guard{turn}, nil
	}
}

// SystemPriorityClasses exist from the start and cannot be deleted (PRIO-1).
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	return []*schedulingv1.PriorityClass{
		{
			Metadata: &metav1.ObjectMeta{Name: validation.SystemNodeCritical}, Value: validation.SystemNodeCriticalValue,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			Metadata: &metav1.ObjectMeta{Name: validation.SystemClusterCritical}, Value: validation.SystemClusterCriticalValue,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

// EnsurePriorityClasses creates the system classes that are missing. It writes nothing when none is.
func EnsurePriorityClasses(ctx context.Context, b object.Backend) error {
	for _, class := range SystemPriorityClasses() {
		_, err := b.Get(ctx, &metav1.GetRequest{Name: class.Metadata.Name})
		if apierrors.Is(err, apierrors.NotFound) {
			_, err = b.Create(ctx, "", class, object.WriteOptions{})
		}
		if err != nil && !apierrors.Is(err, apierrors.AlreadyExists) {
			return err
		}
	}
	return nil
}
