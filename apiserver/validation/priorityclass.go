package validation

import (
	"fmt"
	"strings"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/apierrors"
)

// The built-in priority classes (PRIO-1).
const (
	SystemNodeCritical         = "system-node-critical"
	SystemNodeCriticalValue    = 2_000_001_000
	SystemClusterCritical      = "system-cluster-critical"
	SystemClusterCriticalValue = 2_000_000_000
)

const (
	// systemClass begins the names that are reserved for the built-in classes.
	systemClass = "system-"
	// highestPriority is the most that other classes may have.
	highestPriority = 1_000_000_000
)

// PriorityClass checks a priority class that is to be created.
func PriorityClass(c *schedulingv1.PriorityClass) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(c.GetMetadata(), nil, false, NameIsSubdomain)
		if strings.HasPrefix(c.GetMetadata().GetName(), systemClass) {
			if wrong := wrongSystemClass(c); wrong != "" {
				f.forbidden(f.root("metadata").Child("name"),
					"priority class names with 'system-' prefix are reserved for system use only. error: "+wrong)
			}
		} else if c.GetValue() > highestPriority {
			f.forbidden(f.root("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestPriority))
		}
		if c != nil && c.PreemptionPolicy != nil {
			f.requiredOneOf(f.root("preemptionPolicy"), c.GetPreemptionPolicy(), "PreemptLowerPriority", "Never")
		}
	}
	return f.causes()
}

// PriorityClassUpdate checks that a change of a priority class is allowed: pods have its value and policy already.
func PriorityClassUpdate(new, old *schedulingv1.PriorityClass) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(new.GetMetadata(), old.GetMetadata(), false, NameIsSubdomain)
		if new.GetValue() != old.GetValue() {
			f.forbidden(f.root("value"), "may not be changed in an update.")
		}
		if !same(new.PreemptionPolicy, old.PreemptionPolicy) {
			f.invalidValue(f.root("preemptionPolicy"), new.PreemptionPolicy, immutable)
		}
	}
	return f.causes()
}

// wrongSystemClass says in what a class with a reserved name differs from the built-in one; empty for nothing.
func wrongSystemClass(c *schedulingv1.PriorityClass) string {
	name := c.GetMetadata().GetName()
	var value int32
	switch name {
	case SystemNodeCritical:
		value = SystemNodeCriticalValue
	case SystemClusterCritical:
		value = SystemClusterCriticalValue
	default:
		return name + " is not a known system priority class"
	}
	switch {
	case c.GetValue() != value:
		return fmt.Sprintf("value of %s PriorityClass must be %d", name, value)
	case c.GetGlobalDefault():
		return fmt.Sprintf("globalDefault of %s PriorityClass must be false", name)
	default:
		return ""
	}
}
