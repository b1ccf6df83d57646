package admission_test

import (
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/admission"
)

func quantities(pairs ...string) map[string]*metav1.Quantity {
	m := make(map[string]*metav1.Quantity)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

func container(pairs ...string) *corev1.Container {
	return &corev1.Container{Resources: &corev1.ResourceRequirements{Requests: quantities(pairs...)}}
}

func pod(edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{container()}}}
	for _, e := range edit {
		e(p)
	}
	return p
}

func asks(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0] = container(pairs...) }
}

func port(n int32, ip, protocol string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := p.Spec.Containers[0]
		c.Ports = append(c.Ports, &corev1.ContainerPort{HostPort: n, HostIP: ip, Protocol: protocol})
	}
}

func needs(key, op string, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{
				{}, {MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}},
			}},
		}}
	}
}

// spec: LIFE-12, INIT-3
func TestCheck(t *testing.T) {
	always := "Always"
	node := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a", "size": "5"}},
		Status: &corev1.NodeStatus{
			Allocatable: quantities("cpu", "2", "memory", "1Gi", "pods", "3"),
			NodeInfo:    &corev1.NodeSystemInfo{OperatingSystem: "linux"},
		},
	}
	one := pod(asks("cpu", "1500m"), port(80, "", "TCP"), port(443, "10.0.0.1", "TCP"))
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		others  []*corev1.Pod
		reason  string
		message string
	}{
		"plain": {pod: pod()},
		"fits":  {pod: pod(asks("cpu", "500m", "memory", "1Gi")), others: []*corev1.Pod{one}},
		"zero":  {pod: pod(asks("example.com/gpu", "0")), others: []*corev1.Pod{one}},
		"cpu": {pod: pod(asks("cpu", "501m")), others: []*corev1.Pod{one}, reason: "OutOfcpu",
			message: "requested: 501, used: 1500, capacity: 2000"},
		"memory":  {pod: pod(asks("memory", "2Gi")), reason: "OutOfmemory"},
		"unknown": {pod: pod(asks("example.com/gpu", "1")), reason: "OutOfexample.com/gpu"},
		"pods":    {pod: pod(), others: []*corev1.Pod{one, one, one}, reason: "OutOfpods"},
		"port": {pod: pod(port(80, "", "")), others: []*corev1.Pod{one}, reason: "NodePorts",
			message: "TCP 80 is used by ns/p"},
		"port ip":  {pod: pod(port(443, "10.0.0.2", "TCP")), others: []*corev1.Pod{one}},
		"port any": {pod: pod(port(443, "0.0.0.0", "TCP")), others: []*corev1.Pod{one}, reason: "NodePorts"},
		"port udp": {pod: pod(port(80, "", "UDP")), others: []*corev1.Pod{one}},
		"selector": {pod: pod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }),
			reason: "NodeAffinity"},
		"selected":   {pod: pod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} })},
		"in":         {pod: pod(needs("zone", "In", "a", "b"))},
		"not in":     {pod: pod(needs("zone", "NotIn", "a")), reason: "NodeAffinity"},
		"exists":     {pod: pod(needs("zone", "Exists"))},
		"not exists": {pod: pod(needs("zone", "DoesNotExist")), reason: "NodeAffinity"},
		"gt":         {pod: pod(needs("size", "Gt", "4"))},
		"lt":         {pod: pod(needs("size", "Lt", "4")), reason: "NodeAffinity"},
		"bad op":     {pod: pod(needs("size", "Like", "4")), reason: "NodeAffinity"},
		"os": {pod: pod(func(p *corev1.Pod) { p.Spec.Os = &corev1.PodOS{Name: "windows"} }),
			reason: "PodOSNotSupported"},
		"sysctl": {pod: pod(func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []*corev1.Sysctl{{Name: "kernel/sem"}}}
		}), reason: "SysctlForbidden", message: `Pod was rejected: forbidden sysctl: "kernel.sem" not allowlisted`},
		"init": {pod: pod(asks("cpu", "1"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []*corev1.Container{container("cpu", "2")}
		})},
		"the pod as a whole": {pod: pod(asks("cpu", "3"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "500m")}
		}), others: []*corev1.Pod{one}},
		"another as a whole": {pod: pod(asks("cpu", "1")), others: []*corev1.Pod{pod(func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "1")}
			p.Spec.Overhead = quantities("cpu", "1m")
		})}, reason: "OutOfcpu", message: "requested: 1000, used: 1001, capacity: 2000"},
		"init with sidecar": {pod: pod(asks("cpu", "1"), func(p *corev1.Pod) {
			side := container("cpu", "500m")
			side.RestartPolicy = &always
			p.Spec.InitContainers = []*corev1.Container{side, container("cpu", "1600m")}
		}), reason: "OutOfcpu", message: "requested: 2100"},
	} {
		t.Run(name, func(t *testing.T) {
			var others []admission.Holder
			for _, o := range c.others {
				others = append(others, admission.Holder{Pod: o})
			}
			got := admission.Decide(admission.Request{Pod: c.pod, Node: node, Others: others}).Refused
			switch {
			case got == nil && c.reason != "":
				t.Errorf("admitted, want %s", c.reason)
			case got != nil && (got.Reason != c.reason || !strings.Contains(got.Message, c.message)):
				t.Errorf("refused: %+v, want %q %q", got, c.reason, c.message)
			}
		})
	}
}
