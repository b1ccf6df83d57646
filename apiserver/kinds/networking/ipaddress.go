package networking

import (
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	networkingv1 "monoplane.dev/api/networking/v1"
)

// IPAddress describes the kind.
func IPAddress(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*networkingv1.IPAddress]{
		Kind:     networkingv1.IPAddressKind,
		Default:  DefaultIPAddress,
		Validate: ValidateIPAddress,
		Guards: define.Warned[*networkingv1.IPAddress](
			"IPAddresses have no effect in this version: they keep no address from Services"),
		Main: registry.TypedUpdateRules[*networkingv1.IPAddress]{Validate: ValidateIPAddressUpdate},
		Table: define.Columns[*networkingv1.IPAddress]{
			define.Text("ParentRef", "The object that has the address.", parent),
		},
	}.Strategy()}
}

// parent is an object as RESOURCE.GROUP/NAMESPACE/NAME, without what is empty but the name.
func parent(o *networkingv1.IPAddress) string {
	r := o.GetSpec().GetParentRef()
	if r == nil {
		return define.OrNone("")
	}
	text := r.GetResource()
	if r.GetGroup() != "" {
		text += "." + r.GetGroup()
	}
	text = strings.ToLower(text)
	if r.GetNamespace() != "" {
		text += "/" + r.GetNamespace()
	}
	return text + "/" + r.GetName()
}

// DefaultIPAddress fills in an address; call it on create and update.
func DefaultIPAddress(o *networkingv1.IPAddress) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
}

// ValidateIPAddress checks an address that is to be created.
func ValidateIPAddress(o *networkingv1.IPAddress) []apierrors.Cause { return wrongAddress(o, nil) }

// ValidateIPAddressUpdate checks that a change of an address is allowed: it stays with whom it was given to.
func ValidateIPAddressUpdate(new, old *networkingv1.IPAddress) []apierrors.Cause {
	return wrongAddress(new, old)
}

func wrongAddress(o, old *networkingv1.IPAddress) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), false, nameIsAddress)
		p, r := f.Root("spec").Child("parentRef"), o.GetSpec().GetParentRef()
		checkParent(f, p, r)
		if old != nil && !validation.Equal(r, old.GetSpec().GetParentRef()) {
			f.Replaced(p, r)
		}
	}
	return f.Causes()
}

// nameIsAddress is the validation.NameFunc of addresses. What is appended to a generateName makes it none.
func nameIsAddress(name string, _ bool) []string {
	var wrong []string
	for _, e := range utilvalidation.IsValidIP(nil, name) {
		wrong = append(wrong, e.Detail)
	}
	return wrong
}

// checkParent checks the name of the object that has an address.
func checkParent(f *validation.Faults, p *validation.Path, r *networkingv1.ParentReference) {
	if r == nil {
		f.Required(p, "")
		return
	}
	if r.Group != "" {
		f.Subdomain(p.Child("group"), r.Group)
	}
	for _, part := range [...]struct {
		field, text string
		optional    bool
	}{{"resource", r.Resource, false}, {"name", r.Name, false}, {"namespace", r.Namespace, true}} {
		if part.text == "" && !part.optional {
			f.Required(p.Child(part.field), "")
		}
		f.Invalid(p.Child(part.field), part.text, validation.NameIsPathSegment(part.text, false)...)
	}
}
