package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/internal/random"
	"monoplane.dev/codec/wire"
)

// The encoding is that of package proto.
func TestAppendIsWhatProtoWrites(t *testing.T) {
	types := random.Each(func(m proto.Message) {
		if _, ok := m.(wire.Message); !ok {
			t.Fatalf("%T has no AppendProtobuf", m)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.Append([]byte("in front"), m)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := bytes.CutPrefix(got, []byte("in front"))
		back := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(got, back); !ok || err != nil || !proto.Equal(back, m) {
			t.Fatalf("read back: %v\n%v\n%v", err, m, back)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("encoded\n%x, want\n%x", got, want)
		}
	})
	if types < 100 {
		t.Errorf("only %d types of messages were looked at", types)
	}
}

func TestEqualIsThatOfProto(t *testing.T) {
	var before proto.Message
	random.Each(func(m proto.Message) {
		if !wire.Equal(m, proto.Clone(m)) {
			t.Fatalf("a copy differs from\n%v", m)
		}
		if before != nil && before.ProtoReflect().Descriptor() == m.ProtoReflect().Descriptor() {
			if got, want := wire.Equal(before, m), proto.Equal(before, m); got != want {
				t.Fatalf("equal: %v, want %v\n%v\n%v", got, want, before, m)
			}
		}
		before = m
	})
	bad := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "\xff"}}
	for i, tc := range []struct {
		a, b *corev1.Pod
		want bool
	}{
		{nil, nil, true},
		{nil, &corev1.Pod{}, false},
		{&corev1.Pod{}, nil, false},
		{&corev1.Pod{}, &corev1.Pod{}, true},
		{&corev1.Pod{}, &corev1.Pod{Spec: &corev1.PodSpec{}}, false},
		{bad, bad.Clone(), true},
		{bad, &corev1.Pod{}, false},
	} {
		if got := wire.Equal(tc.a, tc.b); got != tc.want {
			t.Errorf("case %d: %v, want %v", i, got, tc.want)
		}
	}
}

func TestAppendOddities(t *testing.T) {
	odd := &corev1.PodSpec{
		Containers: []*corev1.Container{nil,
			{Resources: &corev1.ResourceRequirements{Limits: map[string]*metav1.Quantity{"cpu": nil, "": {}}}}},
		NodeSelector: map[string]string{"": "", "b": "c"},
	}
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.Append(nil, odd); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
	var none *corev1.Pod
	if got, err := wire.Append([]byte("x"), none); err != nil || string(got) != "x" {
		t.Errorf("nil: %q, %v", got, err)
	}
	for _, bad := range []proto.Message{
		&corev1.Pod{Spec: &corev1.PodSpec{NodeName: "\xff"}},
		&corev1.PodSpec{NodeSelector: map[string]string{"\xff": "a"}},
		&corev1.Container{Args: []string{"\xff"}},
	} {
		if got, err := wire.Append([]byte("x"), bad); !errors.Is(err, wire.ErrNotUTF8) || string(got) != "x" {
			t.Errorf("%v: %q, %v", bad, got, err)
		}
	}
	long := &corev1.Pod{Spec: &corev1.PodSpec{NodeName: strings.Repeat("n", 1<<21)}}
	want, err = proto.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.Append(nil, long); err != nil || !bytes.Equal(got, want) {
		t.Error("a long message differs")
	}
}

func BenchmarkAppend(b *testing.B) {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "web-0", Namespace: "default", Uid: "6cf0a1a8-5d2c-4b44-9a45-0b3f2f1d1b3a",
			Labels: map[string]string{"app": "web", "tier": "front"}},
		Spec: &corev1.PodSpec{
			Containers: []*corev1.Container{{
				Name: "main", Image: "host", Command: []string{"/bin/sh", "-c"}, Args: []string{"exec sleep 1000000"},
				Env: []*corev1.EnvVar{{Name: "MODE", Value: "bench"}, {Name: "LEVEL", Value: "info"},
					{Name: "PORT", Value: "8080"}},
				Ports: []*corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			}},
			Tolerations: []*corev1.Toleration{{Key: "node.kubernetes.io/not-ready"}, {Key: "node.kubernetes.io/unreachable"}},
		},
		Status: &corev1.PodStatus{Phase: "Pending", QosClass: "BestEffort"},
	}
	buf := make([]byte, 0, 4096)
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.Append(buf, p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("proto", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (proto.MarshalOptions{}).MarshalAppend(buf, p); err != nil {
				b.Fatal(err)
			}
		}
	})
}
