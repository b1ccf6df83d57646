// Package networking describes the kinds of networking.k8s.io. Nothing in this version does what they say: who makes
// one is warned.
package networking

import (
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"
)

// checkNumber checks the number of a port.
func checkNumber(f *validation.Faults, p *validation.Path, n int32) {
	if wrong := utilvalidation.IsValidPortNum(int(n)); len(wrong) > 0 {
		f.InvalidValue(p, n, wrong...)
	}
}

// checkRange checks a range of addresses; one that was there before is let through.
func checkRange(f *validation.Faults, p *validation.Path, text string, known []string) {
	if slices.Contains(known, text) {
		return
	}
	for _, e := range utilvalidation.IsValidCIDRForLegacyField(nil, text, true, nil) {
		f.Add(p, e)
	}
}

// reference is what names an object.
type reference interface {
	GetKind() string
	GetName() string
}

// checkReference checks the name of an object of some group.
func checkReference(f *validation.Faults, p *validation.Path, group *string, r reference) {
	if group != nil {
		f.Subdomain(p.Child("apiGroup"), *group)
	}
	for _, part := range [...]struct{ field, text string }{{"kind", r.GetKind()}, {"name", r.GetName()}} {
		if part.text == "" {
			f.Required(p.Child(part.field), "")
			continue
		}
		f.Invalid(p.Child(part.field), part.text, validation.NameIsPathSegment(part.text, false)...)
	}
}
