package core

import (
	"fmt"
	"strings"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/internal/intern"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// eventTTL is how long an event is kept after its last write (OBJ-13).
const eventTTL = time.Hour

// Event describes the kind. Events go by themselves after a while.
func Event(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.Event]{
		Kind:           corev1.EventKind,
		CreateOnUpdate: true,
		Default:        DefaultEvent,
		Validate:       ValidateEvent,
		Main:           registry.TypedUpdateRules[*corev1.Event]{Validate: ValidateEventUpdate},
		// Events are never owners.
		Dependents: propagation.None,
		TTL:        eventTTL,
		Indexes:    []string{"involvedObject.uid"},
		Fields: map[string]func(*corev1.Event) string{
			"involvedObject.kind":       func(o *corev1.Event) string { return o.GetInvolvedObject().GetKind() },
			"involvedObject.namespace":  func(o *corev1.Event) string { return o.GetInvolvedObject().GetNamespace() },
			"involvedObject.name":       func(o *corev1.Event) string { return o.GetInvolvedObject().GetName() },
			"involvedObject.uid":        func(o *corev1.Event) string { return o.GetInvolvedObject().GetUid() },
			"involvedObject.apiVersion": func(o *corev1.Event) string { return o.GetInvolvedObject().GetApiVersion() },
			"involvedObject.resourceVersion": func(o *corev1.Event) string {
				return o.GetInvolvedObject().GetResourceVersion()
			},
			"involvedObject.fieldPath": func(o *corev1.Event) string { return o.GetInvolvedObject().GetFieldPath() },
			"reason":                   (*corev1.Event).GetReason,
			"reportingComponent":       (*corev1.Event).GetReportingComponent,
			"type":                     (*corev1.Event).GetType,
			"source": func(o *corev1.Event) string {
				if c := o.GetSource().GetComponent(); c != "" {
					return c
				}
				return o.GetReportingComponent()
			},
		},
		Table: EventTable{},
		Share: shareEvent,
	}.Strategy()}
}

// DefaultEvent fills in an event of core/v1.
func DefaultEvent(e *corev1.Event) {
	defaults.Message(&e.Metadata)
	defaults.Message(&e.InvolvedObject)
	defaults.Message(&e.Source)
}

const (
	maxEventText = 128  // bytes of the reason, the action and the reporting instance
	maxEventNote = 1024 // bytes of the message
)

// ValidateEvent checks an event of core/v1 that is to be created (OBJ-13).
func ValidateEvent(e *corev1.Event) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMeta(e.GetMetadata(), true, validation.NameIsPathSegment)
		CheckEvent(f, e, "reportingComponent")
	}
	return f.Causes()
}

// ValidateEventUpdate checks that a change of an event of core/v1 is allowed.
func ValidateEventUpdate(new, old *corev1.Event) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		f.ObjectMeta(new.GetMetadata(), true, validation.NameIsPathSegment)
		CheckEvent(f, new, "reportingComponent")
	}
	return f.Causes()
}

// CheckEvent checks what every event must be, in whichever group it was sent; controllerField is the name of its
// reportingComponent there, while all other paths are those of core/v1, as in Kubernetes. An event lives in the
// namespace of its object; events about cluster-scoped objects live in "default". Only events in the new style, with
// an eventTime, are checked further.
func CheckEvent(f *validation.Faults, e *corev1.Event, controllerField string) {
	ns, about := e.GetMetadata().GetNamespace(), e.GetInvolvedObject().GetNamespace()
	timed := !validation.IsZero(e.GetEventTime())
	fits := ns == about
	if about == "" {
		fits = ns == "default" || ns == "" && !timed || ns == "kube-system" && timed
	} else if timed {
		fits = true
	}
	if !fits {
		f.Invalid(f.Root("involvedObject").Child("namespace"), about, "does not match event.namespace")
	}
	for _, msg := range validation.WrongSubdomain(ns) {
		f.Invalid(f.Root("namespace"), ns, msg)
	}
	if !timed {
		return
	}
	controller := e.GetReportingComponent()
	if controller == "" {
		f.Required(f.Root(controllerField), "")
	}
	f.Qualified(f.Root(controllerField), controller)
	for _, t := range []struct{ name, text string }{
		{"reportingInstance", e.GetReportingInstance()}, {"action", e.GetAction()}, {"reason", e.GetReason()},
	} {
		if t.text == "" {
			f.Required(f.Root(t.name), "")
		}
		if len(t.text) > maxEventText {
			f.Invalid(f.Root(t.name), "", fmt.Sprintf("can have at most %v characters", maxEventText))
		}
	}
	if len(e.GetMessage()) > maxEventNote {
		f.Invalid(f.Root("message"), "", fmt.Sprintf("can have at most %v characters", maxEventNote))
	}
}

// EventTable shows events. It has no column for the name in the first place: what happened, when and to whom comes
// first.
type EventTable struct{}

// Columns returns the columns.
func (EventTable) Columns() []table.Column {
	return []table.Column{
		{Name: "Last Seen", Type: "string", Description: "Time since it last happened."},
		{Name: "Type", Type: "string", Description: "Normal or Warning."},
		{Name: "Reason", Type: "string", Description: "Why, as one word for machines."},
		{Name: "Object", Type: "string", Description: "What it happened to."},
		{Name: "Subobject", Type: "string", Priority: 1, Description: "Part of the object that it happened to."},
		{Name: "Source", Type: "string", Priority: 1, Description: "Who reports it."},
		{Name: "Message", Type: "string", Description: "What happened, for people."},
		{Name: "First Seen", Type: "string", Priority: 1, Description: "Time since it first happened."},
		{Name: "Count", Type: "string", Priority: 1, Description: "How often it happened."},
		{Name: "Name", Type: "string", Format: "name", Priority: 1, Description: "Name of the event."},
	}
}

// Cells returns the cells of one event.
func (EventTable) Cells(o object.Object, now time.Time) []any {
	e, ok := o.(*corev1.Event)
	if !ok {
		return make([]any, 10)
	}
	first, last, count := seen(e)
	about := strings.ToLower(e.GetInvolvedObject().GetKind())
	if name := e.GetInvolvedObject().GetName(); name != "" {
		about += "/" + name
	}
	return []any{
		table.Age(last, now), e.GetType(), e.GetReason(), about, e.GetInvolvedObject().GetFieldPath(), reporter(e),
		strings.TrimSpace(e.GetMessage()), table.Age(first, now), int64(count), e.GetMetadata().GetName(),
	}
}

// seen returns when an event happened first and last, and how often, whichever of its two shapes it has.
func seen(e *corev1.Event) (first, last *metav1.Time, count int32) {
	first, last, count = e.GetFirstTimestamp(), e.GetLastTimestamp(), e.GetCount()
	if value.GoTime(first).IsZero() {
		first = value.Time(value.GoMicroTime(e.GetEventTime()))
	}
	if value.GoTime(last).IsZero() {
		last = first
	}
	if s := e.GetSeries(); s != nil {
		last, count = value.Time(value.GoMicroTime(s.GetLastObservedTime())), s.GetCount()
	} else if count == 0 {
		count = 1
	}
	return first, last, count
}

func reporter(e *corev1.Event) string {
	who, where := e.GetSource().GetComponent(), e.GetSource().GetHost()
	if who == "" {
		who, where = e.GetReportingComponent(), e.GetReportingInstance()
	}
	if where == "" {
		return who
	}
	return who + ", " + where
}

// shareEvent replaces what many events have alike.
func shareEvent(pool *intern.Pool, o, _ *corev1.Event) {
	o.Source = intern.Message(pool, o.Source)
	o.Metadata.CreationTimestamp = intern.Message(pool, o.Metadata.CreationTimestamp)
	o.FirstTimestamp, o.LastTimestamp = intern.Message(pool, o.FirstTimestamp), intern.Message(pool, o.LastTimestamp)
	intern.Texts(pool, &o.Metadata.Namespace, &o.Type, &o.Reason, &o.Action, &o.ReportingComponent, &o.ReportingInstance)
	if ref := o.InvolvedObject; ref != nil {
		intern.Texts(pool, &ref.Kind, &ref.Namespace, &ref.ApiVersion, &ref.FieldPath)
	}
}
