package validation

import (
	"slices"

	"monoplane.dev/codec/value"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// accessModes checks ways to mount a volume: ReadWriteOncePod stands alone.
func (f *faults) accessModes(p *fieldPath, modes []string) {
	known := []string{"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", storage.OncePod}
	alone, shared := false, false
	for _, m := range modes {
		f.oneOf(p, m, known...)
		alone = alone || m == storage.OncePod
		shared = shared || m != storage.OncePod && slices.Contains(known, m)
	}
	if alone && shared {
		f.forbidden(p, "may not use ReadWriteOncePod with other access modes")
	}
}

// volumeMode checks how a volume is made visible. Nil is valid.
func (f *faults) volumeMode(p *fieldPath, mode *string) {
	if mode != nil {
		f.oneOf(p, *mode, "Block", "Filesystem")
	}
}

// size checks an amount of storage, which may have to be more than nothing.
func (f *faults) size(p *fieldPath, text *metav1.Quantity, positive bool) {
	q, err := value.Quantity(text)
	if err != nil {
		f.invalid(p, text.GetString_(), err.Error())
		return
	}
	if q.Value() < 0 {
		f.invalidValue(p, q.Value(), "must be a valid resource quantity")
	}
	if positive && q.Sign() <= 0 {
		f.invalid(p, q.String(), "must be greater than zero")
	}
}

// className checks the name of a storage class that an object refers to. Empty means none.
func (f *faults) className(p *fieldPath, name string) {
	if name != "" {
		f.subdomain(p, name)
	}
}

// secretRef checks a reference to a secret in any namespace. Nil is valid.
func (f *faults) secretRef(p *fieldPath, ref *corev1.SecretReference) {
	if ref == nil {
		return
	}
	if ref.GetName() == "" {
		f.required(p.Child("name"), "")
	} else {
		f.subdomain(p.Child("name"), ref.GetName())
	}
	f.requiredLabel(p.Child("namespace"), ref.GetNamespace())
}
