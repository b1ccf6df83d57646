package defaults

import (
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/resources"
)

// set fills in a value that is zero.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPtr fills in a value that is absent.
func setPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// roundAll rounds amounts up to thousandths and writes them in canonical form.
func roundAll(list map[string]*metav1.Quantity) {
	for _, q := range list {
		if q != nil {
			q.String_ = resources.Canonical(q.String_)
		}
	}
}

func clone(q *metav1.Quantity) *metav1.Quantity { return &metav1.Quantity{String_: q.GetString_()} }
