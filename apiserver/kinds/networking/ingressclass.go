package networking

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	networkingv1 "monoplane.dev/api/networking/v1"
)

// ownController is the name by which classes choose the controller that is part of Monoplane.
const ownController = "monoplane.dev/ingress"

// defaultClass is the annotation of the class of Ingresses that name none.
const defaultClass = "ingressclass.kubernetes.io/is-default-class"

func isDefault(o object.Object) bool { return o.GetMetadata().GetAnnotations()[defaultClass] == "true" }

// IngressClass describes the kind.
func IngressClass(c define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*networkingv1.IngressClass]{
		Kind:     networkingv1.IngressClassKind,
		Spec:     func(o *networkingv1.IngressClass) proto.Message { return o.GetSpec() },
		Default:  DefaultIngressClass,
		Validate: ValidateIngressClass,
		Guards: func(ctx context.Context, o *networkingv1.IngressClass) ([]store.Guard, error) {
			if o.GetSpec().GetController() == ownController && !c.Ingress {
				warning.Add(ctx, "spec.controller: "+ownController+" does not run here (monoplane up --ingress starts it)")
			}
			return nil, nil
		},
		Main: registry.TypedUpdateRules[*networkingv1.IngressClass]{Validate: ValidateIngressClassUpdate},
		Table: classTable{define.Columns[*networkingv1.IngressClass]{
			define.Text("Controller", "Controller that serves the class.", func(o *networkingv1.IngressClass) string {
				return o.GetSpec().GetController()
			}),
			define.Text("Parameters", "What the controller reads besides.", parameters),
			define.Age[*networkingv1.IngressClass](),
		}},
	}.Strategy()}
}

// parameters are an object as KIND.GROUP/NAME.
func parameters(o *networkingv1.IngressClass) string {
	r := o.GetSpec().GetParameters()
	if r == nil {
		return define.OrNone("")
	}
	kind := r.GetKind()
	if r.APIGroup != nil {
		kind += "." + *r.APIGroup
	}
	return kind + "/" + r.GetName()
}

// classTable marks the default classes beside their names.
type classTable struct {
	columns define.Columns[*networkingv1.IngressClass]
}

// Columns returns the columns.
func (t classTable) Columns() []table.Column { return t.columns.Columns() }

// Cells returns the cells of one class.
func (t classTable) Cells(o object.Object, now time.Time) []any {
	cells := t.columns.Cells(o, now)
	if isDefault(o) {
		cells[0] = o.GetMetadata().GetName() + " (default)"
	}
	return cells
}

// DefaultIngressClass fills in a class; call it on create and update.
func DefaultIngressClass(o *networkingv1.IngressClass) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	if o.Spec.Parameters != nil {
		defaults.SetPtr(&o.Spec.Parameters.Scope, "Cluster")
	}
}

// ValidateIngressClass checks a class that is to be created.
func ValidateIngressClass(o *networkingv1.IngressClass) []apierrors.Cause { return wrongClass(o, nil) }

// ValidateIngressClassUpdate checks that a change of a class is allowed: its controller stays.
func ValidateIngressClassUpdate(new, old *networkingv1.IngressClass) []apierrors.Cause {
	return wrongClass(new, old)
}

func wrongClass(o, old *networkingv1.IngressClass) []apierrors.Cause {
	const longest = 250
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), false, validation.NameIsSubdomain)
		p, name := f.Root("spec"), o.GetSpec().GetController()
		if old != nil && name != old.GetSpec().GetController() {
			f.Invalid(p.Child("controller"), name, validation.Immutable)
		}
		if len(name) > longest {
			f.TooLong(p.Child("controller"), longest)
		}
		for _, e := range utilvalidation.IsDomainPrefixedPath(field.NewPath("controller"), name) {
			f.Add(p.Child("controller"), e)
		}
		if r := o.GetSpec().GetParameters(); r != nil {
			checkParameters(f, p.Child("parameters"), r)
		}
	}
	return f.Causes()
}

func checkParameters(f *validation.Faults, p *validation.Path, r *networkingv1.IngressClassParametersReference) {
	checkReference(f, p, r.APIGroup, r)
	at := p.Child("namespace")
	switch {
	case r.Scope == nil:
		f.Required(p.Child("scope"), "")
	case *r.Scope == "Namespace" && r.Namespace == nil:
		f.Required(at, "`parameters.scope` is set to 'Namespace'")
	case *r.Scope == "Namespace":
		f.Label(at, *r.Namespace)
	case *r.Scope == "Cluster" && r.Namespace != nil:
		f.Forbidden(at, "`parameters.scope` is set to 'Cluster'")
	default:
		f.OneOf(p.Child("scope"), *r.Scope, "Cluster", "Namespace")
	}
}

type classes struct{ deps registry.Deps }

// admit gives an Ingress that names no class the default one: of several the newest. The classes are read as they are
// now, so that a class counts from the moment that its creation was answered.
func (c classes) admit(ctx context.Context, o *networkingv1.Ingress) error {
	if _, named := o.GetMetadata().GetAnnotations()[classAnnotation]; named || o.Spec.IngressClassName != nil {
		return nil
	}
	all, err := c.deps.Store.List(ctx, networkingv1.IngressClassKind, store.ListOptions{})
	if err != nil {
		return err
	}
	made := time.Time{}
	for _, class := range all.Objects {
		m := class.GetMetadata()
		at := value.GoTime(m.GetCreationTimestamp())
		name := o.Spec.IngressClassName
		if isDefault(class) && (name == nil || at.After(made) || at.Equal(made) && m.GetName() < *name) {
			o.Spec.IngressClassName, made = proto.String(m.GetName()), at
		}
	}
	return nil
}
