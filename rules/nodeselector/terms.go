package nodeselector

import (
	"slices"
	"strconv"

	corev1 "monoplane.dev/api/core/v1"
)

// The operators.
const (
	In           = "In"
	NotIn        = "NotIn"
	Exists       = "Exists"
	DoesNotExist = "DoesNotExist"
	Gt           = "Gt"
	Lt           = "Lt"
)

// NameField is the only field of a node that can be selected.
const NameField = "metadata.name"

// terms are alternatives: a node matches when any of them does.
type terms []Term

// Term is requirements all of which must hold. A term without any matches nothing.
type Term struct {
	Labels, Fields []Requirement
	// Hopeless says that the term cannot match: it is empty, or one of its requirements cannot be read.
	Hopeless bool
}

// Requirement is one that has been read. number is that of Gt and Lt.
type Requirement struct {
	Key, Operator string
	Values        []string
	number        int64
}

func readTerms(s *corev1.NodeSelector) terms {
	t := make(terms, 0, len(s.GetNodeSelectorTerms()))
	for _, o := range s.GetNodeSelectorTerms() {
		t = append(t, ReadTerm(o))
	}
	return t
}

// ReadTerm reads a term. The server refuses most of what cannot be read.
func ReadTerm(o *corev1.NodeSelectorTerm) Term {
	t := Term{Hopeless: len(o.GetMatchExpressions()) == 0 && len(o.GetMatchFields()) == 0}
	for _, e := range o.GetMatchExpressions() {
		r, ok := ReadRequirement(e)
		t.Labels = append(t.Labels, r)
		t.Hopeless = t.Hopeless || !ok
	}
	for _, e := range o.GetMatchFields() {
		r, ok := ReadRequirement(e)
		t.Fields = append(t.Fields, r)
		t.Hopeless = t.Hopeless || !ok || r.Key != NameField || r.Operator != In && r.Operator != NotIn || len(r.Values) != 1
	}
	return t
}

// ReadRequirement reads a requirement; ok is false for one that cannot be read.
func ReadRequirement(o *corev1.NodeSelectorRequirement) (r Requirement, ok bool) {
	r = Requirement{Key: o.GetKey(), Operator: o.GetOperator(), Values: o.GetValues()}
	switch r.Operator {
	case In, NotIn:
		return r, len(r.Values) > 0
	case Exists, DoesNotExist:
		return r, len(r.Values) == 0
	case Gt, Lt:
		if len(r.Values) != 1 {
			return r, false
		}
		n, err := strconv.ParseInt(r.Values[0], 10, 64)
		r.number = n
		return r, err == nil
	default:
		return r, false
	}
}

func (t terms) match(node *corev1.Node) bool {
	for i := range t {
		if t[i].match(node) {
			return true
		}
	}
	return false
}

func (t *Term) match(node *corev1.Node) bool {
	if t.Hopeless {
		return false
	}
	for i := range t.Labels {
		v, ok := node.GetMetadata().GetLabels()[t.Labels[i].Key]
		if !t.Labels[i].Match(v, ok) {
			return false
		}
	}
	return t.MatchName(node)
}

// Match judges a value; has is false when there is none.
func (r *Requirement) Match(v string, has bool) bool {
	switch r.Operator {
	case In:
		return has && slices.Contains(r.Values, v)
	case NotIn:
		return !has || !slices.Contains(r.Values, v)
	case Exists:
		return has
	case DoesNotExist:
		return !has
	default: // Gt and Lt; no other operator is read
		got, err := strconv.ParseInt(v, 10, 64)
		if !has || err != nil {
			return false
		}
		return r.Operator == Gt && got > r.number || r.Operator == Lt && got < r.number
	}
}

// MatchName judges the requirements on fields, of which the name is the only one.
func (t *Term) MatchName(node *corev1.Node) bool {
	for i := range t.Fields {
		if !t.Fields[i].Match(node.GetMetadata().GetName(), true) {
			return false
		}
	}
	return true
}
