package events_test

import (
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/events"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-13
func TestValidateEvent(t *testing.T) {
	moment := &metav1.MicroTime{Seconds: 1}
	newStyle := func(f func(*eventsv1.Event)) *eventsv1.Event {
		e := &eventsv1.Event{
			Metadata: kindtest.Meta("e", "default"), Regarding: &corev1.ObjectReference{Namespace: "default"},
			EventTime: moment, Type: "Normal",
			ReportingController: "example.com/c", ReportingInstance: "i", Action: "a", Reason: "r",
		}
		f(e)
		return e
	}
	for _, c := range []struct {
		name string
		got  []apierrors.Cause
		want []string
	}{
		{"new event", events.ValidateEvent(newStyle(func(*eventsv1.Event) {})), nil},
		{"bad new event", events.ValidateEvent(newStyle(func(e *eventsv1.Event) {
			e.Type, e.DeprecatedCount, e.Series = "Odd", 1, &eventsv1.EventSeries{Count: 1}
			e.DeprecatedSource = &corev1.EventSource{Host: "h"}
		})), []string{"Invalid series.count", "Required series.lastObservedTime", "Invalid type", "Invalid count",
			"Invalid source"}},
		{"series of a new event", events.ValidateEventUpdate(newStyle(func(e *eventsv1.Event) {
			e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: moment}
		}), newStyle(func(*eventsv1.Event) {})), nil},
		{"other change of a new event",
			events.ValidateEventUpdate(newStyle(func(e *eventsv1.Event) { e.Note, e.Reason = "n", "q" }),
				newStyle(func(*eventsv1.Event) {})),
			[]string{"Invalid reason", "Invalid message"}},
	} {
		kindtest.Judge(t, c.name, c.got, c.want...)
	}
}
