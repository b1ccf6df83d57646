package pod_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

func FuzzPod(f *testing.F) {
	data, err := proto.Marshal(newPod())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, data)
	support := validation.NewSupport()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		p, old := &corev1.Pod{}, &corev1.Pod{}
		if proto.Unmarshal(a, p) != nil || proto.Unmarshal(b, old) != nil {
			return
		}
		support.Unsupported(p)
		pod.Validate(p)
		asCreated(p)
		pod.Default(old)
		again := proto.CloneOf(old)
		pod.Default(again)
		if !proto.Equal(old, again) {
			t.Error("defaults are not idempotent")
		}
		pod.ValidateUpdate(p, old)
		pod.ValidateStatusUpdate(p, old)
		for _, c := range pod.Validate(p) {
			if c.Type == "" || c.Message == "" {
				t.Errorf("bad cause %+v", c)
			}
		}
		if !validation.Equal(p.Spec, p.Spec) {
			t.Error("a spec does not equal itself")
		}
	})
}

func BenchmarkPod(b *testing.B) {
	p := newPod()
	p.Metadata.Labels = map[string]string{"app": "bench", "tier": "backend", "example.com/release": "2026-11"}
	p.Metadata.Annotations = map[string]string{"example.com/owner": "team-bench", "example.com/note": "one of many"}
	c := p.Spec.Containers[0]
	c.Resources = &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "500m", "memory", "64Mi")}
	c.Ports = []*corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}}
	c.Env = []*corev1.EnvVar{{Name: "MODE", Value: "bench"}, {Name: "LEVEL", Value: "info"}}
	support := validation.NewSupport()
	full := p.Clone()
	asCreated(full)
	b.Run("defaults", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			asCreated(p.Clone())
		}
	})
	b.Run("unsupported", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if refused, stored := support.Unsupported(full); len(refused)+len(stored) > 0 {
				b.Fatal(refused, stored)
			}
		}
	})
	b.Run("validate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if wrong := pod.Validate(full); len(wrong) > 0 {
				b.Fatal(wrong)
			}
		}
	})
}
