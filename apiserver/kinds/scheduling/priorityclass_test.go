package scheduling_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/scheduling"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// spec: PRIO-1, PRIO-4
func TestPriorityClass(t *testing.T) {
	const reserved = "Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "
	type class = schedulingv1.PriorityClass
	for _, c := range []struct {
		name   string
		change func(*class)
		want   string
	}{
		{"high", func(*class) {}, ""},
		{"highest", func(c *class) { c.Value = 1_000_000_000 }, ""},
		{"lowest", func(c *class) { c.Value = -2147483648 }, ""},
		{"default", func(c *class) { c.GlobalDefault = true }, ""},
		{"never", func(c *class) { c.PreemptionPolicy = proto.String("Never") }, ""},
		{"systemic", func(*class) {}, ""},
		{"system-node-critical", func(c *class) { c.Value = 2_000_001_000 }, ""},
		{"system-cluster-critical", func(c *class) { c.Value = 2_000_000_000 }, ""},
		{"too-high", func(c *class) { c.Value = 1_000_000_001 },
			"Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		{"policy", func(c *class) { c.PreemptionPolicy = proto.String("Always") },
			`Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"`},
		{"empty-policy", func(c *class) { c.PreemptionPolicy = proto.String("") }, "Required value"},
		{"system-mine", func(*class) {}, reserved + "system-mine is not a known system priority class"},
		{"system-node-critical", func(c *class) { c.Value = 1 },
			reserved + "value of system-node-critical PriorityClass must be 2000001000"},
		{"system-cluster-critical", func(c *class) { c.Value = 2_000_000_000; c.GlobalDefault = true },
			reserved + "globalDefault of system-cluster-critical PriorityClass must be false"},
		{"namespaced", func(c *class) { c.Metadata.Namespace = "default" }, "Forbidden: not allowed on this type"},
	} {
		o := &class{Metadata: kindtest.Meta(c.name, ""), Value: 1, PreemptionPolicy: proto.String("PreemptLowerPriority")}
		c.change(o)
		got := ""
		if causes := scheduling.ValidatePriorityClass(o); len(causes) > 0 {
			got = causes[0].Message
		}
		if got != c.want {
			t.Errorf("%s %d:\ngot  %s\nwant %s", c.name, o.Value, got, c.want)
		}
	}
}

// spec: PRIO-1, PRIO-4
func TestPriorityClassUpdate(t *testing.T) {
	type class = schedulingv1.PriorityClass
	for _, c := range []struct {
		name   string
		change func(*class)
		want   string
	}{
		{"nothing", func(*class) {}, ""},
		{"description", func(c *class) { c.Description = "d" }, ""},
		{"globalDefault", func(c *class) { c.GlobalDefault = true }, ""},
		{"value", func(c *class) { c.Value = 2 }, "value: Forbidden: may not be changed in an update."},
		{"policy", func(c *class) { c.PreemptionPolicy = proto.String("PreemptLowerPriority") },
			`preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable`},
		{"policy away", func(c *class) { c.PreemptionPolicy = nil },
			`preemptionPolicy: Invalid value: null: field is immutable`},
	} {
		old := &class{Metadata: kindtest.Meta("c", ""), Value: 1, PreemptionPolicy: proto.String("Never")}
		next := old.Clone()
		c.change(next)
		got := ""
		if causes := scheduling.ValidatePriorityClassUpdate(next, old); len(causes) > 0 {
			got = causes[0].Field + ": " + causes[0].Message
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}
