package apiserver_test

import (
	"slices"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	eventsv1 "monoplane.dev/api/events/v1"
	eventsv1rpc "monoplane.dev/api/events/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// What a new event must be does not matter to an update of an old one, and what a new event may say freely cannot be
// changed later: through events.k8s.io only the metadata and the series change. spec: OBJ-13
func TestEventUpdatesHaveRulesOfTheirOwn(t *testing.T) {
	c := start(t)
	admin := c.admin()
	// An event in the old style, as client-go's older recorders write it, under a name that only core/v1 allows.
	must(admin.Events.Create(ctx(t), &corev1rpc.CreateEventRequest{Namespace: "default", Object: &corev1.Event{
		Metadata: &metav1.ObjectMeta{Name: "Old_1"}, Reason: "Tested", Message: "all is well", Type: "Normal", Count: 3,
		InvolvedObject: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", Uid: "u1"},
		Source:         &corev1.EventSource{Component: "tester"},
		FirstTimestamp: value.Time(epoch), LastTimestamp: value.Time(epoch),
	}}))(t)
	must(admin.EventsV1.Create(ctx(t), &eventsv1rpc.CreateEventRequest{Namespace: "default", Object: &eventsv1.Event{
		Metadata: &metav1.ObjectMeta{Name: "new.1"}, Reason: "Tested", Note: "all is well", Type: "Normal",
		Action:    "Testing",
		EventTime: value.MicroTime(epoch), ReportingController: "example.com/tester", ReportingInstance: "t-1",
		Regarding: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", Uid: "u1"},
	}}))(t)
	patch := func(name, body string) (*eventsv1.Event, error) {
		return admin.EventsV1.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: name,
			PatchType: "application/merge-patch+json", Patch: []byte(body)})
	}
	for _, x := range []struct {
		name, body string
		fields     []string // that are refused
	}{
		{"Old_1", `{"metadata":{"labels":{"a":"b"}}}`, nil},
		{"new.1", `{"metadata":{"labels":{"a":"b"}}}`, nil},
		{"new.1", `{"series":{"count":2,"lastObservedTime":"2026-03-01T12:00:01.000000Z"}}`, nil},
		{"new.1", `{"series":{"count":1,"lastObservedTime":"2026-03-01T12:00:01.000000Z"}}`, []string{"series.count"}},
		{"new.1", `{"note":"all is lost","type":"Warning"}`, []string{"message", "type"}},
		{"new.1", `{"regarding":{"name":"db"}}`, []string{"involvedObject"}},
		{"Old_1", `{"deprecatedCount":4}`, []string{"count"}},
	} {
		_, err := patch(x.name, x.body)
		var fields []string
		if err != nil {
			for _, cause := range apierrors.From(err).Status().GetDetails().GetCauses() {
				fields = append(fields, cause.Field)
			}
		}
		if !slices.Equal(fields, x.fields) || (err != nil) != (len(x.fields) > 0) {
			t.Errorf("%s %s: %v, want %v refused", x.name, x.body, err, x.fields)
		}
	}
	// In core/v1 recorders count on the object itself.
	if _, err := admin.Events.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "Old_1",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"count":4,"message":"all is still well"}`)}); err != nil {
		t.Error(err)
	}
}
