package nodeaffinity

import (
	"slices"
	"strconv"

	corev1 "monoplane.dev/api/core/v1"
)

// The operators.
const (
	in           = "In"
	notIn        = "NotIn"
	exists       = "Exists"
	doesNotExist = "DoesNotExist"
	gt           = "Gt"
	lt           = "Lt"
)

// nameField is the only field of a node that can be selected.
const nameField = "metadata.name"

// terms are alternatives: a node matches when any of them does.
type terms struct{ list []term }

// term is requirements all of which must hold. A term without any matches nothing.
type term struct {
	labels, fields []requirement
	// hopeless says that the term cannot match: it is empty, or one of its requirements cannot be read.
	hopeless bool
}

// requirement is one that has been read. number is that of Gt and Lt.
type requirement struct {
	key, operator string
	values        []string
	number        int64
}

func readTerms(s *corev1.NodeSelector) *terms {
	t := &terms{list: make([]term, 0, len(s.GetNodeSelectorTerms()))}
	for _, o := range s.GetNodeSelectorTerms() {
		t.list = append(t.list, readTerm(o))
	}
	return t
}

func readTerm(o *corev1.NodeSelectorTerm) term {
	t := term{hopeless: len(o.GetMatchExpressions()) == 0 && len(o.GetMatchFields()) == 0}
	for _, e := range o.GetMatchExpressions() {
		r, ok := readRequirement(e)
		t.labels = append(t.labels, r)
		t.hopeless = t.hopeless || !ok
	}
	for _, e := range o.GetMatchFields() {
		r, ok := readRequirement(e)
		t.fields = append(t.fields, r)
		t.hopeless = t.hopeless || !ok || r.key != nameField || r.operator != in && r.operator != notIn
	}
	return t
}

// readRequirement reads a requirement. The server refuses most of what cannot be read.
func readRequirement(o *corev1.NodeSelectorRequirement) (r requirement, ok bool) {
	r = requirement{key: o.GetKey(), operator: o.GetOperator(), values: o.GetValues()}
	switch r.operator {
	case in, notIn:
		return r, len(r.values) > 0
	case exists, doesNotExist:
		return r, len(r.values) == 0
	case gt, lt:
		if len(r.values) != 1 {
			return r, false
		}
		n, err := strconv.ParseInt(r.values[0], 10, 64)
		r.number = n
		return r, err == nil
	default:
		return r, false
	}
}

func (t *terms) match(node *corev1.Node) bool {
	for i := range t.list {
		if t.list[i].match(node) {
			return true
		}
	}
	return false
}

func (t *term) match(node *corev1.Node) bool {
	if t.hopeless {
		return false
	}
	for i := range t.labels {
		v, ok := node.GetMetadata().GetLabels()[t.labels[i].key]
		if !t.labels[i].match(v, ok) {
			return false
		}
	}
	return t.matchName(node)
}

// match judges a value; has is false when there is none.
func (r *requirement) match(v string, has bool) bool {
	switch r.operator {
	case in:
		return has && slices.Contains(r.values, v)
	case notIn:
		return !has || !slices.Contains(r.values, v)
	case exists:
		return has
	case doesNotExist:
		return !has
	default: // Gt and Lt; no other operator is read
		got, err := strconv.ParseInt(v, 10, 64)
		if !has || err != nil {
			return false
		}
		return r.operator == gt && got > r.number || r.operator == lt && got < r.number
	}
}
