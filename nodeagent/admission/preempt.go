package admission

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/qos"
	rules "monoplane.dev/rules/resources"
)

// need is how much of a resource must become free.
type need struct {
	resource string
	quantity int64
}

// candidate is a pod that may have to go.
type candidate struct {
	pod      *corev1.Pod
	requests rules.List
}

// victims returns the pods that make room for the pod when they go: as few as can be, and guaranteed ones only where
// the others do not suffice, burstable ones only where best-effort ones do not. What is leaving anyway counts first.
// The error says that there is no such set.
func victims(r *Request, lacks []shortage) ([]*corev1.Pod, error) {
	var needs []need
	for _, s := range lacks {
		needs = append(needs, need{s.resource, s.missing()})
	}
	classes := map[string][]candidate{}
	for _, o := range r.Others {
		c := candidate{o.Pod, rules.Requests(o.Pod.GetSpec())}
		switch {
		case o.Leaving:
			needs = without(needs, c)
		case preemptable(r, o):
			class := qos.Of(o.Pod)
			classes[class] = append(classes[class], c)
		}
	}
	best, burst, guaranteed := classes[qos.BestEffort], classes[qos.Burstable], classes[qos.Guaranteed]
	if left := without(needs, slices.Concat(best, burst, guaranteed)...); len(left) > 0 {
		return nil, fmt.Errorf("preemption: error finding a set of pods to preempt: no set of running pods found to "+
			"reclaim resources: %s", words(left))
	}
	first := choose(guaranteed, without(needs, slices.Concat(best, burst)...))
	second := choose(burst, without(needs, slices.Concat(best, first)...))
	third := choose(best, without(needs, slices.Concat(second, first)...))
	var out []*corev1.Pod
	for _, c := range slices.Concat(third, second, first) {
		out = append(out, c.pod)
	}
	return out, nil
}

// without returns what is still needed once some pods have gone.
func without(needs []need, gone ...candidate) []need {
	var out []need
	for _, n := range needs {
		for _, c := range gone {
			n.quantity -= requestOf(c.requests, n.resource)
		}
		if n.quantity > 0 {
			out = append(out, n)
		}
	}
	return out
}

// choose returns pods that meet the needs, one after the other that which leaves least to be met; among equals that
// which asks for less. Together the candidates meet them.
func choose(from []candidate, needs []need) []candidate {
	from = slices.Clone(from)
	var out []candidate
	for len(needs) > 0 && len(from) > 0 {
		best := 0
		for i := range from {
			a, b := distance(needs, from[i]), distance(needs, from[best])
			if a < b || a == b && smaller(from[i], from[best]) {
				best = i
			}
		}
		out = append(out, from[best])
		needs = without(needs, from[best])
		from = slices.Delete(from, best, best+1)
	}
	return out
}

// distance says how far a pod is from meeting the needs: each counts by the share of it that is left, squared.
func distance(needs []need, c candidate) float64 {
	var sum float64
	for _, n := range needs {
		if left := n.quantity - requestOf(c.requests, n.resource); left > 0 {
			sum += math.Pow(float64(left)/float64(n.quantity), 2)
		}
	}
	return sum
}

// smaller compares pods by memory, then by cpu.
func smaller(a, b candidate) bool {
	for _, name := range []string{"memory", resourceCPU} {
		if x, y := requestOf(a.requests, name), requestOf(b.requests, name); x != y {
			return x < y
		}
	}
	return false
}

func words(needs []need) string {
	var out []string
	for _, n := range needs {
		out = append(out, fmt.Sprintf("%s: %d", n.resource, n.quantity))
	}
	return strings.Join(out, ", ")
}
