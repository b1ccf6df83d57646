// Package value converts between the values of the API messages and those of Go and Kubernetes: times
// and quantities. The messages are generated, so these helpers cannot be their methods.
//
// It does not read or write JSON; package codec/json does.
package value

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/json"
)

// Time returns t with the precision of the API, one second (fractions are dropped). The zero time becomes nil.
func Time(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	seconds, nanos := json.TimeParts(t, time.Second)
	return &metav1.Time{Seconds: seconds, Nanos: nanos}
}

// MicroTime returns t with a precision of one microsecond. The zero time becomes nil.
func MicroTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	seconds, nanos := json.TimeParts(t, time.Microsecond)
	return &metav1.MicroTime{Seconds: seconds, Nanos: nanos}
}

// GoTime returns t in UTC with whole seconds, the zero time for nil and for "no time".
func GoTime(t *metav1.Time) time.Time {
	if json.ZeroTime(t.GetSeconds(), t.GetNanos()) {
		return time.Time{}
	}
	return time.Unix(t.GetSeconds(), 0).UTC()
}

// GoMicroTime returns t in UTC with whole microseconds, the zero time for nil and for "no time".
func GoMicroTime(t *metav1.MicroTime) time.Time {
	if json.ZeroTime(t.GetSeconds(), t.GetNanos()) {
		return time.Time{}
	}
	return time.Unix(t.GetSeconds(), int64(t.GetNanos())).UTC().Truncate(time.Microsecond)
}

// Quantity parses q. Nil and the empty text are zero. It fails on text that is no quantity, which protobuf
// clients can send, or that is too long.
func Quantity(q *metav1.Quantity) (resource.Quantity, error) {
	if q.GetString_() == "" {
		return resource.Quantity{}, nil
	}
	return json.ParseQuantity(q.GetString_())
}

// NewQuantity returns q in canonical form.
func NewQuantity(q resource.Quantity) *metav1.Quantity { return &metav1.Quantity{String_: q.String()} }
