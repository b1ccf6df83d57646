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
	metav1 "monoplane.dev/api/meta/v1"
)

func newStatefulSet(name string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &appsv1.StatefulSetSpec{
			Selector: webSelector(), Template: webTemplate(), ServiceName: "db",
			VolumeClaimTemplates: []*corev1.PersistentVolumeClaim{{
				Metadata: &metav1.ObjectMeta{Name: "data"},
				Spec: &corev1.PersistentVolumeClaimSpec{
					AccessModes: []string{"ReadWriteOnce"}, Resources: &corev1.VolumeResourceRequirements{
						Requests: map[string]*metav1.Quantity{"storage": {String_: "1Gi"}},
					},
				},
			}},
		},
		Status: &appsv1.StatefulSetStatus{Replicas: 9},
	}
}

// spec: WORK-2, OBJ-5
func TestStatefulSetsAreFilledIn(t *testing.T) {
	c := start(t).admin()
	o := must(c.StatefulSets.Create(ctx(t), &appsv1rpc.CreateStatefulSetRequest{Object: newStatefulSet("web")}))(t)
	s := o.GetSpec()
	if s.GetReplicas() != 1 || s.GetPodManagementPolicy() != "OrderedReady" || s.GetRevisionHistoryLimit() != 10 ||
		s.GetUpdateStrategy().GetType() != "RollingUpdate" ||
		s.GetUpdateStrategy().GetRollingUpdate().Partition == nil ||
		s.GetPersistentVolumeClaimRetentionPolicy().GetWhenScaled() != "Retain" ||
		s.GetVolumeClaimTemplates()[0].GetSpec().GetVolumeMode() != "Filesystem" ||
		s.GetTemplate().GetSpec().GetRestartPolicy() != "Always" || o.GetStatus().GetReplicas() != 0 {
		t.Errorf("created %v", o)
	}
	next := clone(o)
	next.Spec.MinReadySeconds, next.Spec.Ordinals = 5, &appsv1.StatefulSetOrdinals{Start: 3}
	next.Status = &appsv1.StatefulSetStatus{Replicas: 7}
	next = must(c.StatefulSets.Update(ctx(t), &appsv1rpc.UpdateStatefulSetRequest{Object: next}))(t)
	if next.GetStatus().GetReplicas() != 0 || next.GetMetadata().GetGeneration() != 2 {
		t.Errorf("updated %v", next)
	}
	for name, change := range map[string]func(*appsv1.StatefulSetSpec){
		"its Service": func(s *appsv1.StatefulSetSpec) { s.ServiceName = "other" },
		"its order":   func(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = "Parallel" },
		"its claims":  func(s *appsv1.StatefulSetSpec) { s.VolumeClaimTemplates = nil },
		"its selector": func(s *appsv1.StatefulSetSpec) {
			s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}
		},
	} {
		moved := clone(next)
		change(moved.Spec)
		_, err := c.StatefulSets.Update(ctx(t), &appsv1rpc.UpdateStatefulSetRequest{Object: moved})
		if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), "are forbidden") {
			t.Errorf("%s can be changed: %v", name, err)
		}
	}
	told := clone(next)
	told.Spec.ServiceName, told.Status = "x", &appsv1.StatefulSetStatus{Replicas: 3, CollisionCount: ptr(int32(2))}
	told = must(c.StatefulSets.UpdateStatus(ctx(t), &appsv1rpc.UpdateStatefulSetRequest{Object: told}))(t)
	if told.GetStatus().GetReplicas() != 3 || told.GetSpec().GetServiceName() != "db" {
		t.Errorf("status written: %v", told)
	}
	for name, bad := range map[string]*appsv1.StatefulSetStatus{
		"fewer collisions": {Replicas: 3}, "more current": {CurrentReplicas: 1, CollisionCount: ptr(int32(2))},
	} {
		wrong := clone(told)
		wrong.Status = bad
		if _, err := c.StatefulSets.UpdateStatus(ctx(t), &appsv1rpc.UpdateStatefulSetRequest{Object: wrong}); !apierrors.Is(
			err, apierrors.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// spec: WORK-2, OBJ-3
func TestStatefulSetsAreChecked(t *testing.T) {
	c := start(t).admin()
	for name, x := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   string
	}{
		"a name that pods cannot have": {func(o *appsv1.StatefulSet) { o.Metadata.Name = "a.b" }, "metadata.name"},
		"an unknown order": {func(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = "Chaotic" },
			"spec.podManagementPolicy"},
		"an unknown way": {func(o *appsv1.StatefulSet) {
			o.Spec.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "Recreate"}
		}, "spec.updateStrategy"},
		"steps of OnDelete": {func(o *appsv1.StatefulSet) {
			o.Spec.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "OnDelete",
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{}}
		}, "spec.updateStrategy.rollingUpdate"},
		"no pod may be missing": {func(o *appsv1.StatefulSet) {
			o.Spec.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "RollingUpdate",
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: portion.Text("0%")}}
		}, "maxUnavailable"},
		"a partition below 0": {func(o *appsv1.StatefulSet) {
			o.Spec.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "RollingUpdate",
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr(int32(-1))}}
		}, "partition"},
		"numbers below 0": {func(o *appsv1.StatefulSet) { o.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: -1} },
			"spec.ordinals.start"},
		"an unknown policy": {func(o *appsv1.StatefulSet) {
			o.Spec.PersistentVolumeClaimRetentionPolicy =
				&appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: "Forget"}
		}, "persistentVolumeClaimRetentionPolicy.whenScaled"},
		"a claim of no size": {func(o *appsv1.StatefulSet) { o.Spec.VolumeClaimTemplates[0].Spec.Resources = nil },
			"spec.volumeClaimTemplates[0].spec.resources[storage]"},
		"a Service that is no label": {func(o *appsv1.StatefulSet) { o.Spec.ServiceName = "a.b" }, "spec.serviceName"},
		"a mount of no volume": {func(o *appsv1.StatefulSet) {
			o.Spec.Template.Spec.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "other", MountPath: "/o"}}
		}, "volumeMounts[0].name"},
	} {
		o := newStatefulSet("bad")
		x.change(o)
		_, err := c.StatefulSets.Create(ctx(t), &appsv1rpc.CreateStatefulSetRequest{Object: o})
		if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := newStatefulSet("good") // a claim is a volume, and what identity decides is not judged
	good.Spec.Template.Spec.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	good.Spec.Template.Spec.Hostname = "NOT VALID"
	must(c.StatefulSets.Create(ctx(t), &appsv1rpc.CreateStatefulSetRequest{Object: good}))(t)

	scale := must(c.StatefulSets.PatchScale(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "good",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"spec":{"replicas":4}}`)}))(t)
	if scale.GetSpec().GetReplicas() != 4 || scale.GetStatus().GetSelector() != "app=web" {
		t.Errorf("scale %v", scale)
	}
	scale.Spec = &autoscalingv1.ScaleSpec{Replicas: 2}
	must(c.StatefulSets.UpdateScale(ctx(t), &appsv1rpc.UpdateStatefulSetScaleRequest{Object: scale}))(t)
	now := must(c.StatefulSets.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "good"}))(t)
	if now.GetSpec().GetReplicas() != 2 {
		t.Errorf("scaled to %d", now.GetSpec().GetReplicas())
	}
}
