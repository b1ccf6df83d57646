package value_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"monoplane.dev/codec/value"

	metav1 "monoplane.dev/api/meta/v1"
)

func TestTimesKeepTheirPrecision(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.FixedZone("", 3600))
	if got := value.GoTime(value.Time(at)); !got.Equal(at.Truncate(time.Second)) || got.Location() != time.UTC {
		t.Errorf("got %v", got)
	}
	if got := value.GoMicroTime(value.MicroTime(at)); !got.Equal(at.Truncate(time.Microsecond)) ||
		got.Location() != time.UTC {
		t.Errorf("got %v", got)
	}
	before := time.Date(1960, 1, 1, 0, 0, 0, 999999999, time.UTC)
	if got := value.GoMicroTime(value.MicroTime(before)); !got.Equal(before.Truncate(time.Microsecond)) {
		t.Errorf("got %v", got)
	}
}

func TestNoTime(t *testing.T) {
	if value.Time(time.Time{}) != nil || value.MicroTime(time.Time{}) != nil {
		t.Error("the zero time is something")
	}
	if !value.GoTime(nil).IsZero() || !value.GoTime(new(metav1.Time)).IsZero() || !value.GoMicroTime(nil).IsZero() ||
		!value.GoMicroTime(new(metav1.MicroTime)).IsZero() {
		t.Error("nothing is a time")
	}
	epoch := time.Unix(0, 0)
	if got := value.GoTime(value.Time(epoch)); !got.Equal(epoch) {
		t.Errorf("the epoch became %v", got)
	}
	if got := value.GoMicroTime(value.MicroTime(epoch)); !got.Equal(epoch) {
		t.Errorf("the epoch became %v", got)
	}
}

func TestQuantities(t *testing.T) {
	q, err := value.Quantity(value.NewQuantity(resource.MustParse("1024Mi")))
	if err != nil || q.String() != "1Gi" || q.Value() != 1<<30 {
		t.Errorf("got %v, %v", q, err)
	}
	if q, err := value.Quantity(nil); err != nil || !q.IsZero() {
		t.Errorf("got %v, %v", q, err)
	}
	for _, text := range []string{"x", "10000000000000000000001e99999999"} {
		if _, err := value.Quantity(&metav1.Quantity{String_: text}); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
