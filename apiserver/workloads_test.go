package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/rules/portion"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func webTemplate() *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web", "tier": "front"}},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "nginx"}}},
	}
}

func webSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func newDeployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:     &appsv1.DeploymentSpec{Selector: webSelector(), Template: webTemplate()},
		Status:   &appsv1.DeploymentStatus{Replicas: 9},
	}
}

// spec: WORK-1, OBJ-5
func TestDeploymentsAreFilledIn(t *testing.T) {
	c := start(t).admin()
	d := must(c.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: newDeployment("web")}))(t)
	s := d.Spec
	if s.GetReplicas() != 1 || s.Strategy.Type != "RollingUpdate" || s.GetRevisionHistoryLimit() != 10 ||
		s.GetProgressDeadlineSeconds() != 600 || s.Strategy.RollingUpdate.MaxSurge.StrVal != "25%" ||
		s.Strategy.RollingUpdate.MaxUnavailable.StrVal != "25%" || s.Template.Spec.RestartPolicy != "Always" ||
		d.Status.GetReplicas() != 0 || d.Metadata.Generation != 1 {
		t.Errorf("made %v", d)
	}
	moved := clone(d)
	moved.Spec.Selector.MatchLabels = map[string]string{"tier": "front"}
	if _, err := c.Deployments.Update(ctx(t), &appsv1rpc.UpdateDeploymentRequest{Object: moved}); !apierrors.Is(err,
		apierrors.Invalid) || !strings.Contains(err.Error(), "spec.selector") {
		t.Errorf("the selector may change: %v", err)
	}
	changed := clone(d)
	changed.Status = &appsv1.DeploymentStatus{Replicas: 3}
	changed.Spec.Paused = true
	changed = must(c.Deployments.Update(ctx(t), &appsv1rpc.UpdateDeploymentRequest{Object: changed}))(t)
	if changed.Status.Replicas != 0 || changed.Metadata.Generation != 2 {
		t.Errorf("updated to %v", changed)
	}
	told := clone(changed)
	told.Spec.Paused, told.Status = false, &appsv1.DeploymentStatus{Replicas: 3, ReadyReplicas: 1}
	// So Kubernetes' own controller says which ReplicaSet is the newest. Labels stay as they are.
	told.Metadata.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	told.Metadata.Labels = map[string]string{"a": "b"}
	told = must(c.Deployments.UpdateStatus(ctx(t), &appsv1rpc.UpdateDeploymentRequest{Object: told}))(t)
	if !told.Spec.Paused || told.Status.ReadyReplicas != 1 || told.Metadata.Generation != 2 ||
		told.Metadata.Annotations["deployment.kubernetes.io/revision"] != "1" || len(told.Metadata.Labels) > 0 {
		t.Errorf("the status was updated to %v", told)
	}
	bad := clone(told)
	bad.Status.ReadyReplicas = 4
	if _, err := c.Deployments.UpdateStatus(ctx(t), &appsv1rpc.UpdateDeploymentRequest{Object: bad}); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("more pods may be ready than there are: %v", err)
	}
}

// spec: OBJ-3
func TestBadWorkloadsAreRefused(t *testing.T) {
	c := start(t).admin()
	for name, x := range map[string]struct {
		change func(*appsv1.DeploymentSpec)
		want   string
	}{
		"a selector that its template does not match": {func(s *appsv1.DeploymentSpec) {
			s.Selector.MatchLabels["app"] = "other"
		}, "spec.template.metadata.labels"},
		"no selector":         {func(s *appsv1.DeploymentSpec) { s.Selector = nil }, "spec.selector: Required"},
		"an empty selector":   {func(s *appsv1.DeploymentSpec) { s.Selector = &metav1.LabelSelector{} }, "empty selector"},
		"pods that end":       {func(s *appsv1.DeploymentSpec) { s.Template.Spec.RestartPolicy = "Never" }, "restartPolicy"},
		"a number below 0":    {func(s *appsv1.DeploymentSpec) { s.Replicas = ptr(int32(-1)) }, "spec.replicas"},
		"a deadline too near": {func(s *appsv1.DeploymentSpec) { s.MinReadySeconds = 600 }, "progressDeadlineSeconds"},
		"no room for steps": {func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: &metav1.IntOrString{IntVal: 0}, MaxUnavailable: portion.Text("0%"),
			}}
		}, "maxUnavailable"},
		"more than all": {func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: portion.Text("101%"),
			}}
		}, "must not be greater than 100%"},
		"steps of a Recreate": {func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{Type: "Recreate", RollingUpdate: &appsv1.RollingUpdateDeployment{}}
		}, "spec.strategy.rollingUpdate: Forbidden"},
		"an unknown way": {func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{Type: "BlueGreen"}
		}, "spec.strategy: Unsupported value"},
	} {
		d := newDeployment("bad")
		x.change(d.Spec)
		_, err := c.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: d})
		if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever scales reads and writes a Scale, of any kind with replicas, and writes nothing else.
// spec: OBJ-15
func TestScale(t *testing.T) {
	c := start(t).admin()
	must(c.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: newDeployment("web")}))(t)
	must(c.ReplicaSets.Create(ctx(t), &appsv1rpc.CreateReplicaSetRequest{Object: &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:     &appsv1.ReplicaSetSpec{Selector: webSelector(), Template: webTemplate()},
	}}))(t)
	rc := must(c.ReplicationControllers.Create(ctx(t), &corev1rpc.CreateReplicationControllerRequest{
		Object: &corev1.ReplicationController{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:     &corev1.ReplicationControllerSpec{Template: webTemplate()},
		}}))(t)
	if rc.Spec.Selector["tier"] != "front" || rc.Metadata.Labels["app"] != "web" || rc.Spec.GetReplicas() != 1 {
		t.Errorf("made %v", rc)
	}
	get := &metav1.GetRequest{Namespace: "default", Name: "web"}
	patch := &metav1.PatchRequest{Namespace: "default", Name: "web", PatchType: "application/merge-patch+json",
		Patch: []byte(`{"spec":{"replicas":7}}`)}
	for kind, x := range map[string]struct {
		get, patch func() (*autoscalingv1.Scale, error)
		update     func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error)
		replicas   func() int32
		selector   string
	}{
		"Deployment": {
			func() (*autoscalingv1.Scale, error) { return c.Deployments.GetScale(ctx(t), get) },
			func() (*autoscalingv1.Scale, error) { return c.Deployments.PatchScale(ctx(t), patch) },
			func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
				return c.Deployments.UpdateScale(ctx(t), &appsv1rpc.UpdateDeploymentScaleRequest{Object: s})
			},
			func() int32 { return must(c.Deployments.Get(ctx(t), get))(t).Spec.GetReplicas() }, "app=web",
		},
		"ReplicaSet": {
			func() (*autoscalingv1.Scale, error) { return c.ReplicaSets.GetScale(ctx(t), get) },
			func() (*autoscalingv1.Scale, error) { return c.ReplicaSets.PatchScale(ctx(t), patch) },
			func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
				return c.ReplicaSets.UpdateScale(ctx(t), &appsv1rpc.UpdateReplicaSetScaleRequest{Object: s})
			},
			func() int32 { return must(c.ReplicaSets.Get(ctx(t), get))(t).Spec.GetReplicas() }, "app=web",
		},
		"ReplicationController": {
			func() (*autoscalingv1.Scale, error) { return c.ReplicationControllers.GetScale(ctx(t), get) },
			func() (*autoscalingv1.Scale, error) { return c.ReplicationControllers.PatchScale(ctx(t), patch) },
			func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
				return c.ReplicationControllers.UpdateScale(ctx(t), &corev1rpc.UpdateReplicationControllerScaleRequest{Object: s})
			},
			func() int32 { return must(c.ReplicationControllers.Get(ctx(t), get))(t).Spec.GetReplicas() },
			"app=web,tier=front",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			before := must(x.get())(t)
			if before.Spec.Replicas != 1 || before.Status.Selector != x.selector || before.Metadata.Name != "web" ||
				before.Metadata.Labels != nil {
				t.Errorf("the scale is %v", before)
			}
			patched := must(x.patch())(t)
			if patched.Spec.Replicas != 7 || x.replicas() != 7 {
				t.Errorf("patched to %v", patched)
			}
			before.Spec = &autoscalingv1.ScaleSpec{Replicas: 2}
			if _, err := x.update(before); !apierrors.Is(err, apierrors.Conflict) {
				t.Errorf("an old scale overwrites a newer one: %v", err)
			}
			before.Metadata.ResourceVersion = ""
			if after := must(x.update(before))(t); after.Spec.Replicas != 2 || x.replicas() != 2 {
				t.Errorf("updated to %v", after)
			}
			before.Spec.Replicas = -1
			if _, err := x.update(before); !apierrors.Is(err, apierrors.Invalid) ||
				!strings.Contains(err.Error(), "spec.replicas") {
				t.Errorf("scaled below 0: %v", err)
			}
		})
	}
	if _, err := c.Deployments.GetScale(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "x"}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("the scale of nothing: %v", err)
	}
}
