package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// DeleteOptions checks the options of a deletion. Nil is valid.
func DeleteOptions(o *metav1.DeleteOptions) []apierrors.Cause {
	var f faults
	for f.pass() {
		if o == nil {
			return nil
		}
		policy := f.root("propagationPolicy")
		if o.OrphanDependents != nil && o.PropagationPolicy != nil {
			f.invalid(policy, o.GetPropagationPolicy(), "orphanDependents and deletionPropagation cannot be both set")
		}
		if o.PropagationPolicy != nil {
			switch o.GetPropagationPolicy() {
			case "Foreground", "Background", "Orphan":
			default:
				f.oneOf(policy, o.GetPropagationPolicy(), "Foreground", "Background", "Orphan", "nil")
			}
		}
		f.dryRun(o.GetDryRun())
		if o.GetIgnoreStoreReadErrorWithClusterBreakingPotential() {
			f.forbidden(f.root("ignoreStoreReadErrorWithClusterBreakingPotential"), "not supported")
		}
	}
	return f.causes()
}

// WriteOptions checks the options of a create, an update or a patch.
func WriteOptions(o object.WriteOptions) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.manager(f.root("fieldManager"), o.FieldManager)
		f.dryRun(o.DryRun)
		switch o.FieldValidation {
		case "", "Ignore", "Strict", "Warn":
		default:
			f.oneOf(f.root("fieldValidation"), o.FieldValidation, "", "Ignore", "Strict", "Warn")
		}
	}
	return f.causes()
}

func (f *faults) dryRun(values []string) {
	for _, v := range values {
		if v != "All" {
			f.add(f.root("dryRun"), field.NotSupported(nil, values, []string{"All"}))
			return
		}
	}
}
