// Package claimspec is what claims and the templates of claims in pods have in common: the defaults of what a claim
// asks for, and what is wrong with it (spec: VOL). Like all of package validation it panics on nothing and looks at no
// other object.
package claimspec

import (
	"slices"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
)

// Filesystem is how a volume is made visible unless something else is said.
const Filesystem = "Filesystem"

// Default fills in what a claim asks for, which is not nil.
func Default(s *corev1.PersistentVolumeClaimSpec) {
	defaults.SetPtr(&s.VolumeMode, Filesystem)
	defaults.Round(s.Resources.GetLimits())
	defaults.Round(s.Resources.GetRequests())
}

// Check checks what a claim asks for, after Default. Groups of data sources that cannot exist are tolerated if the
// claim had one before: old is what it asked for, or nil.
func Check(f *validation.Faults, p *validation.Path, s, old *corev1.PersistentVolumeClaimSpec) {
	if len(s.GetAccessModes()) == 0 {
		f.Required(p.Child("accessModes"), "at least 1 access mode is required")
	}
	f.LabelSelector(p.Child("selector"), s.GetSelector())
	CheckAccessModes(f, p.Child("accessModes"), s.GetAccessModes())
	at := p.Child("resources").Key(resources.Storage)
	if text, ok := s.GetResources().GetRequests()[resources.Storage]; !ok {
		f.Required(at, "")
	} else if q, err := value.Quantity(text); err != nil {
		f.Invalid(at, text.GetString_(), err.Error())
	} else if q.Sign() <= 0 {
		f.Invalid(at, q.String(), "must be greater than zero")
	}
	CheckClassName(f, p.Child("storageClassName"), s.GetStorageClassName())
	if s == nil {
		return
	}
	CheckVolumeMode(f, p.Child("volumeMode"), s.VolumeMode)
	checkDataSources(f, p, s, hasGroup(old))
	CheckClassName(f, p.Child("volumeAttributesClassName"), s.GetVolumeAttributesClassName())
}

// CheckAccessModes checks ways to mount a volume: ReadWriteOncePod stands alone.
func CheckAccessModes(f *validation.Faults, p *validation.Path, modes []string) {
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

// CheckVolumeMode checks how a volume is made visible. Nil is valid.
func CheckVolumeMode(f *validation.Faults, p *validation.Path, mode *string) {
	if mode != nil {
		f.OneOf(p, *mode, "Block", Filesystem)
	}
}

// CheckClassName checks the name of a class that an object refers to. Empty means none.
func CheckClassName(f *validation.Faults, p *validation.Path, name string) {
	if name != "" {
		f.Subdomain(p, name)
	}
}
