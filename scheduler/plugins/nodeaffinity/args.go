package nodeaffinity

import (
	"errors"
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/nodeselector"
)

// validate lists everything that is wrong, each with the name of its field.
func (a Args) validate() error {
	const at = "args.addedAffinity."
	var errs []error
	if s := a.AddedAffinity.GetRequiredDuringSchedulingIgnoredDuringExecution(); s != nil {
		for i, t := range s.GetNodeSelectorTerms() {
			errs = append(errs, wrongTerm(fmt.Sprintf("%srequiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[%d]",
				at, i), t))
		}
	}
	for i, t := range a.AddedAffinity.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		path := fmt.Sprintf("%spreferredDuringSchedulingIgnoredDuringExecution[%d]", at, i)
		if w := t.GetWeight(); w < 1 || w > 100 {
			errs = append(errs, fmt.Errorf("%s.weight: %d is not within 1..100", path, w))
		}
		errs = append(errs, wrongTerm(path+".preference", t.GetPreference()))
	}
	return errors.Join(errs...)
}

func wrongTerm(path string, t *corev1.NodeSelectorTerm) error {
	var errs []error
	for i, r := range t.GetMatchExpressions() {
		errs = append(errs, wrongRequirement(fmt.Sprintf("%s.matchExpressions[%d]", path, i), r))
	}
	for i, r := range t.GetMatchFields() {
		errs = append(errs, wrongField(fmt.Sprintf("%s.matchFields[%d]", path, i), r))
	}
	return errors.Join(errs...)
}

func wrongRequirement(path string, o *corev1.NodeSelectorRequirement) error {
	r, ok := nodeselector.ReadRequirement(o)
	switch {
	case r.Key == "":
		return fmt.Errorf("%s.key: must not be empty", path)
	case ok:
		return nil
	}
	switch r.Operator {
	case nodeselector.In, nodeselector.NotIn:
		return fmt.Errorf("%s.values: must not be empty for %s", path, r.Operator)
	case nodeselector.Exists, nodeselector.DoesNotExist:
		return fmt.Errorf("%s.values: must be empty for %s", path, r.Operator)
	case nodeselector.Gt, nodeselector.Lt:
		return fmt.Errorf("%s.values: %q is not one whole number, as %s needs", path, r.Values, r.Operator)
	default:
		return fmt.Errorf("%s.operator: %q is none of In, NotIn, Exists, DoesNotExist, Gt, Lt", path, r.Operator)
	}
}

func wrongField(path string, o *corev1.NodeSelectorRequirement) error {
	switch {
	case o.GetKey() != nodeselector.NameField:
		return fmt.Errorf("%s.key: %q is not %s", path, o.GetKey(), nodeselector.NameField)
	case o.GetOperator() != nodeselector.In && o.GetOperator() != nodeselector.NotIn:
		return fmt.Errorf("%s.operator: %q is neither In nor NotIn", path, o.GetOperator())
	case len(o.GetValues()) != 1:
		return fmt.Errorf("%s.values: must have one element", path)
	default:
		return nil
	}
}
