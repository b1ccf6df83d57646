package progress_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/progress"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func owner(o object.Object) []*metav1.OwnerReference {
	k, m := o.ObjectKind(), o.GetMetadata()
	return []*metav1.OwnerReference{{ApiVersion: k.APIVersion(), Kind: k.Kind, Name: m.GetName(), Uid: m.GetUid()}}
}

// The pods of a workload are found by way of whatever stands between, by any of the names of its kind.
func TestPodsAreFoundDownwards(t *testing.T) {
	server := apitest.Start(t)
	server.Namespaces(t, "ns")
	c := server.Admin()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	template := &corev1.PodTemplateSpec{
		Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
	}
	d, err := c.Deployments.Create(t.Context(), &appsv1rpc.CreateDeploymentRequest{Object: &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec:     &appsv1.DeploymentSpec{Selector: selector, Template: template},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rs, err := c.ReplicaSets.Create(t.Context(), &appsv1rpc.CreateReplicaSetRequest{Object: &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web-1", OwnerReferences: owner(d)},
		Spec:     &appsv1.ReplicaSetSpec{Selector: selector, Template: template},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, owners := range map[string][]*metav1.OwnerReference{"web-1-a": owner(rs), "other": nil} {
		_, err := c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners}, Spec: template.GetSpec(),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"deployment", "deploy", "Deployments", "deployment.apps"} {
		r, err := progress.Of(t.Context(), c, "ns", kind, "web")
		if err != nil {
			t.Fatal(err)
		}
		if text := r.String(); !strings.HasPrefix(text, "deployment.apps/web: 0 of 1 pods are ready\n") ||
			!strings.Contains(text, "Unschedulable   web-1-a") {
			t.Errorf("%s:\n%s", kind, text)
		}
	}
	if _, err := progress.Of(t.Context(), c, "ns", "deploy", "none"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	for _, kind := range []string{"nodes", "huh", "deploy.batch", ""} {
		if _, err := progress.Of(t.Context(), c, "ns", kind, "web"); !apierrors.Is(err, apierrors.BadRequest) {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
}
