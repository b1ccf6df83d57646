package main

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// A shallow copy is equal, its fields are its own, and what they point to is not.
func TestShallow(t *testing.T) {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "v"},
			DeletionGracePeriodSeconds: proto.Int64(3)},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c"}}, Priority: proto.Int32(0)},
	}
	m := p.GetMetadata().Shallow()
	if !proto.Equal(m, p.GetMetadata()) || m == p.GetMetadata() {
		t.Errorf("copy: %v", m)
	}
	m.Name = "b"
	if p.GetMetadata().GetName() != "a" || m.DeletionGracePeriodSeconds != p.GetMetadata().DeletionGracePeriodSeconds {
		t.Errorf("original: %v", p)
	}
	if s := p.GetSpec().Shallow(); s.Containers[0] != p.GetSpec().GetContainers()[0] || s.Priority == nil {
		t.Errorf("copy: %v", s)
	}
	if (*corev1.PodSpec)(nil).Shallow() != nil {
		t.Error("nil became something")
	}
	call := &nodev1rpc.Call{Request: &nodev1rpc.Call_Log{Log: &nodev1rpc.LogCall{Pod: "p"}}}
	if c := new(nodev1rpc.Call); !c.SetShallow(call) || c.GetLog() != call.GetLog() || c.GetLog() == nil {
		t.Errorf("a choice: %v", c)
	}
	unknown := &metav1.ObjectMeta{}
	unknown.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1})
	if !proto.Equal(unknown.Shallow(), unknown) {
		t.Error("unknown fields are lost")
	}
}
