// Package podrefs tells which other objects of its namespace a pod names: the ConfigMaps and Secrets that its
// containers' environment, its volumes and its pulls of images are made of, and its service account. The server lets
// the agent of the pod's node read those and no others (OBJ-15), and the agent watches them for as long as the pod is
// there.
//
// It guarantees Kubernetes' answers, which test/oracle compares over random pods, but for what Kubernetes leaves out:
// each source that a volume has counts, not only the first. What is named need not exist. A name may come more than
// once, an empty one never.
package podrefs

import (
	"iter"

	corev1 "monoplane.dev/api/core/v1"
)

// ServiceAccount returns the name of the account that a pod runs as, empty for none.
func ServiceAccount(spec *corev1.PodSpec) string { return spec.GetServiceAccountName() }

// ConfigMaps returns the names of the ConfigMaps that a pod uses.
func ConfigMaps(spec *corev1.PodSpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		yield = named(yield)
		_ = inContainers(spec, yield, func(e *corev1.EnvVar) *corev1.LocalObjectReference {
			return e.GetValueFrom().GetConfigMapKeyRef().GetLocalObjectReference()
		}, func(f *corev1.EnvFromSource) *corev1.LocalObjectReference {
			return f.GetConfigMapRef().GetLocalObjectReference()
		}) && configMapsOfVolumes(spec.GetVolumes(), yield)
	}
}

// Secrets returns the names of the Secrets that a pod uses.
func Secrets(spec *corev1.PodSpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		yield = named(yield)
		for _, s := range spec.GetImagePullSecrets() {
			if !yield(s.GetName()) {
				return
			}
		}
		_ = inContainers(spec, yield, func(e *corev1.EnvVar) *corev1.LocalObjectReference {
			return e.GetValueFrom().GetSecretKeyRef().GetLocalObjectReference()
		}, func(f *corev1.EnvFromSource) *corev1.LocalObjectReference {
			return f.GetSecretRef().GetLocalObjectReference()
		}) && secretsOfVolumes(spec.GetVolumes(), yield)
	}
}

// named leaves out empty names.
func named(yield func(string) bool) func(string) bool {
	return func(name string) bool { return name == "" || yield(name) }
}

// inContainers yields what variables and whole environments of all containers refer to; false when yield wants no
// more.
func inContainers(
	spec *corev1.PodSpec, yield func(string) bool,
	variable func(*corev1.EnvVar) *corev1.LocalObjectReference,
	source func(*corev1.EnvFromSource) *corev1.LocalObjectReference,
) bool {
	one := func(env []*corev1.EnvVar, from []*corev1.EnvFromSource) bool {
		for _, e := range env {
			if !yield(variable(e).GetName()) {
				return false
			}
		}
		for _, f := range from {
			if !yield(source(f).GetName()) {
				return false
			}
		}
		return true
	}
	for _, list := range [...][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			if !one(c.GetEnv(), c.GetEnvFrom()) {
				return false
			}
		}
	}
	for _, c := range spec.GetEphemeralContainers() {
		if common := c.GetEphemeralContainerCommon(); !one(common.GetEnv(), common.GetEnvFrom()) {
			return false
		}
	}
	return true
}

func configMapsOfVolumes(volumes []*corev1.Volume, yield func(string) bool) bool {
	for _, v := range volumes {
		source := v.GetVolumeSource()
		if !yield(source.GetConfigMap().GetLocalObjectReference().GetName()) {
			return false
		}
		for _, p := range source.GetProjected().GetSources() {
			if !yield(p.GetConfigMap().GetLocalObjectReference().GetName()) {
				return false
			}
		}
	}
	return true
}

func secretsOfVolumes(volumes []*corev1.Volume, yield func(string) bool) bool {
	for _, v := range volumes {
		s := v.GetVolumeSource()
		if !yield(s.GetSecret().GetSecretName()) || !yield(s.GetAzureFile().GetSecretName()) {
			return false
		}
		for _, ref := range [...]*corev1.LocalObjectReference{
			s.GetCephfs().GetSecretRef(), s.GetCinder().GetSecretRef(), s.GetCsi().GetNodePublishSecretRef(),
			s.GetFlexVolume().GetSecretRef(), s.GetIscsi().GetSecretRef(), s.GetRbd().GetSecretRef(),
			s.GetScaleIO().GetSecretRef(), s.GetStorageos().GetSecretRef(),
		} {
			if !yield(ref.GetName()) {
				return false
			}
		}
		for _, p := range s.GetProjected().GetSources() {
			if !yield(p.GetSecret().GetLocalObjectReference().GetName()) {
				return false
			}
		}
	}
	return true
}
