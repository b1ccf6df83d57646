package qos_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/qos"
)

func amounts(pairs ...string) map[string]*metav1.Quantity {
	m := make(map[string]*metav1.Quantity)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

// both asks for the same as request and limit.
func both(q ...string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Limits: amounts(q...), Requests: amounts(q...)}
}

func asks(all ...*corev1.ResourceRequirements) *corev1.PodSpec {
	s := &corev1.PodSpec{}
	for _, r := range all {
		s.Containers = append(s.Containers, &corev1.Container{Resources: r})
	}
	return s
}

// spec: QOS-1
func TestCompute(t *testing.T) {
	full := both("cpu", "1", "memory", "1Gi")
	for _, c := range []struct {
		name string
		spec *corev1.PodSpec
		want string
	}{
		{"no pod", nil, "BestEffort"},
		{"nothing", &corev1.PodSpec{Containers: []*corev1.Container{{}, nil}}, "BestEffort"},
		{"zero is unset", asks(both("cpu", "0", "memory", "0")), "BestEffort"},
		{"negative is unset", asks(both("cpu", "-1", "memory", "-1")), "BestEffort"},
		{"unreadable is unset", asks(both("cpu", "lots", "memory", "1e-9999999")), "BestEffort"},
		{"other resources do not count", asks(both("example.com/gpu", "1")), "BestEffort"},
		{"all equal", asks(full, both("cpu", "1", "memory", "1")), "Guaranteed"},
		{"equal in other words", asks(&corev1.ResourceRequirements{
			Limits: amounts("cpu", "1", "memory", "1Gi"), Requests: amounts("cpu", "1000m", "memory", "1024Mi"),
		}), "Guaranteed"},
		{"one container without", asks(full, nil), "Burstable"},
		{"memory only", asks(both("memory", "1Gi")), "Burstable"},
		{"requests only", asks(&corev1.ResourceRequirements{Requests: amounts("cpu", "1", "memory", "1")}), "Burstable"},
		{"limits only", asks(&corev1.ResourceRequirements{Limits: amounts("cpu", "1", "memory", "1")}), "Burstable"},
		{"a request below the limit", asks(&corev1.ResourceRequirements{
			Limits: amounts("cpu", "2", "memory", "1"), Requests: amounts("cpu", "1", "memory", "1"),
		}), "Burstable"},
		{"a request of zero and a limit", asks(&corev1.ResourceRequirements{
			Limits: amounts("cpu", "1", "memory", "1"), Requests: amounts("cpu", "0", "memory", "1"),
		}), "Burstable"},
		{"init containers count", &corev1.PodSpec{
			Containers: []*corev1.Container{{Resources: full}}, InitContainers: []*corev1.Container{{}},
		}, "Burstable"},
		{"ephemeral containers do not", &corev1.PodSpec{
			Containers: []*corev1.Container{{Resources: full}}, EphemeralContainers: []*corev1.EphemeralContainer{{}},
		}, "Guaranteed"},
		{"the pod's own decide", &corev1.PodSpec{Containers: []*corev1.Container{{}}, Resources: full}, "Guaranteed"},
		{"the pod's own, of cpu", &corev1.PodSpec{
			Containers: []*corev1.Container{{Resources: full}}, Resources: both("cpu", "1"),
		}, "Burstable"},
		{"the pod's own are empty", &corev1.PodSpec{
			Containers: []*corev1.Container{{Resources: full}}, Resources: &corev1.ResourceRequirements{},
		}, "BestEffort"},
	} {
		if got := qos.Compute(c.spec); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A pod keeps the class that it was given.
// spec: QOS-1
func TestOf(t *testing.T) {
	p := &corev1.Pod{Spec: asks(both("cpu", "1", "memory", "1"))}
	if got := qos.Of(p); got != qos.Guaranteed {
		t.Errorf("before it has a status: %s", got)
	}
	p.Status = &corev1.PodStatus{QosClass: qos.Burstable}
	if got := qos.Of(p); got != qos.Burstable {
		t.Errorf("after a class was written: %s", got)
	}
	if got := qos.Of(nil); got != qos.BestEffort {
		t.Errorf("no pod: %s", got)
	}
}
