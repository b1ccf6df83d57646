package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"

	metav1 "monoplane.dev/api/meta/v1"
)

// InvalidOptions says what is wrong with the options of a request, as Kubernetes does: an object of a kind of options,
// which has no name. The kind is CreateOptions, UpdateOptions, PatchOptions, DeleteOptions or ListOptions.
func InvalidOptions(kind string, causes []apierrors.Cause) error {
	return apierrors.NewInvalid(&object.Kind{Group: "meta.k8s.io", Version: "v1", Kind: kind}, "", causes)
}

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

// ListOptions checks the options of a list.
func ListOptions(req *metav1.ListRequest) []apierrors.Cause {
	match, f := req.GetResourceVersionMatch(), Faults{}
	for f.Pass() {
		path := f.Root("resourceVersionMatch")
		if match == "" {
			continue
		}
		if req.GetResourceVersion() == "" {
			f.Forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided")
		}
		if req.GetContinue() != "" {
			f.Forbidden(path, "resourceVersionMatch is forbidden when continue is provided")
		}
		if match != "Exact" && match != "NotOlderThan" {
			f.OneOf(path, match, "Exact", "NotOlderThan", "")
		}
		if match == "Exact" && req.GetResourceVersion() == "0" {
			f.Forbidden(path, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)
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

// PatchOptions checks what patches only have in their options.
func PatchOptions(req *metav1.PatchRequest, apply bool) []apierrors.Cause {
	var f Faults
	for f.Pass() {
		switch {
		case apply && req.GetFieldManager() == "":
			f.Required(f.Root("fieldManager"), "is required for apply patch")
		case !apply && req.Force != nil:
			f.Forbidden(f.Root("force"), "may not be specified for non-apply patch")
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
