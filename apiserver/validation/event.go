package validation

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

const (
	maxEventText = 128  // bytes of the reason, the action and the reporting instance
	maxEventNote = 1024 // bytes of the message
)

// event is what events of core/v1 and of events.k8s.io/v1 have in common. The paths of the faults are those
// of core/v1, whichever was sent, as in Kubernetes.
type event struct {
	meta                        *metav1.ObjectMeta
	object, related             *corev1.ObjectReference
	time                        *metav1.MicroTime
	reason, message, action     string
	kind                        string
	controller, controllerField string
	instance                    string
	source                      *corev1.EventSource
	first, last                 *metav1.Time
	count                       int32
	series                      bool
	seriesCount                 int32
	seriesTime                  *metav1.MicroTime
}

func coreEvent(e *corev1.Event) event {
	return event{
		meta: e.GetMetadata(), object: e.GetInvolvedObject(), related: e.GetRelated(), time: e.GetEventTime(),
		reason: e.GetReason(), message: e.GetMessage(), action: e.GetAction(), kind: e.GetType(),
		controller: e.GetReportingComponent(), controllerField: "reportingComponent",
		instance: e.GetReportingInstance(), source: e.GetSource(),
		first: e.GetFirstTimestamp(), last: e.GetLastTimestamp(), count: e.GetCount(),
		series: e.GetSeries() != nil, seriesCount: e.GetSeries().GetCount(), seriesTime: e.GetSeries().GetLastObservedTime(),
	}
}

func newEvent(e *eventsv1.Event) event {
	return event{
		meta: e.GetMetadata(), object: e.GetRegarding(), related: e.GetRelated(), time: e.GetEventTime(),
		reason: e.GetReason(), message: e.GetNote(), action: e.GetAction(), kind: e.GetType(),
		controller: e.GetReportingController(), controllerField: "reportingController",
		instance: e.GetReportingInstance(), source: e.GetDeprecatedSource(),
		first: e.GetDeprecatedFirstTimestamp(), last: e.GetDeprecatedLastTimestamp(), count: e.GetDeprecatedCount(),
		series: e.GetSeries() != nil, seriesCount: e.GetSeries().GetCount(), seriesTime: e.GetSeries().GetLastObservedTime(),
	}
}

// Event checks an event of core/v1 that is to be created (OBJ-13).
func Event(e *corev1.Event) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMeta(e.GetMetadata(), true, NameIsPathSegment)
		f.event(coreEvent(e))
	}
	return f.causes()
}

// EventUpdate checks that a change of an event of core/v1 is allowed.
func EventUpdate(new, old *corev1.Event) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		f.objectMeta(new.GetMetadata(), true, NameIsPathSegment)
		f.event(coreEvent(new))
	}
	return f.causes()
}

// EventsEvent checks an event of events.k8s.io/v1 that is to be created (OBJ-13).
func EventsEvent(e *eventsv1.Event) []apierrors.Cause {
	var f faults
	for f.pass() {
		x := newEvent(e)
		f.event(x)
		f.core(e.GetMetadata(), nil, true, NameIsSubdomain)
		f.series(x)
		if isZero(x.time) {
			f.required(f.root("eventTime"), "")
		}
		if x.kind != "Normal" && x.kind != "Warning" {
			f.invalid(f.root("type"), "", "has invalid value: "+shorten(x.kind))
		}
		for _, old := range []struct {
			name string
			set  bool
		}{
			{"firstTimestamp", !isZero(x.first)},
			{"lastTimestamp", !isZero(x.last)},
			{"count", x.count != 0},
			{"source", x.source.GetComponent() != "" || x.source.GetHost() != ""},
		} {
			if old.set {
				f.invalid(f.root(old.name), "", "needs to be unset")
			}
		}
	}
	return f.causes()
}

// EventsEventUpdate checks that a change of an event of events.k8s.io/v1 is allowed: only its series grows.
func EventsEventUpdate(new, old *eventsv1.Event) []apierrors.Cause {
	var f faults
	for f.pass() {
		now, was := newEvent(new), newEvent(old)
		f.event(now)
		// It may have been created through core/v1, whose rule for names is laxer.
		f.core(new.GetMetadata(), old.GetMetadata(), true, NameIsPathSegment)
		if !proto.Equal(new.GetSeries(), old.GetSeries()) {
			f.series(now)
		}
		for _, x := range []struct {
			name  string
			same  bool
			shown any
		}{
			{"involvedObject", Equal(now.object, was.object), now.object.GetName()},
			{"reason", now.reason == was.reason, now.reason},
			{"message", now.message == was.message, now.message},
			{"source", Equal(now.source, was.source), now.source.GetComponent()},
			{"firstTimestamp", proto.Equal(orZero(now.first), orZero(was.first)), shownTime(now.first)},
			{"lastTimestamp", proto.Equal(orZero(now.last), orZero(was.last)), shownTime(now.last)},
			{"count", now.count == was.count, now.count},
			{"type", now.kind == was.kind, now.kind},
			{
				"eventTime", goTime(now.time).Truncate(time.Microsecond).Equal(goTime(was.time).Truncate(time.Microsecond)),
				goTime(now.time).Format(time.RFC3339Nano),
			},
			{"action", now.action == was.action, now.action},
			{"related", (now.related == nil) == (was.related == nil) && Equal(now.related, was.related), now.related.GetName()},
			{"reportingController", now.controller == was.controller, now.controller},
			{"reportingInstance", now.instance == was.instance, now.instance},
		} {
			if !x.same {
				f.invalidValue(f.root(x.name), x.shown, immutable)
			}
		}
	}
	return f.causes()
}

func (f *faults) series(e event) {
	if !e.series {
		return
	}
	if e.seriesCount < 2 {
		f.invalid(f.root("series.count"), "", "should be at least 2")
	}
	if isZero(e.seriesTime) {
		f.required(f.root("series.lastObservedTime"), "")
	}
}

// event checks what every event must be. An event lives in the namespace of its object; events about
// cluster-scoped objects live in "default". Only events in the new style, with an eventTime, are checked
// further.
func (f *faults) event(e event) {
	ns, about := e.meta.GetNamespace(), e.object.GetNamespace()
	fits := ns == about
	if about == "" {
		fits = ns == "default" || ns == "" && isZero(e.time) || ns == "kube-system" && !isZero(e.time)
	} else if !isZero(e.time) {
		fits = true
	}
	if !fits {
		f.invalid(f.root("involvedObject").Child("namespace"), about, "does not match event.namespace")
	}
	for _, msg := range wrongSubdomain(ns) {
		f.invalid(f.root("namespace"), ns, msg)
	}
	if isZero(e.time) {
		return
	}
	if e.controller == "" {
		f.required(f.root(e.controllerField), "")
	}
	f.qualified(f.root(e.controllerField), e.controller)
	for _, t := range []struct{ name, text string }{
		{"reportingInstance", e.instance}, {"action", e.action}, {"reason", e.reason},
	} {
		if t.text == "" {
			f.required(f.root(t.name), "")
		}
		if len(t.text) > maxEventText {
			f.invalid(f.root(t.name), "", fmt.Sprintf("can have at most %v characters", maxEventText))
		}
	}
	if len(e.message) > maxEventNote {
		f.invalid(f.root("message"), "", fmt.Sprintf("can have at most %v characters", maxEventNote))
	}
}
