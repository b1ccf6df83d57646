package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func newPodTemplate(name string) *corev1.PodTemplate {
	return &corev1.PodTemplate{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Template: &corev1.PodTemplateSpec{
			Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: &corev1.PodSpec{HostNetwork: true, Containers: []*corev1.Container{{
				Name: "c", Image: "nginx",
				Ports:     []*corev1.ContainerPort{{ContainerPort: 80}},
				Resources: &corev1.ResourceRequirements{Limits: map[string]*metav1.Quantity{"cpu": {String_: "1000m"}}},
			}}},
		},
	}
}

// spec: OBJ-3
func TestPodTemplatesAreFilledInAsFarAsTemplatesAre(t *testing.T) {
	templates := corev1rpc.NewPodTemplatesClient(start(t).admin().conn)
	bad := newPodTemplate("t")
	bad.Template.Spec.HostNetwork = false
	bad.Template.Metadata.Labels["app"] = "-"
	bad.Template.Spec.Containers[0].Image = ""
	_, err := templates.Create(ctx(t), &corev1rpc.CreatePodTemplateRequest{Object: bad})
	for _, field := range []string{"template.labels: ", "template.spec.containers[0].image: "} {
		if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not refused: %v", field, err)
		}
	}
	refused := newPodTemplate("t")
	refused.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	if _, err := templates.Create(ctx(t), &corev1rpc.CreatePodTemplateRequest{Object: refused}); !apierrors.Is(err,
		apierrors.Invalid) ||
		!strings.Contains(err.Error(), "template.spec.schedulingGroup: Forbidden: not supported by this version of "+
			"Monoplane") {
		t.Errorf("what pods may not have is not refused: %v", err)
	}

	made := must(templates.Create(ctx(t), &corev1rpc.CreatePodTemplateRequest{Object: newPodTemplate("t")}))(t)
	s, c := made.Template.Spec, made.Template.Spec.Containers[0]
	if s.RestartPolicy != "Always" || s.GetTerminationGracePeriodSeconds() != 30 || c.ImagePullPolicy != "Always" ||
		c.Ports[0].Protocol != "TCP" ||
		c.Resources.Limits["cpu"].String_ != "1" {
		t.Errorf("not filled in: %v", made)
	}
	if s.EnableServiceLinks != nil || c.Resources.Requests != nil || c.Ports[0].HostPort != 0 ||
		s.ServiceAccountName != "" || s.Tolerations != nil || s.Priority != nil {
		t.Errorf("what pods get of it is in the template already: %v", made)
	}
	if made.Metadata.Generation != 1 {
		t.Errorf("generation %d", made.Metadata.Generation)
	}

	next := clone(made)
	next.Metadata.Labels = map[string]string{"a": "b"}
	next = must(templates.Update(ctx(t), &corev1rpc.UpdatePodTemplateRequest{Object: next}))(t)
	if next.Metadata.Generation != 1 {
		t.Errorf("labels make generation %d", next.Metadata.Generation)
	}
	next = clone(next)
	next.Template.Spec.Containers[0].Image = "nginx:1"
	next.Template.Spec.RestartPolicy = "Never"
	next.Metadata.Generation = 7
	next = must(templates.Update(ctx(t), &corev1rpc.UpdatePodTemplateRequest{Object: next}))(t)
	if next.Metadata.Generation != 2 || next.Template.Spec.RestartPolicy != "Never" {
		t.Errorf("updated: %v", next)
	}
	patched := must(templates.Patch(ctx(t), &metav1.PatchRequest{
		Namespace: "default", Name: "t", PatchType: "application/strategic-merge-patch+json",
		Patch: []byte(
			`{"template":{"spec":{"containers":[{"name":"c","image":"nginx:2"},{"name":"d","image":"busybox"}]}}}`),
	}))(t)
	if cs := patched.Template.Spec.Containers; len(cs) != 2 || patched.Metadata.Generation != 3 {
		t.Errorf("patched: %v", patched)
	}
}
