package core

import (
	"slices"
	"strings"

	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
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

// checkAccessModes checks ways to mount a volume: ReadWriteOncePod stands alone.
func checkAccessModes(f *validation.Faults, p *validation.Path, modes []string) {
	known := []string{"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", storage.OncePod}
	alone, shared := false, false
	for _, m := range modes {
		f.OneOf(p, m, known...)
		alone = alone || m == storage.OncePod
		shared = shared || m != storage.OncePod && slices.Contains(known, m)
	}
	if alone && shared {
		f.Forbidden(p, "may not use ReadWriteOncePod with other access modes")
	}
}

// checkVolumeMode checks how a volume is made visible. Nil is valid.
func checkVolumeMode(f *validation.Faults, p *validation.Path, mode *string) {
	if mode != nil {
		f.OneOf(p, *mode, "Block", "Filesystem")
	}
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

// checkClassName checks the name of a storage class that an object refers to. Empty means none.
func checkClassName(f *validation.Faults, p *validation.Path, name string) {
	if name != "" {
		f.Subdomain(p, name)
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

const (
	volumeModeFilesystem = "Filesystem"
	phasePending         = "Pending"
)

func protect(m *metav1.ObjectMeta, finalizer string) {
	if !slices.Contains(m.Finalizers, finalizer) {
		m.Finalizers = append(m.Finalizers, finalizer)
	}
}
