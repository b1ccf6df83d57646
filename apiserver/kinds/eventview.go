package kinds

import (
	"strings"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
)

// eventsV1 serves the events that are stored in the shape of core/v1 as events.k8s.io/v1 (OBJ-13).
func (c Config) eventsV1() definition {
	return definition{strategy: c.event().strategy, view: &registry.View{
		Kind: eventsv1.EventKind,
		In:   func(o object.Object) object.Object { return toCore(o.(*eventsv1.Event)) },
		Out:  func(o object.Object) object.Object { return fromCore(o.(*corev1.Event)) },
		Validate: func(o object.Object) []apierrors.Cause {
			return validation.EventsEvent(o.(*eventsv1.Event))
		},
		ValidateUpdate: func(next, live object.Object) []apierrors.Cause {
			return validation.EventsEventUpdate(next.(*eventsv1.Event), live.(*eventsv1.Event))
		},
		Field: func(name string) (string, bool) {
			if of, ok := strings.CutPrefix(name, "regarding."); ok {
				return "involvedObject." + of, true
			}
			switch name {
			case "reason", "type":
				return name, true
			case "reportingController":
				return "reportingComponent", true
			default:
				return "", false
			}
		},
		Table: eventViewTable{},
	}}
}

func toCore(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		Metadata: e.GetMetadata(), InvolvedObject: e.GetRegarding(), Related: e.GetRelated(),
		Reason: e.GetReason(), Message: e.GetNote(), Type: e.GetType(), Action: e.GetAction(),
		EventTime: e.GetEventTime(), ReportingComponent: e.GetReportingController(), ReportingInstance: e.GetReportingInstance(),
		Source: e.GetDeprecatedSource(), FirstTimestamp: e.GetDeprecatedFirstTimestamp(),
		LastTimestamp: e.GetDeprecatedLastTimestamp(), Count: e.GetDeprecatedCount(),
	}
	if s := e.GetSeries(); s != nil {
		out.Series = &corev1.EventSeries{Count: s.GetCount(), LastObservedTime: s.GetLastObservedTime()}
	}
	return out
}

func fromCore(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		Metadata: e.GetMetadata(), Regarding: e.GetInvolvedObject(), Related: e.GetRelated(),
		Reason: e.GetReason(), Note: e.GetMessage(), Type: e.GetType(), Action: e.GetAction(),
		EventTime: e.GetEventTime(), ReportingController: e.GetReportingComponent(), ReportingInstance: e.GetReportingInstance(),
		DeprecatedSource: e.GetSource(), DeprecatedFirstTimestamp: e.GetFirstTimestamp(),
		DeprecatedLastTimestamp: e.GetLastTimestamp(), DeprecatedCount: e.GetCount(),
	}
	if s := e.GetSeries(); s != nil {
		out.Series = &eventsv1.EventSeries{Count: s.GetCount(), LastObservedTime: s.GetLastObservedTime()}
	}
	return out
}

// eventViewTable shows both kinds of events alike.
type eventViewTable struct{ eventTable }

// Cells returns the cells of one event, of either kind.
func (t eventViewTable) Cells(o object.Object, now time.Time) []any {
	if e, ok := o.(*eventsv1.Event); ok {
		return t.eventTable.Cells(toCore(e), now)
	}
	return t.eventTable.Cells(o, now)
}

var _ table.Definition = eventViewTable{}
