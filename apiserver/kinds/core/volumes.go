package core

import (
	"slices"
	"strings"

	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// sizeText returns the amount of storage in a list of resources, as Kubernetes writes it.
func sizeText(list map[string]*metav1.Quantity) string {
	if text := list["storage"].GetString_(); text != "" {
		return resources.Canonical(text)
	}
	return "0"
}

// shortModes returns access modes in the short form that users know, always in the same order.
func shortModes(modes []string) string {
	var short []string
	for _, m := range []struct{ long, short string }{
		{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"},
	} {
		if slices.Contains(modes, m.long) {
			short = append(short, m.short)
		}
	}
	return strings.Join(short, ",")
}

// storagePhase is the phase of a volume or claim, unless it is being deleted.
func storagePhase(o object.Object, phase string) string {
	if o.GetMetadata().GetDeletionTimestamp() != nil {
		return terminating
	}
	return phase
}

// checkSize checks an amount of storage, which may have to be more than nothing.
func checkSize(f *validation.Faults, p *validation.Path, text *metav1.Quantity, positive bool) {
	q, err := value.Quantity(text)
	if err != nil {
		f.Invalid(p, text.GetString_(), err.Error())
		return
	}
	if q.Value() < 0 {
		f.InvalidValue(p, q.Value(), "must be a valid resource quantity")
	}
	if positive && q.Sign() <= 0 {
		f.Invalid(p, q.String(), "must be greater than zero")
	}
}

// checkSecretRef checks a reference to a secret in any namespace. Nil is valid.
func checkSecretRef(f *validation.Faults, p *validation.Path, ref *corev1.SecretReference) {
	if ref == nil {
		return
	}
	if ref.GetName() == "" {
		f.Required(p.Child("name"), "")
	} else {
		f.Subdomain(p.Child("name"), ref.GetName())
	}
	f.RequiredLabel(p.Child("namespace"), ref.GetNamespace())
}

const phasePending = "Pending"

func protect(m *metav1.ObjectMeta, finalizer string) {
	if !slices.Contains(m.Finalizers, finalizer) {
		m.Finalizers = append(m.Finalizers, finalizer)
	}
}
