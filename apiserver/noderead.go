package apiserver

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
)

// mayNodeRead lets an agent read what the pods of its node need, and nothing else of that kind: their ConfigMaps,
// their service accounts, their runtime classes, their claims and the volumes of those. Pods that were bound to
// another machine of the same name are not its own (spec: NODE-7, OBJ-15). The name decides, before anything is read,
// so that an agent learns nothing of others.
func (s *Server) mayNodeRead(ctx context.Context, id auth.Identity, a auth.Attributes) error {
	var needs func(*corev1.Pod) bool
	switch {
	case a.Verb != "get" || a.Subresource != "":
		return nil
	case a.Resource == "configmaps":
		needs = func(p *corev1.Pod) bool { return usesConfigMap(p.GetSpec(), a.Name) }
	case a.Resource == "serviceaccounts":
		needs = func(p *corev1.Pod) bool { return p.GetSpec().GetServiceAccountName() == a.Name }
	case a.Resource == "persistentvolumeclaims":
		needs = func(p *corev1.Pod) bool { return slices.Contains(storage.ClaimNames(p), a.Name) }
	case a.Resource == "runtimeclasses":
		needs = func(p *corev1.Pod) bool {
			return p.GetSpec().RuntimeClassName != nil && p.GetSpec().GetRuntimeClassName() == a.Name
		}
	case a.Resource == "persistentvolumes":
		needs = func(p *corev1.Pod) bool { return s.usesVolume(ctx, p, a.Name) }
	default:
		return nil
	}
	pods, err := s.store.List(ctx, corev1.PodKind, store.ListOptions{
		Namespace: a.Namespace, Field: fields.OneTermEqualSelector("spec.nodeName", id.Node),
	})
	if err != nil {
		return err
	}
	for _, o := range pods.Objects {
		p := o.(*corev1.Pod)
		if key := nodekey.Of(p.GetMetadata()); (key == "" || key == id.Key) && needs(p) {
			return nil
		}
	}
	return auth.Denied(id, a, "no relationship found between node '"+id.Node+"' and this object")
}

// usesVolume says whether a claim of the pod is bound to a volume.
func (s *Server) usesVolume(ctx context.Context, p *corev1.Pod, volume string) bool {
	for _, name := range storage.ClaimNames(p) {
		key := store.Key{Kind: corev1.PersistentVolumeClaimKind, Namespace: p.GetMetadata().GetNamespace(), Name: name}
		o, err := s.store.Get(ctx, key, "")
		if err != nil {
			continue // another may be; if none is, the agent asks again
		}
		if o.(*corev1.PersistentVolumeClaim).GetSpec().GetVolumeName() == volume {
			return true
		}
	}
	return false
}

// usesConfigMap says whether a pod refers to a ConfigMap of its namespace: in a variable, in all variables of a
// container, or in a volume.
func usesConfigMap(spec *corev1.PodSpec, name string) bool {
	is := func(ref *corev1.LocalObjectReference) bool { return ref.GetName() == name }
	inContainer := func(env []*corev1.EnvVar, from []*corev1.EnvFromSource) bool {
		return slices.ContainsFunc(env, func(e *corev1.EnvVar) bool {
			return is(e.GetValueFrom().GetConfigMapKeyRef().GetLocalObjectReference())
		}) || slices.ContainsFunc(from, func(f *corev1.EnvFromSource) bool {
			return is(f.GetConfigMapRef().GetLocalObjectReference())
		})
	}
	for _, c := range slices.Concat(spec.GetContainers(), spec.GetInitContainers()) {
		if inContainer(c.GetEnv(), c.GetEnvFrom()) {
			return true
		}
	}
	for _, c := range spec.GetEphemeralContainers() {
		if common := c.GetEphemeralContainerCommon(); inContainer(common.GetEnv(), common.GetEnvFrom()) {
			return true
		}
	}
	return slices.ContainsFunc(spec.GetVolumes(), func(v *corev1.Volume) bool {
		source := v.GetVolumeSource()
		return is(source.GetConfigMap().GetLocalObjectReference()) ||
			slices.ContainsFunc(source.GetProjected().GetSources(), func(p *corev1.VolumeProjection) bool {
				return is(p.GetConfigMap().GetLocalObjectReference())
			})
	})
}
