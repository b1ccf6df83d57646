package resources_test

import (
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/resources"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{"": "0", "1": "1", "1000m": "1", "1e3": "1e3", "1E": "1E", "2Ei": "2Ei", "1e-3": "1e-3", "0.5Gi": "512Mi", "-1": "-1"} {
		q, err := resources.ParseText(text)
		if err != nil || q.String() != want {
			t.Errorf("%q: %s, %v, want %s", text, q.String(), err, want)
		}
	}
	for _, text := range []string{"x", "1x", "1 ", "--1", "1e", "1e100", "1e-100", "1E999999999", strings.Repeat("9", 65), "0." + strings.Repeat("0", 70)} {
		start := time.Now()
		if _, err := resources.ParseText(text); err == nil && text != "1e" {
			t.Errorf("%.20q was accepted", text)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("%.20q took %v", text, d)
		}
	}
	if _, err := resources.Parse(nil); err != nil {
		t.Error(err)
	}
}

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "0": "0", "500m": "500m", "1000m": "1", "1024Ki": "1Mi", "2000": "2k", "0.0001": "1m", "": "0", "nonsense": "nonsense", "64Mi": "64Mi", "1e99999999": "1e99999999",
	} {
		if got := resources.Canonical(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// spec: INIT-3
func TestRequests(t *testing.T) {
	always := "Always"
	ask := func(sidecar bool, cpu string) *corev1.Container {
		c := &corev1.Container{Resources: &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: cpu}}}}
		if sidecar {
			c.RestartPolicy = &always
		}
		return c
	}
	for _, c := range []struct {
		name      string
		init, app []*corev1.Container
		want      string
	}{
		{"apps add up", nil, []*corev1.Container{ask(false, "1"), ask(false, "2"), nil}, "3"},
		{"the highest init container", []*corev1.Container{ask(false, "5"), ask(false, "4")}, []*corev1.Container{ask(false, "1")}, "5"},
		{"sidecars run with the apps", []*corev1.Container{ask(true, "2")}, []*corev1.Container{ask(false, "1")}, "3"},
		{"and with later init containers", []*corev1.Container{ask(true, "2"), ask(false, "5")}, []*corev1.Container{ask(false, "1")}, "7"},
		{"but not with earlier ones", []*corev1.Container{ask(false, "5"), ask(true, "2")}, []*corev1.Container{ask(false, "1")}, "5"},
		{"unreadable amounts count as absent", nil, []*corev1.Container{ask(false, "1"), ask(false, "lots")}, "1"},
	} {
		got := resources.Requests(&corev1.PodSpec{InitContainers: c.init, Containers: c.app})["cpu"]
		if got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.String(), c.want)
		}
	}
	if n := len(resources.Limits(nil)); n != 0 {
		t.Errorf("%d limits of nothing", n)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"cpu": "native overcommit pods", "hugepages-2Mi": "native pods huge", "example.com/gpu": "", "kubernetes.io/x": "native overcommit", "ephemeral-storage": "native overcommit",
	} {
		var got []string
		for _, k := range []struct {
			word string
			is   bool
		}{{"native", resources.IsNative(name)}, {"overcommit", resources.CanOvercommit(name)}, {"pods", resources.ForPods(name)}, {"huge", resources.IsHugePages(name)}} {
			if k.is {
				got = append(got, k.word)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}
