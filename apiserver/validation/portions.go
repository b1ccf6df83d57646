package validation

import (
	"k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/rules/portion"

	metav1 "monoplane.dev/api/meta/v1"
)

// Portion checks a field that is a number, not below zero, or a percentage.
func (f *Faults) Portion(p *Path, v *metav1.IntOrString) {
	switch v.GetType() {
	case 0:
		f.NotNegative(p, int64(v.GetIntVal()))
	case 1:
		f.Invalid(p, v.GetStrVal(), validation.IsValidPercent(v.GetStrVal())...)
	default:
		f.InvalidValue(p, v.GetType(), "must be an integer or percentage (e.g '5%%')")
	}
}

// AtMostAll refuses a percentage above 100.
func (f *Faults) AtMostAll(p *Path, v *metav1.IntOrString) {
	if !portion.IsPercentage(v) {
		return
	}
	if n, ok := portion.Percent(v.GetStrVal()); ok && n > 100 {
		f.Invalid(p, v.GetStrVal(), "must not be greater than 100%")
	}
}
