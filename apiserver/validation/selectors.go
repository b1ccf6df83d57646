package validation

import (
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// What a requirement of a selector can ask of a value.
const (
	OpIn           = "In"
	OpNotIn        = "NotIn"
	OpExists       = "Exists"
	OpDoesNotExist = "DoesNotExist"
	OpGt           = "Gt"
	OpLt           = "Lt"
)

// LabelSelector checks a selector of objects by label. Nil is valid.
func (f *Faults) LabelSelector(p *Path, s *metav1.LabelSelector) {
	f.Labels(p.Child("matchLabels"), s.GetMatchLabels())
	for i, r := range s.GetMatchExpressions() {
		at := p.Child("matchExpressions").Index(i)
		if !f.setOperator(at, r.GetOperator(), r.GetValues()) {
			f.Invalid(at.Child("operator"), r.GetOperator(), "not a valid selector operator")
		}
		f.Qualified(at.Child("key"), r.GetKey())
		f.labelValues(at.Child("values"), r.GetValues())
	}
}

// AskedLabel and AskedField check requirements of selectors that somebody asks about without selecting anything, where
// operators that are not known may be those of a later version.
func (f *Faults) AskedLabel(p *Path, r *metav1.LabelSelectorRequirement) {
	f.setOperator(p, r.GetOperator(), r.GetValues())
	f.Qualified(p.Child("key"), r.GetKey())
	f.labelValues(p.Child("values"), r.GetValues())
}

// AskedField is AskedLabel for a field.
func (f *Faults) AskedField(p *Path, r *metav1.FieldSelectorRequirement) {
	if r.GetKey() == "" {
		f.Required(p.Child("key"), "must be specified")
	}
	f.setOperator(p, r.GetOperator(), r.GetValues())
}

// setOperator checks the operators that all selectors know; false when op is none of them.
func (f *Faults) setOperator(p *Path, op string, values []string) bool {
	switch op {
	case OpIn, OpNotIn:
		if len(values) == 0 {
			f.Required(p.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case OpExists, OpDoesNotExist:
		if len(values) > 0 {
			f.Forbidden(p.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	default:
		return false
	}
	return true
}

func (f *Faults) labelValues(p *Path, values []string) {
	for i, v := range values {
		f.Invalid(p.Index(i), v, WrongLabelValue(v)...)
	}
}

// NodeTerm checks one alternative of a node selector. Values that no label can have are refused where the
// pod would wait for ever, and tolerated where they only never match.
func (f *Faults) NodeTerm(p *Path, t *corev1.NodeSelectorTerm, strict bool) {
	for i, r := range t.GetMatchExpressions() {
		at := p.Child("matchExpressions").Index(i)
		switch op := r.GetOperator(); {
		case f.setOperator(at, op, r.GetValues()):
		case op == OpGt || op == OpLt:
			if len(r.GetValues()) != 1 {
				f.Required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			f.Invalid(at.Child("operator"), op, "not a valid selector operator")
		}
		f.Qualified(at.Child("key"), r.GetKey())
		if strict {
			f.labelValues(at.Child("values"), r.GetValues())
		}
	}
	for i, r := range t.GetMatchFields() {
		f.nodeField(p.Child("matchFields").Index(i), r)
	}
}

// nodeField checks a requirement on a field of the node; only its name can be selected.
func (f *Faults) nodeField(p *Path, r *corev1.NodeSelectorRequirement) {
	switch op := r.GetOperator(); op {
	case OpIn, OpNotIn:
		if len(r.GetValues()) != 1 {
			f.Required(p.Child("values"),
				"must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		f.Invalid(p.Child("operator"), op, "not a valid selector operator")
	}
	if r.GetKey() != "metadata.name" {
		f.Invalid(p.Child("key"), r.GetKey(), "not a valid field selector key")
		return
	}
	for i, v := range r.GetValues() {
		f.Subdomain(p.Child("values").Index(i), v)
	}
}
