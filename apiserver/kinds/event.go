package kinds

import (
	"strings"
	"time"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/object/intern"
)

// eventTTL is how long an event is kept after its last write (OBJ-13).
const eventTTL = time.Hour

func (Config) event() definition {
	return definition{strategy: registry.Typed[*corev1.Event]{
		Kind:     corev1.EventKind,
		Default:  defaults.Event,
		Validate: validation.Event,
		Main:     registry.TypedResource[*corev1.Event]{Validate: validation.EventUpdate},
		TTL:      eventTTL,
		Indexes:  []string{"involvedObject.uid"},
		Fields: map[string]func(*corev1.Event) string{
			"involvedObject.kind":            func(o *corev1.Event) string { return o.GetInvolvedObject().GetKind() },
			"involvedObject.namespace":       func(o *corev1.Event) string { return o.GetInvolvedObject().GetNamespace() },
			"involvedObject.name":            func(o *corev1.Event) string { return o.GetInvolvedObject().GetName() },
			"involvedObject.uid":             func(o *corev1.Event) string { return o.GetInvolvedObject().GetUid() },
			"involvedObject.apiVersion":      func(o *corev1.Event) string { return o.GetInvolvedObject().GetApiVersion() },
			"involvedObject.resourceVersion": func(o *corev1.Event) string { return o.GetInvolvedObject().GetResourceVersion() },
			"involvedObject.fieldPath":       func(o *corev1.Event) string { return o.GetInvolvedObject().GetFieldPath() },
			"reason":                         (*corev1.Event).GetReason,
			"reportingComponent":             (*corev1.Event).GetReportingComponent,
			"type":                           (*corev1.Event).GetType,
			"source": func(o *corev1.Event) string {
				if c := o.GetSource().GetComponent(); c != "" {
					return c
				}
				return o.GetReportingComponent()
			},
		},
		Table: eventTable{},
		Share: shareEvent,
	}.Strategy()}
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

// eventTable has no column for the name in the first place: what happened, when and to whom comes first.
type eventTable struct{}

// Columns returns the columns.
func (eventTable) Columns() []table.Column {
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
func (eventTable) Cells(o object.Object, now time.Time) []any {
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
