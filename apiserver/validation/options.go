package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"

	metav1 "monoplane.dev/api/meta/v1"
)

// DeleteOptions checks the options of a deletion. Nil is valid.
func DeleteOptions(o *metav1.DeleteOptions) []apierrors.Cause {
	var f Faults
	for f.Pass() {
		if o == nil {
			return nil
		}
		policy := f.Root("propagationPolicy")
		if o.OrphanDependents != nil && o.PropagationPolicy != nil {
			f.Invalid(policy, o.GetPropagationPolicy(), "orphanDependents and deletionPropagation cannot be both set")
		}
		if o.PropagationPolicy != nil {
			switch o.GetPropagationPolicy() {
			case propagation.Foreground, propagation.Background, propagation.Orphan:
			default:
				f.OneOf(policy, o.GetPropagationPolicy(), "Foreground", "Background", "Orphan", "nil")
			}
		}
		f.dryRun(o.GetDryRun())
		if o.GetIgnoreStoreReadErrorWithClusterBreakingPotential() {
			f.Forbidden(f.Root("ignoreStoreReadErrorWithClusterBreakingPotential"), "not supported")
		}
	}
	return f.Causes()
}

// WriteOptions checks the options of a create, an update or a patch.
func WriteOptions(o object.WriteOptions) []apierrors.Cause {
	var f Faults
	for f.Pass() {
		f.manager(f.Root("fieldManager"), o.FieldManager)
		f.dryRun(o.DryRun)
		switch o.FieldValidation {
		case "", "Ignore", "Strict", "Warn":
		default:
			f.OneOf(f.Root("fieldValidation"), o.FieldValidation, "", "Ignore", "Strict", "Warn")
		}
	}
	return f.Causes()
}

// ApplyOptions checks what only an apply has in its options.
func ApplyOptions(req *metav1.PatchRequest) []apierrors.Cause {
	var f Faults
	for f.Pass() {
		if req.GetFieldManager() == "" {
			f.Required(f.Root("fieldManager"), "is required for apply patch")
		}
	}
	return f.Causes()
}

func (f *Faults) dryRun(values []string) {
	for _, v := range values {
		if v != "All" {
			f.Add(f.Root("dryRun"), field.NotSupported(nil, values, []string{"All"}))
			return
		}
	}
}
