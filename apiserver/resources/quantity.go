// Package resources reads quantities and sums up what the containers of a pod ask for.
//
// Defaulting and validation share it. It guarantees that reading a quantity takes bounded time whatever
// the text, and that invalid quantities count as absent in sums (validation reports them). It knows
// nothing of nodes or of what is free on them.
package resources

import (
	"k8s.io/apimachinery/pkg/api/resource"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/json"
)

// Parse reads a quantity. Nil and the empty text are zero.
func Parse(q *metav1.Quantity) (resource.Quantity, error) {
	return ParseText(q.GetString_())
}

// ParseText reads the text of a quantity. The empty text is zero.
func ParseText(text string) (resource.Quantity, error) {
	if text == "" {
		return resource.Quantity{}, nil
	}
	return json.ParseQuantity(text)
}

// Canonical returns the quantity in canonical form, rounded up to thousandths as Kubernetes rounds
// resources. Text that is no quantity is returned as it is.
func Canonical(text string) string {
	if simple(text) {
		return text
	}
	q, err := ParseText(text)
	if err != nil {
		return text
	}
	q.RoundUp(resource.Milli)
	return q.String()
}

// simple says whether text surely is canonical already: up to nine digits with a suffix that cannot absorb
// them. It spares the usual quantities the long way.
func simple(text string) bool {
	n, v := 0, 0
	for n < len(text) && n < 10 && text[n] >= '0' && text[n] <= '9' {
		v = v*10 + int(text[n]-'0')
		n++
	}
	if n == 0 || n > 9 || text[0] == '0' {
		return text == "0"
	}
	switch text[n:] {
	case "", "m", "k", "M", "G":
		return v%1000 != 0
	case "Ki", "Mi", "Gi":
		return v%1024 != 0
	}
	return false
}
