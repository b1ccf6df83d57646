// Package defaults is what the kinds fill in values with that a client left out, and what amounts are written with.
// The defaults themselves lie with each kind, in the packages below apiserver/kinds.
package defaults

import (
	"monoplane.dev/rules/resources"

	metav1 "monoplane.dev/api/meta/v1"
)

// Set fills in a value that is zero.
func Set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetPtr fills in a value that is absent.
func SetPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Message makes a message that is absent an empty one.
func Message[T any](field **T) {
	if *field == nil {
		*field = new(T)
	}
}

// Round rounds amounts up to thousandths and writes them in canonical form.
func Round(list map[string]*metav1.Quantity) {
	for _, q := range list {
		if q != nil {
			q.String_ = resources.Canonical(q.String_)
		}
	}
}

// CloneQuantity returns an amount of its own, with the value of q.
func CloneQuantity(q *metav1.Quantity) *metav1.Quantity {
	return &metav1.Quantity{String_: q.GetString_()}
}
