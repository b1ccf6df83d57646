package core_test

import (
	"strings"
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-13
func TestValidateEvent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Event)
		want   []string
	}{
		"good":           {func(*corev1.Event) {}, nil},
		"names are free": {func(e *corev1.Event) { e.Metadata.Name = "Pod_x.17A" }, nil},
		"but parts of paths": {func(e *corev1.Event) { e.Metadata.Name = "a/b%" },
			[]string{"Invalid metadata.name", "Invalid metadata.name"}},
		"of another place": {func(e *corev1.Event) { e.InvolvedObject.Namespace = "other" },
			[]string{"Invalid involvedObject.namespace"}},
		"of no namespace": {func(e *corev1.Event) { e.InvolvedObject.Namespace = "" }, nil},
		"in the new style, with little else": {
			func(e *corev1.Event) {
				e.EventTime, e.Reason = &metav1.MicroTime{Seconds: 1}, strings.Repeat("x", 200)
			},
			[]string{
				"Required reportingComponent", "Invalid reportingComponent", "Invalid reportingComponent",
				"Required reportingInstance", "Required action", "Invalid reason",
			},
		},
	} {
		e := &corev1.Event{
			Metadata: kindtest.Meta("e", "default"), InvolvedObject: &corev1.ObjectReference{Namespace: "default"},
		}
		c.change(e)
		kindtest.Judge(t, name, core.ValidateEvent(e), c.want...)
	}
}
