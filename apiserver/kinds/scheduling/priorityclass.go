package scheduling

import (
	"context"
	"fmt"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/scheduling/priority"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// defaultTurn is taken by every write that makes a class the global default.
const defaultTurn = "priorityclasses/default"

// PriorityClass describes the kind. One class at most is the global default (PRIO-1), because the writes that make
// one so happen one after another, in turn. Pods look classes up in the cache.
func PriorityClass(c define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*schedulingv1.PriorityClass]{
		Kind:       schedulingv1.PriorityClassKind,
		Default:    DefaultPriorityClass,
		DefaultNew: DefaultNewPriorityClass,
		Validate:   ValidatePriorityClass,
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
		Main: registry.TypedUpdateRules[*schedulingv1.PriorityClass]{
			Authorize: func(ctx context.Context, u *registry.Update, next, live *schedulingv1.PriorityClass) (err error) {
				u.Guards, err = onlyDefault(ctx, c.Deps.Store, next, live)
				return err
			},
			Validate: ValidatePriorityClassUpdate,
		},
		ReadCached: true,
		Table: define.Columns[*schedulingv1.PriorityClass]{
			define.Integer("Value", "Priority of the pods of the class.", func(o *schedulingv1.PriorityClass) int64 {
				return int64(o.GetValue())
			}),
			define.Bool("Global-Default", "Whether pods that name no class get this one.",
				(*schedulingv1.PriorityClass).GetGlobalDefault),
			define.Age[*schedulingv1.PriorityClass](),
			define.Text("PreemptionPolicy", "Whether the pods may displace others.",
				(*schedulingv1.PriorityClass).GetPreemptionPolicy),
		},
	}.Strategy()}
}

// DefaultPriorityClass fills in a priority class.
func DefaultPriorityClass(c *schedulingv1.PriorityClass) {
	defaults.Message(&c.Metadata)
	defaults.SetPtr(&c.PreemptionPolicy, "PreemptLowerPriority")
}

// DefaultNewPriorityClass is DefaultPriorityClass plus what creation adds: a generation, which never grows.
func DefaultNewPriorityClass(c *schedulingv1.PriorityClass) {
	DefaultPriorityClass(c)
	c.Metadata.Generation = 1
}

// The built-in priority classes (PRIO-1).
const (
	SystemNodeCritical         = "system-node-critical"
	SystemNodeCriticalValue    = 2_000_001_000
	SystemClusterCritical      = "system-cluster-critical"
	SystemClusterCriticalValue = 2_000_000_000
)

const (
	// systemClass begins the names that are reserved for the built-in classes.
	systemClass = "system-"
	// highestPriority is the most that other classes may have.
	highestPriority = 1_000_000_000
)

// ValidatePriorityClass checks a priority class that is to be created.
func ValidatePriorityClass(c *schedulingv1.PriorityClass) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(c.GetMetadata(), nil, false, validation.NameIsSubdomain)
		if strings.HasPrefix(c.GetMetadata().GetName(), systemClass) {
			if wrong := wrongSystemClass(c); wrong != "" {
				f.Forbidden(f.Root("metadata").Child("name"),
					"priority class names with 'system-' prefix are reserved for system use only. error: "+wrong)
			}
		} else if c.GetValue() > highestPriority {
			f.Forbidden(f.Root("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestPriority))
		}
		if c != nil && c.PreemptionPolicy != nil {
			f.RequiredOneOf(f.Root("preemptionPolicy"), c.GetPreemptionPolicy(), "PreemptLowerPriority", "Never")
		}
	}
	return f.Causes()
}

// ValidatePriorityClassUpdate checks that a change of a priority class is allowed: pods have its value and policy
// already.
func ValidatePriorityClassUpdate(new, old *schedulingv1.PriorityClass) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), false, validation.NameIsSubdomain)
		if new.GetValue() != old.GetValue() {
			f.Forbidden(f.Root("value"), "may not be changed in an update.")
		}
		if new != nil && old != nil && !validation.Same(new.PreemptionPolicy, old.PreemptionPolicy) {
			f.InvalidValue(f.Root("preemptionPolicy"), new.PreemptionPolicy, validation.Immutable)
		}
	}
	return f.Causes()
}

// wrongSystemClass says in what a class with a reserved name differs from the built-in one; empty for nothing.
func wrongSystemClass(c *schedulingv1.PriorityClass) string {
	name := c.GetMetadata().GetName()
	var value int32
	switch name {
	case SystemNodeCritical:
		value = SystemNodeCriticalValue
	case SystemClusterCritical:
		value = SystemClusterCriticalValue
	default:
		return name + " is not a known system priority class"
	}
	switch {
	case c.GetValue() != value:
		return fmt.Sprintf("value of %s PriorityClass must be %d", name, value)
	case c.GetGlobalDefault():
		return fmt.Sprintf("globalDefault of %s PriorityClass must be false", name)
	default:
		return ""
	}
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
			Metadata: &metav1.ObjectMeta{Name: SystemNodeCritical}, Value: SystemNodeCriticalValue,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			Metadata: &metav1.ObjectMeta{Name: SystemClusterCritical}, Value: SystemClusterCriticalValue,
			Description: "Used for system critical pods that must run in the cluster, " +
				"but can be moved to another node if necessary.",
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
