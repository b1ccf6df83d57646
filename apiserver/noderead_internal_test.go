package apiserver

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
)

// Every place where a pod can refer to a ConfigMap is found.
//
// spec: OBJ-15
func TestUsesConfigMap(t *testing.T) {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	env := func(name string) []*corev1.EnvVar {
		return []*corev1.EnvVar{{Name: "x", Value: "y"}, {Name: "z", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref(name), Key: "k"},
		}}}
	}
	from := func(name string) []*corev1.EnvFromSource {
		return []*corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref(name)}}}
	}
	spec := &corev1.PodSpec{
		InitContainers: []*corev1.Container{{Env: env("init-env"), EnvFrom: from("init-from")}},
		Containers:     []*corev1.Container{{}, {Env: env("env"), EnvFrom: from("from")}},
		EphemeralContainers: []*corev1.EphemeralContainer{{
			EphemeralContainerCommon: &corev1.EphemeralContainerCommon{Env: env("eph-env"), EnvFrom: from("eph-from")},
		}},
		Volumes: []*corev1.Volume{
			{Name: "a", VolumeSource: &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: ref("volume")}}},
			{Name: "b", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []*corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{LocalObjectReference: ref("secret")}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("projected")}},
				}}}},
		},
	}
	for _, name := range []string{"init-env", "init-from", "env", "from", "eph-env", "eph-from", "volume", "projected"} {
		if !usesConfigMap(spec, name) {
			t.Errorf("%s is not found", name)
		}
	}
	for _, name := range []string{"secret", "other", "a", "k"} {
		if usesConfigMap(spec, name) {
			t.Errorf("%s is found", name)
		}
	}
	if usesConfigMap(nil, "x") || usesConfigMap(&corev1.PodSpec{}, "x") {
		t.Error("an empty pod refers to one")
	}
}
