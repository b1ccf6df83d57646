package validation

import (
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	opIn        = "In"
	opNotIn     = "NotIn"
	opExists    = "Exists"
	opNotExists = "DoesNotExist"
	opGreater   = "Gt"
	opLess      = "Lt"
)

// labelSelector checks a selector of objects by label. Nil is valid.
func (f *faults) labelSelector(p *fieldPath, s *metav1.LabelSelector) {
	f.labels(p.Child("matchLabels"), s.GetMatchLabels())
	for i, r := range s.GetMatchExpressions() {
		at := p.Child("matchExpressions").Index(i)
		if !f.setOperator(at, r.GetOperator(), r.GetValues()) {
			f.invalid(at.Child("operator"), r.GetOperator(), "not a valid selector operator")
		}
		f.qualified(at.Child("key"), r.GetKey())
		f.labelValues(at.Child("values"), r.GetValues())
	}
}

// setOperator checks the operators that all selectors know; false when op is none of them.
func (f *faults) setOperator(p *fieldPath, op string, values []string) bool {
	switch op {
	case opIn, opNotIn:
		if len(values) == 0 {
			f.required(p.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case opExists, opNotExists:
		if len(values) > 0 {
			f.forbidden(p.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	default:
		return false
	}
	return true
}

func (f *faults) labelValues(p *fieldPath, values []string) {
	for i, v := range values {
		f.invalid(p.Index(i), v, wrongLabelValue(v)...)
	}
}

// nodeTerm checks one alternative of a node selector. Values that no label can have are refused where the
// pod would wait for ever, and tolerated where they only never match.
func (f *faults) nodeTerm(p *fieldPath, t *corev1.NodeSelectorTerm, strict bool) {
	for i, r := range t.GetMatchExpressions() {
		at := p.Child("matchExpressions").Index(i)
		switch op := r.GetOperator(); {
		case f.setOperator(at, op, r.GetValues()):
		case op == opGreater || op == opLess:
			if len(r.GetValues()) != 1 {
				f.required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			f.invalid(at.Child("operator"), op, "not a valid selector operator")
		}
		f.qualified(at.Child("key"), r.GetKey())
		if strict {
			f.labelValues(at.Child("values"), r.GetValues())
		}
	}
	for i, r := range t.GetMatchFields() {
		f.nodeField(p.Child("matchFields").Index(i), r)
	}
}

// nodeField checks a requirement on a field of the node; only its name can be selected.
func (f *faults) nodeField(p *fieldPath, r *corev1.NodeSelectorRequirement) {
	switch op := r.GetOperator(); op {
	case opIn, opNotIn:
		if len(r.GetValues()) != 1 {
			f.required(p.Child("values"),
				"must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		f.invalid(p.Child("operator"), op, "not a valid selector operator")
	}
	if r.GetKey() != "metadata.name" {
		f.invalid(p.Child("key"), r.GetKey(), "not a valid field selector key")
		return
	}
	for i, v := range r.GetValues() {
		f.subdomain(p.Child("values").Index(i), v)
	}
}
