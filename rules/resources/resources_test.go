package resources_test

import (
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/resources"
)

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "0": "0", "500m": "500m", "1000m": "1", "1024Ki": "1Mi", "2000": "2k", "0.0001": "1m", "": "0",
		"nonsense": "nonsense", "64Mi": "64Mi", "1e99999999": "1e99999999",
	} {
		if got := resources.Canonical(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// amounts reads "cpu=1 memory=2".
func amounts(text string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for _, pair := range strings.Fields(text) {
		name, amount, _ := strings.Cut(pair, "=")
		m[name] = &metav1.Quantity{String_: amount}
	}
	return m
}

// show is the reverse of amounts.
func show(l resources.List) string {
	var pairs []string
	for _, a := range l {
		pairs = append(pairs, a.Name+"="+a.Quantity.String())
	}
	return strings.Join(pairs, " ")
}

func asks(text string) *corev1.Container {
	return &corev1.Container{Resources: &corev1.ResourceRequirements{Requests: amounts(text), Limits: amounts(text)}}
}

func sidecar(text string) *corev1.Container {
	c, always := asks(text), "Always"
	c.RestartPolicy = &always
	return c
}

// spec: INIT-3
func TestContainerRequests(t *testing.T) {
	type cs = []*corev1.Container
	for _, c := range []struct {
		name      string
		init, app cs
		want      string
	}{
		{"nothing", nil, cs{nil, {}}, ""},
		{"apps add up", nil, cs{asks("cpu=1 memory=1Mi"), asks("ephemeral-storage=1 cpu=2"), nil},
			"cpu=3 ephemeral-storage=1 memory=1Mi"},
		{"the highest init container", cs{asks("cpu=5"), asks("cpu=4")}, cs{asks("cpu=1")}, "cpu=5"},
		{"for each resource", cs{asks("cpu=5 memory=1"), asks("cpu=4 memory=2")}, cs{asks("cpu=1 memory=2")},
			"cpu=5 memory=2"},
		{"sidecars run with the apps", cs{sidecar("cpu=2")}, cs{asks("cpu=1")}, "cpu=3"},
		{"and with later init containers", cs{sidecar("cpu=2"), asks("cpu=5")}, cs{asks("cpu=1")}, "cpu=7"},
		{"but not with earlier ones", cs{asks("cpu=5"), sidecar("cpu=2")}, cs{asks("cpu=1")}, "cpu=5"},
		{"several sidecars", cs{sidecar("cpu=1"), sidecar("cpu=2"), asks("cpu=5"), sidecar("cpu=4")}, cs{asks("cpu=1")},
			"cpu=8"},
		{"zero is said", nil, cs{asks("cpu=0")}, "cpu=0"},
		{"unreadable amounts count as absent", nil, cs{asks("cpu=1"), asks("cpu=lots memory=lots")}, "cpu=1"},
		{"fractions are not rounded before they are added", nil, cs{asks("memory=500m"), asks("memory=500m")}, "memory=1"},
		{"absurd amounts", nil, cs{asks("memory=8E"), asks("memory=8E"), asks("memory=8E")}, "memory=24E"},
	} {
		spec := &corev1.PodSpec{InitContainers: c.init, Containers: c.app}
		if got := show(resources.ContainerRequests(spec)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := show(resources.ContainerLimits(spec)); got != c.want {
			t.Errorf("limits: %s: %s, want %s", c.name, got, c.want)
		}
		if got := show(resources.Requests(spec)); got != c.want {
			t.Errorf("of the pod: %s: %s, want %s", c.name, got, c.want)
		}
	}
	if resources.ContainerLimits(nil) != nil || resources.Requests(nil) != nil {
		t.Error("no pod asks for something")
	}
}

// spec: INIT-3
func TestRequests(t *testing.T) {
	apps := []*corev1.Container{asks("cpu=1 memory=5 example.com/x=1")}
	whole := func(text string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: amounts(text), Limits: amounts("memory=99")}
	}
	for _, c := range []struct {
		name string
		spec *corev1.PodSpec
		want string
	}{
		{"overhead is added", &corev1.PodSpec{Containers: apps, Overhead: amounts("cpu=10m example.com/y=2")},
			"cpu=1010m example.com/x=1 example.com/y=2 memory=5"},
		{"the pod as a whole wins", &corev1.PodSpec{Containers: apps, Resources: whole("cpu=4")},
			"cpu=4 example.com/x=1 memory=5"},
		{"with less, too", &corev1.PodSpec{Containers: apps, Resources: whole("cpu=0 hugepages-2Mi=4Mi")},
			"cpu=0 example.com/x=1 hugepages-2Mi=4Mi memory=5"},
		{"with cpu, memory and huge pages only", &corev1.PodSpec{Containers: apps,
			Resources: whole("example.com/x=9 ephemeral-storage=9")}, "cpu=1 example.com/x=1 memory=5"},
		{"its limits do not count", &corev1.PodSpec{Containers: apps, Resources: whole("")},
			"cpu=1 example.com/x=1 memory=5"},
		{"an unreadable one is absent", &corev1.PodSpec{Containers: apps, Resources: whole("cpu=lots")},
			"cpu=1 example.com/x=1 memory=5"},
		{"and overhead is added to it", &corev1.PodSpec{Containers: apps, Resources: whole("cpu=4"),
			Overhead: amounts("cpu=1")}, "cpu=5 example.com/x=1 memory=5"},
	} {
		if got := show(resources.Requests(c.spec)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAppendRequests(t *testing.T) {
	spec := &corev1.PodSpec{
		Containers:     []*corev1.Container{asks("cpu=0"), asks("memory=1"), {}},
		InitContainers: []*corev1.Container{sidecar("")},
	}
	room := resources.Requests(spec)
	absent := resources.ListOf(amounts("cpu=100m example.com/x=1"))
	if got, want := show(resources.AppendRequests(room, spec, absent)), "cpu=300m example.com/x=4 memory=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := show(absent); got != "cpu=100m example.com/x=1" {
		t.Errorf("what is assumed has become %s", got)
	}
}

// Sums do not change what they were made of, be it so large that it is behind a pointer.
func TestSumsShareNothing(t *testing.T) {
	spec := &corev1.PodSpec{
		Containers:     []*corev1.Container{asks("memory=1")},
		InitContainers: []*corev1.Container{sidecar("memory=8E"), sidecar("memory=8E"), asks("memory=8E"), asks("memory=1")},
		Overhead:       amounts("memory=1"),
	}
	for range 2 {
		if got := show(resources.Requests(spec)); got != "memory=24000000000000000001" {
			t.Error(got)
		}
	}
}

func TestForWhole(t *testing.T) {
	for text, want := range map[string]bool{"": false, "cpu=0": true, "memory=1": true, "hugepages-2Mi=2Mi": true,
		"example.com/x=1": false} {
		spec := &corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: amounts(text), Limits: amounts("cpu=1")}}
		if got := resources.ForWhole(spec); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"cpu": "native overcommit pods", "hugepages-2Mi": "native pods huge", "example.com/gpu": "",
		"kubernetes.io/x": "native overcommit", "ephemeral-storage": "native overcommit",
	} {
		var got []string
		for _, k := range []struct {
			word string
			is   bool
		}{{"native", resources.IsNative(name)}, {"overcommit", resources.CanOvercommit(name)},
			{"pods", resources.ForPods(name)}, {"huge", resources.IsHugePages(name)}} {
			if k.is {
				got = append(got, k.word)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}
