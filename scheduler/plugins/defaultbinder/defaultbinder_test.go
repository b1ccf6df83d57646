package defaultbinder_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/defaultbinder"
)

// recorder keeps the last request to bind.
type recorder struct {
	corev1rpc.PodsClient
	got *corev1rpc.BindPodRequest
}

func (r *recorder) Bind(_ context.Context, req *corev1rpc.BindPodRequest, _ ...grpc.CallOption) (*metav1.Status,
	error) {
	r.got = req
	return &metav1.Status{}, nil
}

// A binding names the pod as it was judged and the node, and nothing besides.
// spec: SCHED-3
func TestBindingSaysNoMore(t *testing.T) {
	pod := framework.NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "a", Name: "p", Uid: "u", ResourceVersion: "7"}, Spec: &corev1.PodSpec{},
	})
	r := &recorder{}
	if status := defaultbinder.New(r).Bind(t.Context(), framework.NewCycleState(nil), pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := &corev1rpc.BindPodRequest{Namespace: "a", Name: "p", Object: &corev1.Binding{
		Metadata: &metav1.ObjectMeta{Namespace: "a", Name: "p", Uid: "u", ResourceVersion: "7"},
		Target:   &corev1.ObjectReference{Kind: "Node", Name: "n"},
	}}
	if !proto.Equal(r.got, want) {
		t.Errorf("asked for %v, want %v", r.got, want)
	}
}
