// Package shutdown decides in which order the pods of a machine end that is about to go down, and how long each may
// take: the less important first, each class within a part of the time that there is. It is pure.
package shutdown

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// What is said of pods that end so, in kubelets' words.
const (
	// Reason is their reason, and Message says it in words; the condition DisruptionTarget has it too.
	Reason  = "Terminated"
	Message = "Pod was terminated in response to imminent node shutdown."
	// RejectReason and RejectMessage are those of pods that come meanwhile.
	RejectReason  = "NodeShutdown"
	RejectMessage = "Pod was rejected as the node is shutting down."
)

// systemCritical is the least priority of pods on which the system depends.
const systemCritical = 2_000_000_000

// Class is the pods from a priority on, up to the next class.
type Class struct {
	Priority int32
	// Period is the time that the class has, from when the one before it has ended.
	Period time.Duration
}

// Plan says how much time there is. The zero plan has none: pods are not ended.
type Plan []Class

// Split returns the plan that leaves critical pods the last part of a period.
func Split(period, critical time.Duration) (Plan, error) {
	switch {
	case period < 0 || critical < 0 || critical > period:
		return nil, fmt.Errorf("of a shutdown that takes %s at most, critical pods cannot have %s", period, critical)
	case period == 0:
		return nil, nil
	}
	return Plan{{0, period - critical}, {systemCritical, critical}}, nil
}

// Check returns what is wrong with a plan.
func (p Plan) Check() error {
	var errs []error
	seen := make(map[int32]bool)
	for _, c := range p {
		if c.Period < 0 {
			errs = append(errs, fmt.Errorf("pods of priority %d have %s to end", c.Priority, c.Period))
		}
		if seen[c.Priority] {
			errs = append(errs, fmt.Errorf("the time for pods of priority %d is there twice", c.Priority))
		}
		seen[c.Priority] = true
	}
	return errors.Join(errs...)
}

// Total is how long all classes may take together.
func (p Plan) Total() time.Duration {
	var sum time.Duration
	for _, c := range p {
		sum += c.Period
	}
	return sum
}

// Group is a class with its pods.
type Group struct {
	Class
	Pods []*corev1.Pod
}

// Groups returns the pods in the order in which they end. A pod belongs to the highest class that it reaches; what is
// below all belongs to the lowest. Classes without pods are left out, and take no time.
func (p Plan) Groups(pods []*corev1.Pod) []Group {
	if len(p) == 0 {
		return nil
	}
	groups := make([]Group, 0, len(p))
	for _, c := range p {
		groups = append(groups, Group{Class: c})
	}
	slices.SortFunc(groups, func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, pod := range pods {
		at := 0
		for i := range groups {
			if pod.GetSpec().GetPriority() >= groups[i].Priority {
				at = i
			}
		}
		groups[at].Pods = append(groups[at].Pods, pod)
	}
	return slices.DeleteFunc(groups, func(g Group) bool { return len(g.Pods) == 0 })
}
