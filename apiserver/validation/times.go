package validation

import (
	"time"

	metav1 "monoplane.dev/api/meta/v1"
)

// stamp is what Time and MicroTime have in common.
type stamp interface {
	GetSeconds() int64
	GetNanos() int32
}

// IsZero says whether a time is absent, in any of the forms that the wire knows.
func IsZero(s stamp) bool { return s.GetSeconds() == 0 && s.GetNanos() == 0 || GoTime(s).IsZero() }

// GoTime returns the time that s stands for; for none the beginning of 1970.
func GoTime(s stamp) time.Time { return time.Unix(s.GetSeconds(), int64(s.GetNanos())).UTC() }

// ShownTime is a time as a message repeats it.
func ShownTime(t *metav1.Time) any {
	if t == nil {
		return nil
	}
	return GoTime(t).Format(time.RFC3339)
}
