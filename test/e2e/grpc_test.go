package e2e_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

// dial connects over gRPC with what the kubeconfig says.
func (c *cluster) dial(t *testing.T) *client.Client {
	t.Helper()
	cfg, err := client.LoadConfig(c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := client.Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// A pod's life over gRPC, as examples/client does it.
// spec: OBJ-15, OBJ-3, OBJ-7, DEL-5, LIFE-5
func TestGRPC(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns, cl := c.namespace(t), c.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	grace := int64(1)
	want := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "g"},
		Spec: &corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []*corev1.Container{{
			Name: "main", Image: "host", Command: []string{"sleep", "3600"},
		}}},
	}
	pod, err := cl.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: ns, Object: want})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: ns, Object: want}); !apierrors.Is(err,
		apierrors.AlreadyExists) {
		t.Errorf("create again: %v", err)
	}
	_, err = cl.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: ns, Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "Bad_Name"}, Spec: &corev1.PodSpec{RestartPolicy: "Sometimes"},
	}})
	if !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("an invalid pod: %v", err)
	}
	if _, err := cl.Pods.Get(ctx, &metav1.GetRequest{Namespace: ns, Name: "none"}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("a missing pod: %v", err)
	}

	stream, err := cl.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: ns,
		ResourceVersion: pod.GetMetadata().GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	for done := false; !done; {
		batch, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.GetEvents() {
			phase := e.GetObject().GetStatus().GetPhase()
			if !slices.Contains(phases, phase) {
				phases = append(phases, phase)
				if phase == "Running" {
					deleteOverGRPC(ctx, t, cl, pod)
				}
			}
			done = done || e.GetType() == "DELETED"
		}
	}
	if !slices.Equal(phases, []string{"Pending", "Running", "Failed"}) {
		t.Errorf("phases %v", phases)
	}
}

func deleteOverGRPC(ctx context.Context, t *testing.T, cl *client.Client, pod *corev1.Pod) {
	t.Helper()
	meta := pod.GetMetadata()
	other, uid := "7a3f1c80-0000-4000-8000-000000000000", meta.GetUid()
	for _, tc := range []struct {
		uid      *string
		conflict bool
	}{{&other, true}, {&uid, false}} {
		_, err := cl.Pods.Delete(ctx, &metav1.DeleteRequest{Namespace: meta.GetNamespace(), Name: meta.GetName(),
			Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: tc.uid}}})
		if apierrors.Is(err, apierrors.Conflict) != tc.conflict || (err != nil) != tc.conflict {
			t.Errorf("delete with uid %s: %v", *tc.uid, err)
		}
	}
}

// What grpcurl needs: reflection lists the services and describes them; health answers.
func TestGRPCReflectionAndHealth(t *testing.T) {
	t.Parallel()
	conn := shared(t).dial(t).Conn()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var names []string
	list := ask(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{corev1rpc.Pods_ServiceDesc.ServiceName, corev1rpc.Nodes_ServiceDesc.ServiceName,
		"grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("reflection lists %v, not %s", names, want)
		}
	}
	file := ask(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: corev1rpc.Pods_ServiceDesc.ServiceName,
		}})
	if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection does not describe the pods service: %v", file)
	}
	health, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
}
