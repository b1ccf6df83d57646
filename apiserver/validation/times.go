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

// isZero says whether a time is absent, in any of the forms that the wire knows.
func isZero(s stamp) bool { return s.GetSeconds() == 0 && s.GetNanos() == 0 || goTime(s).IsZero() }

func goTime(s stamp) time.Time { return time.Unix(s.GetSeconds(), int64(s.GetNanos())).UTC() }

// shownTime is a time as a message repeats it.
func shownTime(t *metav1.Time) any {
	if t == nil {
		return nil
	}
	return goTime(t).Format(time.RFC3339)
}
