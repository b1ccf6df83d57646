package downward_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/downward"
	"monoplane.dev/rules/resources"
)

// spec: DOWN-1
func TestField(t *testing.T) {
	m := &metav1.ObjectMeta{Name: "n", Namespace: "ns", Uid: "u",
		Labels: map[string]string{"b": "2\n\"", "a.b/c": "1"}, Annotations: map[string]string{"x": "['y']"}}
	for path, want := range map[string]string{
		"metadata.name": "n", "metadata.namespace": "ns", "metadata.uid": "u",
		"metadata.labels":             "a.b/c=\"1\"\nb=\"2\\n\\\"\"",
		"metadata.annotations":        `x="['y']"`,
		"metadata.labels['a.b/c']":    "1",
		"metadata.labels['none']":     "",
		"metadata.annotations['x']":   "['y']",
		"metadata.annotations['['x']": "",
	} {
		if got, err := downward.Field(m, path); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "metadata.name['x']", "['x']", "spec.nodeName", "metadata.labels["} {
		if got, err := downward.Field(m, path); err == nil {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got, err := downward.Field(nil, "metadata.labels"); err != nil || got != "" {
		t.Errorf("of nothing: %q, %v", got, err)
	}
}

func quantities(kv ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = &metav1.Quantity{String_: kv[i+1]}
	}
	return m
}

// spec: DOWN-1
func TestAmount(t *testing.T) {
	node := resources.ListOf(quantities("cpu", "4", "memory", "1Gi", "hugepages-2Mi", "1Gi"))
	c := &corev1.Container{Resources: &corev1.ResourceRequirements{
		Limits: quantities("memory", "0", "hugepages-2Mi", "0"), Requests: quantities("cpu", "1001m"),
	}}
	for _, x := range []struct{ what, divisor, want string }{
		{"limits.cpu", "", "4"}, {"limits.cpu", "1m", "4000"}, {"limits.memory", "1Mi", "1024"},
		{"limits.ephemeral-storage", "1", "0"}, {"limits.hugepages-2Mi", "1", "0"}, {"requests.cpu", "1", "2"},
		{"requests.memory", "", "0"}, {"limits.memory", "1000Gi", "1"},
	} {
		got, err := downward.Amount(c, &corev1.ResourceFieldSelector{
			Resource: x.what, Divisor: &metav1.Quantity{String_: x.divisor}}, node)
		if err != nil || got != x.want {
			t.Errorf("%s in %q: %q, %v; want %s", x.what, x.divisor, got, err, x.want)
		}
	}
	for _, what := range []string{"", "cpu", "limits.pods", "requests.example.com/gpu", "used.cpu"} {
		if got, err := downward.Amount(c, &corev1.ResourceFieldSelector{Resource: what}, node); err == nil {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// A pod's own limits bound its containers, as far as the node has such a resource.
func TestNode(t *testing.T) {
	node := resources.ListOf(quantities("cpu", "4", "ephemeral-storage", "1Gi"))
	spec := &corev1.PodSpec{Resources: &corev1.ResourceRequirements{
		Limits: quantities("cpu", "1", "memory", "1Gi", "ephemeral-storage", "1")}}
	got := downward.Node(spec, node)
	cpu, _ := got.Get("cpu")
	disk, _ := got.Get("ephemeral-storage")
	if _, ok := got.Get("memory"); ok || cpu.String() != "1" || disk.String() != "1Gi" {
		t.Errorf("got %v", got)
	}
	if was, _ := node.Get("cpu"); was.String() != "4" {
		t.Errorf("the node was changed: %v", node)
	}
	spec.Resources.Limits = quantities("cpu", "0")
	if cpu, _ := downward.Node(spec, node).Get("cpu"); cpu.String() != "4" {
		t.Errorf("no limit made %v", cpu)
	}
}

func TestContainer(t *testing.T) {
	spec := &corev1.PodSpec{
		Containers: []*corev1.Container{{Name: "c"}}, InitContainers: []*corev1.Container{{Name: "i"}},
	}
	for _, name := range []string{"c", "i"} {
		if c, err := downward.Container(spec, name); err != nil || c.GetName() != name {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if _, err := downward.Container(spec, "x"); err == nil || err.Error() != "container x not found" {
		t.Errorf("got %v", err)
	}
}
