package resources

import (
	"k8s.io/apimachinery/pkg/api/resource"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/json"
	"monoplane.dev/codec/value"
)

// Canonical returns the quantity in canonical form, rounded up to thousandths as Kubernetes rounds
// resources. Text that is no quantity is returned as it is.
func Canonical(text string) string {
	if json.CanonicalQuantity(text) {
		return text
	}
	q, err := value.Quantity(&metav1.Quantity{String_: text})
	if err != nil {
		return text
	}
	q.RoundUp(resource.Milli)
	return q.String()
}
