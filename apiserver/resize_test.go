package apiserver_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func cpu(amount string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: amount}}}
}

func cpuOf(p *corev1.Pod) string { return p.Spec.Containers[0].Resources.Requests["cpu"].GetString_() }

// A resize changes what the containers ask for and nothing else. spec: OBJ-10
func TestResize(t *testing.T) {
	c := start(t)
	p := newPod("web")
	p.Spec.Containers[0].Resources = cpu("1")
	p = c.createPod(p)

	asked := proto.CloneOf(p)
	asked.Spec.Containers[0].Resources = cpu("2")
	if _, err := c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: asked}); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("an update of the resources: %v", err)
	}
	asked.Spec.Containers[0].Image = "other"
	asked.Metadata.Labels = map[string]string{"a": "b"}
	asked.Status.Phase = "Running"
	out, err := c.admin().Pods.UpdateResize(ctx(t), &corev1rpc.UpdatePodRequest{Object: asked})
	if err != nil {
		t.Fatal(err)
	}
	want := proto.CloneOf(p)
	want.Spec.Containers[0].Resources = cpu("2")
	want.Metadata.Generation, want.Metadata.ResourceVersion = 2, out.Metadata.ResourceVersion
	want.Metadata.ManagedFields = owners(t, out, "", "resize")
	if !proto.Equal(out, want) || out.Metadata.ResourceVersion == p.Metadata.ResourceVersion {
		t.Errorf("resized:\n%v\nwant:\n%v", out, want)
	}
	if _, err := c.admin().Pods.UpdateResize(ctx(t), &corev1rpc.UpdatePodRequest{Object: asked}); !apierrors.Is(err,
		apierrors.Conflict) {
		t.Errorf("a stale resourceVersion: %v", err)
	}

	patch := func(by client, doc string) (*corev1.Pod, error) {
		return by.Pods.PatchResize(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
			PatchType: "application/strategic-merge-patch+json", Patch: []byte(doc)})
	}
	three := `{"spec":{"containers":[{"name":"` + p.Spec.Containers[0].Name + `","resources":{"requests":{"cpu":"3"}}}]}}`
	if out, err = patch(c.admin(), three); err != nil || cpuOf(out) != "3" || out.Metadata.Generation != 3 {
		t.Errorf("patched: %v, %v", out, err)
	}
	if _, err := patch(c.admin(), `{"spec":{"containers":[{"name":"new","image":"i"}]}}`); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("a new container: %v", err)
	}
	for name, by := range map[string]client{"agent": c.agent("n1"), "scheduler": c.scheduler(),
		"podgc": c.controller("podgc")} {
		if _, err := patch(by, three); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What runs is resized only on a node that says that it can: one that reports the resources of its containers.
// spec: OBJ-10
func TestResizeOfARunningPod(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := newPod("web")
	p.Spec.Containers[0].Resources = cpu("1")
	p = c.createPod(p)
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	status := &corev1.ContainerStatus{Name: p.Spec.Containers[0].Name,
		State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	report := func() {
		_, err := c.agent("n1").Pods.UpdateStatus(ctx(t), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web", Uid: p.Metadata.Uid},
			Status:   &corev1.PodStatus{Phase: "Running", ContainerStatuses: []*corev1.ContainerStatus{status}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	resize := func() (*corev1.Pod, error) {
		asked := proto.CloneOf(p)
		asked.Metadata.ResourceVersion = ""
		asked.Spec.Containers[0].Resources = cpu("2")
		return c.admin().Pods.UpdateResize(ctx(t), &corev1rpc.UpdatePodRequest{Object: asked})
	}
	report()
	if _, err := resize(); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("the node reports no resources: %v", err)
	}
	status.Resources = cpu("1")
	report()
	allocate := func(amounts map[string]*metav1.Quantity) {
		_, err := c.admin().Nodes.UpdateStatus(ctx(t), &corev1rpc.UpdateNodeRequest{Object: &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: "n1"},
			Status:   &corev1.NodeStatus{Capacity: amounts, Allocatable: amounts},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	allocate(map[string]*metav1.Quantity{"cpu": {String_: "1500m"}, "memory": {String_: "1Gi"}})
	_, err := resize()
	const short = `pods "web" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2000, ` +
		`allocatable: 1500`
	if !apierrors.Is(err, apierrors.Forbidden) || apierrors.From(err).Status().GetMessage() != short {
		t.Errorf("more than the node has: %v", err)
	}
	if causes := apierrors.From(err).Status().GetDetails().GetCauses(); len(causes) != 1 ||
		causes[0].GetReason() != "NodeCapacity" {
		t.Errorf("causes %v", causes)
	}
	allocate(map[string]*metav1.Quantity{"cpu": {String_: "2"}, "memory": {String_: "1Gi"}})
	if out, err := resize(); err != nil || cpuOf(out) != "2" || out.Status.ContainerStatuses[0].Resources == nil {
		t.Errorf("the node reports resources: %v, %v", out, err)
	}
}
