package priority

import (
	"testing"

	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// spec: PRIO-1, PRIO-2
func TestTheLowestDefaultCounts(t *testing.T) {
	class := func(name string, value int32, isDefault bool) object.Object {
		return &schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
	}
	for _, c := range []struct {
		name string
		in   []object.Object
		want string
	}{
		{"no class", nil, ""},
		{"no default", []object.Object{class("a", 1, false)}, ""},
		{"one", []object.Object{class("a", -5, false), class("b", 2, true)}, "b"},
		{"two, the lower last", []object.Object{class("a", 3, true), class("b", -2, true)}, "b"},
		{"two, the lower first", []object.Object{class("a", 1, true), class("b", 2, true)}, "a"},
		{"two of one value", []object.Object{class("a", 1, true), class("b", 1, true)}, "a"},
	} {
		if got := lowestDefault(c.in).GetMetadata().GetName(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
