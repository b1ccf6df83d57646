package apiserver_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// debugger is a container for debugging.
func debugger(name, target string) *corev1.EphemeralContainer {
	return &corev1.EphemeralContainer{TargetContainerName: target,
		EphemeralContainerCommon: &corev1.EphemeralContainerCommon{Name: name, Image: "busybox"}}
}

// Containers for debugging are added to a pod that exists, and nothing else changes. spec: INIT-6, DEL-11
func TestEphemeralContainers(t *testing.T) {
	c := start(t)
	p := newPod("web")
	p.Spec.EphemeralContainers = []*corev1.EphemeralContainer{debugger("early", "")}
	if _, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}); !apierrors.Is(err,
		apierrors.Invalid) || !strings.Contains(err.Error(), "Forbidden: cannot be set on create") {
		t.Errorf("a new pod with an ephemeral container: %v", err)
	}
	p = c.createPod(newPod("web"))

	asked := proto.CloneOf(p)
	asked.Spec.EphemeralContainers = []*corev1.EphemeralContainer{debugger("debug", p.Spec.Containers[0].Name)}
	if _, err := c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: asked}); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("an update of the pod itself: %v", err)
	}
	asked.Spec.Containers[0].Image = "other"
	asked.Metadata.Labels = map[string]string{"a": "b"}
	asked.Status.Phase = "Running"
	out, err := c.admin().Pods.UpdateEphemeralContainers(ctx(t), &corev1rpc.UpdatePodRequest{Object: asked})
	if err != nil {
		t.Fatal(err)
	}
	want := proto.CloneOf(p)
	want.Spec.EphemeralContainers = asked.Spec.EphemeralContainers
	common := want.Spec.EphemeralContainers[0].EphemeralContainerCommon
	common.TerminationMessagePath, common.TerminationMessagePolicy = "/dev/termination-log", "File"
	common.ImagePullPolicy = "Always"
	common.Resources = out.Spec.EphemeralContainers[0].EphemeralContainerCommon.Resources
	want.Metadata.Generation, want.Metadata.ResourceVersion = 2, out.Metadata.ResourceVersion
	want.Metadata.ManagedFields = owners(t, out, "", "ephemeralcontainers")
	if !proto.Equal(out, want) || out.Metadata.ResourceVersion == p.Metadata.ResourceVersion {
		t.Errorf("debugged:\n%v\nwant:\n%v", out, want)
	}
	if _, err := c.admin().Pods.UpdateEphemeralContainers(ctx(t), &corev1rpc.UpdatePodRequest{
		Object: asked}); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("a stale resourceVersion: %v", err)
	}

	patch := func(by client, doc string) (*corev1.Pod, error) {
		return by.Pods.PatchEphemeralContainers(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
			PatchType: "application/strategic-merge-patch+json", Patch: []byte(doc)})
	}
	add := `{"spec":{"ephemeralContainers":[{"name":"second","image":"i"}]}}`
	for name, by := range map[string]client{"agent": c.agent("n1"), "scheduler": c.scheduler(),
		"podgc": c.controller("podgc")} {
		if _, err := patch(by, add); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err = patch(c.admin(), add); err != nil || len(out.Spec.EphemeralContainers) != 2 {
		t.Errorf("patched: %v, %v", out, err)
	}
	bad := func(name, more string) string {
		return `{"spec":{"ephemeralContainers":[{"name":"` + name + `",` + more + `}]}}`
	}
	for doc, why := range map[string]string{
		`{"metadata":{"uid":"other"},"spec":{}}`:               `metadata.uid: Invalid value: "other": field is immutable`,
		bad("debug", `"image":"other"`):                        "may not be changed",
		bad("debug", `"$patch":"delete"`):                      "may not be removed",
		bad("x", `"image":"i","targetContainerName":"se"`):     "targetContainerName: Not found",
		bad("x", `"image":"i","ports":[{"containerPort":80}]`): "cannot be set for an Ephemeral Container",
	} {
		if _, err := patch(c.admin(), doc); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", doc, err, why)
		}
	}
	_, err = c.admin().Pods.PatchEphemeralContainers(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "other",
		PatchType: "application/strategic-merge-patch+json", Patch: []byte(add)})
	if !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("a pod that does not exist: %v", err)
	}
}
