package defaults

import (
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// PriorityClass fills in a priority class.
func PriorityClass(c *schedulingv1.PriorityClass) {
	if c.Metadata == nil {
		c.Metadata = &metav1.ObjectMeta{}
	}
	setPtr(&c.PreemptionPolicy, "PreemptLowerPriority")
}

// NewPriorityClass is PriorityClass plus what creation adds: a generation, which never grows.
func NewPriorityClass(c *schedulingv1.PriorityClass) {
	PriorityClass(c)
	c.Metadata.Generation = 1
}
