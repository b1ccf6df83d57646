package clone_test

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec/internal/random"
)

// generated is what the generator gives every message.
type generated interface {
	proto.Message
	CloneMessage() proto.Message
	SetShallow(proto.Message) bool
}

func TestCloneIsDeepAndEqual(t *testing.T) {
	types := random.Each(func(message proto.Message) {
		m := message.(generated)
		c := m.CloneMessage()
		if !proto.Equal(m, c) || !proto.Equal(proto.Clone(m), c) {
			t.Fatalf("the clone differs:\n%v\n%v", m, c)
		}
		own := map[uintptr]bool{}
		pointers(reflect.ValueOf(m), func(p uintptr) { own[p] = true })
		pointers(reflect.ValueOf(c), func(p uintptr) {
			if own[p] {
				t.Fatalf("the clone shares memory with the original: %v", m)
			}
		})
	})
	if types < 100 {
		t.Errorf("only %d types of messages were looked at", types)
	}
}

// pointers calls f with the address of everything that can be changed through v.
func pointers(v reflect.Value, f func(uintptr)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			if v.Type().Elem().Size() > 0 {
				f(v.Pointer())
			}
			pointers(v.Elem(), f)
		}
	case reflect.Interface:
		if !v.IsNil() {
			pointers(v.Elem(), f)
		}
	case reflect.Slice:
		if v.Cap() > 0 {
			f(v.Pointer())
		}
		for i := range v.Len() {
			pointers(v.Index(i), f)
		}
	case reflect.Map:
		if !v.IsNil() {
			f(v.Pointer())
		}
		for _, k := range v.MapKeys() {
			pointers(v.MapIndex(k), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() || field.Name == "unknownFields" {
				pointers(v.Field(i), f)
			}
		}
	}
}

func TestSetShallow(t *testing.T) {
	types := random.Each(func(message proto.Message) {
		m := message.(generated)
		to := m.ProtoReflect().New().Interface().(generated)
		if !to.SetShallow(m) || !proto.Equal(to, m) {
			t.Fatalf("shared:\n%v\n%v", m, to)
		}
		m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.Message() != nil && !fd.IsList() && !fd.IsMap() && to.ProtoReflect().Get(fd).Message() != v.Message() {
				t.Errorf("%s was copied", fd.Name())
			}
			return true
		})
	})
	if types < 100 {
		t.Errorf("only %d types of messages were looked at", types)
	}
}

func TestSetShallowOtherType(t *testing.T) {
	if new(corev1.Pod).SetShallow(new(corev1.Node)) {
		t.Error("a Pod shares with a Node")
	}
	var none *corev1.Pod
	if p := (&corev1.Pod{Spec: &corev1.PodSpec{}}); !p.SetShallow(none) || !proto.Equal(p, new(corev1.Pod)) {
		t.Errorf("shared with nil: %v", p)
	}
}

// Nil is what proto.Clone makes of it: nil, except in lists and maps, where it counts as empty.
func TestCloneNil(t *testing.T) {
	var none *corev1.Pod
	if c, ok := none.CloneMessage().(*corev1.Pod); !ok || c != nil {
		t.Errorf("clone of nil: %v", c)
	}
	s := &corev1.PodSpec{Containers: []*corev1.Container{nil}, InitContainers: []*corev1.Container{},
		NodeSelector: map[string]string{}}
	want, got := proto.CloneOf(s), s.Clone()
	if !reflect.DeepEqual(got.Containers, want.Containers) ||
		(got.InitContainers == nil) != (want.InitContainers == nil) ||
		(got.NodeSelector == nil) != (want.NodeSelector == nil) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
