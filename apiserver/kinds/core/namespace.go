package core

import (
	"context"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/builtin"
	"monoplane.dev/rules/precondition"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	active      = "Active"
	terminating = "Terminating"
)

// Namespace describes the kind. A namespace is deleted in two steps (NS-1): the deletion sets the mark and the phase,
// which keeps new objects out; the namespace controller empties it and then takes its finalizer away, and with the
// last finalizer the namespace goes.
func Namespace(c define.Config) define.Definition {
	n := namespaces{c.Deps, c.Namespaced}
	return define.Definition{Strategy: registry.Typed[*corev1.Namespace]{
		Kind: corev1.NamespaceKind,
		// Pods are judged by what the cache has of the labels.
		ReadCached: true,
		DefaultNew: DefaultNewNamespace,
		Admit:      restores,
		Validate:   ValidateNamespace,
		Main: registry.TypedUpdateRules[*corev1.Namespace]{
			Apply: func(asked, live *corev1.Namespace) *corev1.Namespace {
				next := &corev1.Namespace{Metadata: metadata(asked, live)}
				DefaultNamespace(next)
				next.Spec, next.Status = live.Spec, live.Status
				return next
			},
			Validate: ValidateNamespaceUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.Namespace]{
			"status": {
				Apply: func(asked, live *corev1.Namespace) *corev1.Namespace {
					status := object.Clone(asked.GetStatus())
					if status == nil {
						status = &corev1.NamespaceStatus{}
					}
					status.Phase = phase(live)
					return &corev1.Namespace{Spec: live.Spec, Status: status}
				},
				Validate: ValidateNamespaceStatusUpdate,
			},
			"finalize": {
				Apply: func(asked, live *corev1.Namespace) *corev1.Namespace {
					spec := object.Clone(asked.GetSpec())
					if spec == nil {
						spec = &corev1.NamespaceSpec{}
					}
					return &corev1.Namespace{Spec: spec, Status: live.Status}
				},
				Authorize: n.empty,
				Validate:  ValidateNamespaceFinalizeUpdate,
			},
		},
		// Kubernetes lets kube-node-lease go; but the heartbeats of all nodes are in it.
		Protected: func(o *corev1.Namespace) error {
			if name := o.GetMetadata().GetName(); builtin.Namespace(name) {
				return apierrors.NewForbidden(corev1.NamespaceKind, name, "this namespace may not be deleted")
			}
			return nil
		},
		Delete: n.remove,
		Held:   func(o *corev1.Namespace) bool { return len(o.GetSpec().GetFinalizers()) > 0 },
		Fields: map[string]func(*corev1.Namespace) string{
			"status.phase": func(o *corev1.Namespace) string { return o.GetStatus().GetPhase() },
			"name":         func(o *corev1.Namespace) string { return o.GetMetadata().GetName() },
		},
		Table: define.Columns[*corev1.Namespace]{
			define.Text("Status", "Whether the namespace is in use or being deleted.", func(o *corev1.Namespace) string {
				return o.GetStatus().GetPhase()
			}),
			define.Age[*corev1.Namespace](),
		},
	}.Strategy()}
}

// LabelNamespaceName is the label by which a namespace can be selected by its name.
const LabelNamespaceName = "kubernetes.io/metadata.name"

// FinalizerNamespace is what holds a namespace until its contents are gone (NS-1).
const FinalizerNamespace = "kubernetes"

// DefaultNamespace fills in a namespace; call it once its name is known, on create and on update.
func DefaultNamespace(n *corev1.Namespace) {
	defaults.Message(&n.Metadata)
	if n.Metadata.Name != "" {
		if n.Metadata.Labels == nil {
			n.Metadata.Labels = map[string]string{}
		}
		n.Metadata.Labels[LabelNamespaceName] = n.Metadata.Name
	}
	defaults.Message(&n.Spec)
	defaults.Message(&n.Status)
	defaults.Set(&n.Status.Phase, "Active")
}

// DefaultNewNamespace is DefaultNamespace plus what creation adds: the finalizer and a fresh status.
func DefaultNewNamespace(n *corev1.Namespace) {
	n.Status = nil
	DefaultNamespace(n)
	for _, f := range n.Spec.Finalizers {
		if f == FinalizerNamespace {
			return
		}
	}
	n.Spec.Finalizers = append(n.Spec.Finalizers, FinalizerNamespace)
}

// ValidateNamespace checks a namespace that is to be created.
func ValidateNamespace(n *corev1.Namespace) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(n.GetMetadata(), nil, false, validation.NameIsLabel)
		for _, name := range n.GetSpec().GetFinalizers() {
			f.Qualified(f.Root("spec").Child("finalizers"), name)
			f.CoreFinalizer(f.Root("spec").Child("finalizers"), name)
		}
	}
	return f.Causes()
}

// ValidateNamespaceUpdate checks that a change of a namespace is allowed. Spec and status have subresources of
// their own and are not looked at.
func ValidateNamespaceUpdate(new, old *corev1.Namespace) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), false, validation.NameIsLabel)
	}
	return f.Causes()
}

// ValidateNamespaceStatusUpdate checks that a namespace is terminating exactly when it is being deleted (NS-1).
func ValidateNamespaceStatusUpdate(new, old *corev1.Namespace) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), false, validation.NameIsLabel)
		p, phase := f.Root("status").Child("Phase"), new.GetStatus().GetPhase()
		switch deleted := new.GetMetadata().GetDeletionTimestamp() != nil; {
		case !deleted && phase != "Active":
			f.Invalid(p, phase, "may only be 'Active' if `deletionTimestamp` is empty")
		case deleted && phase != "Terminating":
			f.Invalid(p, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
		}
	}
	return f.Causes()
}

// ValidateNamespaceFinalizeUpdate checks the finalizers that a write to the finalize subresource leaves.
func ValidateNamespaceFinalizeUpdate(new, old *corev1.Namespace) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), false, validation.NameIsLabel)
		for i, name := range new.GetSpec().GetFinalizers() {
			at := f.Root("spec").Child("finalizers").Index(i)
			f.Qualified(at, name)
			f.CoreFinalizer(at, name)
		}
	}
	return f.Causes()
}

// phase is what the mark says: nobody else writes it.
func phase(o *corev1.Namespace) string {
	if o.GetMetadata().GetDeletionTimestamp() != nil {
		return terminating
	}
	return active
}

// restores lets components, of which the namespace controller has the right, make builtin namespaces only.
func restores(ctx context.Context, o *corev1.Namespace) error {
	id, name := auth.From(ctx), o.GetMetadata().GetName()
	if id.Component() && !builtin.Namespace(name) {
		return apierrors.NewForbidden(corev1.NamespaceKind, name,
			"%s may only create the namespaces that every cluster has", id.Name)
	}
	return nil
}

type namespaces struct {
	deps registry.Deps
	// kinds are those that a namespace can hold.
	kinds []*object.Kind
}

// remove begins a deletion.
func (n namespaces) remove(
	_ context.Context, live *corev1.Namespace, opts *metav1.DeleteOptions,
) (registry.Removal, error) {
	m := live.GetMetadata()
	if err := precondition.Of(opts).Check(corev1.NamespaceKind, m); err != nil {
		return registry.Removal{}, err
	}
	if m.GetDeletionTimestamp() != nil {
		return registry.Removal{Object: live, Unchanged: true}, nil
	}
	next := object.Clone(live)
	next.Metadata.DeletionTimestamp = value.Time(n.deps.Clock.Now())
	next.Metadata.DeletionGracePeriodSeconds = proto.Int64(0)
	next.Metadata.Generation++
	defaults.Message(&next.Status)
	next.Status.Phase = terminating
	gone := len(live.GetSpec().GetFinalizers()) == 0 && len(m.GetFinalizers()) == 0
	return registry.Removal{Object: next, Gone: gone}, nil
}

// empty refuses to take the last finalizer of a namespace that still holds objects: they would be out of
// reach. Nothing can be created in a terminating namespace, so what is found empty stays empty.
func (n namespaces) empty(ctx context.Context, _ *registry.Update, next, live *corev1.Namespace) error {
	name := live.GetMetadata().GetName()
	if len(next.GetSpec().GetFinalizers()) > 0 {
		return nil
	}
	if live.GetMetadata().GetDeletionTimestamp() == nil {
		return apierrors.NewConflict(corev1.NamespaceKind, name,
			"finalizers can only be removed once the namespace is being deleted")
	}
	for _, kind := range n.kinds {
		left, err := n.deps.Store.List(ctx, kind, store.ListOptions{Namespace: name, Limit: 1})
		if err != nil {
			return err
		}
		if len(left.Objects) > 0 {
			return apierrors.NewConflict(corev1.NamespaceKind, name, "the namespace is not empty: it still holds %s %q",
				kind.Resource(), left.Objects[0].GetMetadata().GetName())
		}
	}
	return nil
}

// EnsureNamespaces creates the system namespaces that are missing. It writes nothing when none is.
func EnsureNamespaces(ctx context.Context, b object.Backend) error {
	for _, name := range builtin.Namespaces() {
		_, err := b.Get(ctx, &metav1.GetRequest{Name: name})
		if err == nil {
			continue
		}
		if !apierrors.Is(err, apierrors.NotFound) {
			return err
		}
		o := &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name}}
		if _, err := b.Create(ctx, "", o, object.WriteOptions{}); err != nil && !apierrors.Is(err, apierrors.AlreadyExists) {
			return err
		}
	}
	return nil
}
