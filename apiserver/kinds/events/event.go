// Package events describes the kinds of events.k8s.io: events of the core group in another shape.
package events

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Event serves the events that are stored in the shape of core/v1 as events.k8s.io/v1 (OBJ-13).
func Event(c define.Config) define.Definition {
	return define.Definition{Strategy: core.Event(c).Strategy, View: &registry.View{
		Kind: eventsv1.EventKind,
		In:   func(o object.Object) object.Object { return toCore(o.(*eventsv1.Event)) },
		Out:  func(o object.Object) object.Object { return fromCore(o.(*corev1.Event)) },
		Validate: func(o object.Object) []apierrors.Cause {
			return ValidateEvent(o.(*eventsv1.Event))
		},
		ValidateUpdate: func(next, live object.Object) []apierrors.Cause {
			return ValidateEventUpdate(next.(*eventsv1.Event), live.(*eventsv1.Event))
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
	}}
}

// controllerField is what reportingComponent is called here.
const controllerField = "reportingController"

func toCore(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		Metadata: e.GetMetadata(), InvolvedObject: e.GetRegarding(), Related: e.GetRelated(),
		Reason: e.GetReason(), Message: e.GetNote(), Type: e.GetType(), Action: e.GetAction(),
		EventTime: e.GetEventTime(), ReportingComponent: e.GetReportingController(),
		ReportingInstance: e.GetReportingInstance(),
		Source:            e.GetDeprecatedSource(), FirstTimestamp: e.GetDeprecatedFirstTimestamp(),
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
		EventTime: e.GetEventTime(), ReportingController: e.GetReportingComponent(),
		ReportingInstance: e.GetReportingInstance(),
		DeprecatedSource:  e.GetSource(), DeprecatedFirstTimestamp: e.GetFirstTimestamp(),
		DeprecatedLastTimestamp: e.GetLastTimestamp(), DeprecatedCount: e.GetCount(),
	}
	if s := e.GetSeries(); s != nil {
		out.Series = &eventsv1.EventSeries{Count: s.GetCount(), LastObservedTime: s.GetLastObservedTime()}
	}
	return out
}

// ValidateEvent checks an event of events.k8s.io/v1 that is to be created (OBJ-13). The paths of the faults are those
// of core/v1, as in Kubernetes, so that it is checked as it is stored.
func ValidateEvent(e *eventsv1.Event) []apierrors.Cause {
	f, x := &validation.Faults{}, toCore(e)
	for f.Pass() {
		core.CheckEvent(f, x, controllerField)
		f.CoreMeta(e.GetMetadata(), nil, true, validation.NameIsSubdomain)
		checkSeries(f, x.GetSeries())
		if validation.IsZero(x.GetEventTime()) {
			f.Required(f.Root("eventTime"), "")
		}
		if x.GetType() != "Normal" && x.GetType() != "Warning" {
			f.Invalid(f.Root("type"), "", "has invalid value: "+validation.Shorten(x.GetType()))
		}
		for _, old := range []struct {
			name string
			set  bool
		}{
			{"firstTimestamp", !validation.IsZero(x.GetFirstTimestamp())},
			{"lastTimestamp", !validation.IsZero(x.GetLastTimestamp())},
			{"count", x.GetCount() != 0},
			{"source", x.GetSource().GetComponent() != "" || x.GetSource().GetHost() != ""},
		} {
			if old.set {
				f.Invalid(f.Root(old.name), "", "needs to be unset")
			}
		}
	}
	return f.Causes()
}

// ValidateEventUpdate checks that a change of an event of events.k8s.io/v1 is allowed: only its series grows.
func ValidateEventUpdate(new, old *eventsv1.Event) []apierrors.Cause {
	now, was := toCore(new), toCore(old)
	f := &validation.Faults{}
	for f.Pass() {
		core.CheckEvent(f, now, controllerField)
		// It may have been created through core/v1, whose rule for names is laxer.
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsPathSegment)
		if !proto.Equal(new.GetSeries(), old.GetSeries()) {
			checkSeries(f, now.GetSeries())
		}
		checkUnchanged(f, now, was)
	}
	return f.Causes()
}

// checkUnchanged refuses every other change than one of the series.
func checkUnchanged(f *validation.Faults, now, was *corev1.Event) {
	sameTime := func(a, b *metav1.Time) bool { return proto.Equal(validation.OrZero(a), validation.OrZero(b)) }
	at, wasAt := validation.GoTime(now.GetEventTime()), validation.GoTime(was.GetEventTime())
	for _, x := range []struct {
		name  string
		same  bool
		shown any
	}{
		{
			"involvedObject", validation.Equal(now.GetInvolvedObject(), was.GetInvolvedObject()),
			now.GetInvolvedObject().GetName(),
		},
		{"reason", now.GetReason() == was.GetReason(), now.GetReason()},
		{"message", now.GetMessage() == was.GetMessage(), now.GetMessage()},
		{"source", validation.Equal(now.GetSource(), was.GetSource()), now.GetSource().GetComponent()},
		{
			"firstTimestamp", sameTime(now.GetFirstTimestamp(), was.GetFirstTimestamp()),
			validation.ShownTime(now.GetFirstTimestamp()),
		},
		{
			"lastTimestamp", sameTime(now.GetLastTimestamp(), was.GetLastTimestamp()),
			validation.ShownTime(now.GetLastTimestamp()),
		},
		{"count", now.GetCount() == was.GetCount(), now.GetCount()},
		{"type", now.GetType() == was.GetType(), now.GetType()},
		{
			"eventTime", at.Truncate(time.Microsecond).Equal(wasAt.Truncate(time.Microsecond)), at.Format(time.RFC3339Nano),
		},
		{"action", now.GetAction() == was.GetAction(), now.GetAction()},
		{
			"related",
			(now.GetRelated() == nil) == (was.GetRelated() == nil) && validation.Equal(now.GetRelated(), was.GetRelated()),
			now.GetRelated().GetName(),
		},
		{"reportingController", now.GetReportingComponent() == was.GetReportingComponent(), now.GetReportingComponent()},
		{"reportingInstance", now.GetReportingInstance() == was.GetReportingInstance(), now.GetReportingInstance()},
	} {
		if !x.same {
			f.InvalidValue(f.Root(x.name), x.shown, validation.Immutable)
		}
	}
}

func checkSeries(f *validation.Faults, s *corev1.EventSeries) {
	if s == nil {
		return
	}
	if s.GetCount() < 2 {
		f.Invalid(f.Root("series.count"), "", "should be at least 2")
	}
	if validation.IsZero(s.GetLastObservedTime()) {
		f.Required(f.Root("series.lastObservedTime"), "")
	}
}
