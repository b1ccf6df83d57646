package members

import (
	"maps"
	"slices"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
)

// remove is the policy by which claims go.
const remove = "Delete"

// policy returns whether claims go with their set, and whether with their pod when that is not wanted any more.
func policy(set *appsv1.StatefulSet) (withSet, withPod bool) {
	p := set.GetSpec().GetPersistentVolumeClaimRetentionPolicy()
	return p.GetWhenDeleted() == remove, p.GetWhenScaled() == remove
}

// newClaims returns the claims of a member as they are to be made, each template's name once.
func newClaims(set *appsv1.StatefulSet, ordinal int) []*corev1.PersistentVolumeClaim {
	m := set.GetMetadata()
	withSet, _ := policy(set)
	templates := set.GetSpec().GetVolumeClaimTemplates()
	var all []*corev1.PersistentVolumeClaim
	for i, t := range templates {
		if claimed(templates[:i], t.GetMetadata().GetName()) {
			continue
		}
		c := &corev1.PersistentVolumeClaim{
			Metadata: &metav1.ObjectMeta{
				Namespace: m.GetNamespace(), Name: ClaimName(t, m.GetName(), ordinal),
				Labels: maps.Clone(t.GetMetadata().GetLabels()), Annotations: maps.Clone(t.GetMetadata().GetAnnotations()),
				Finalizers: slices.Clone(t.GetMetadata().GetFinalizers()),
			},
			Spec: object.Clone(t.GetSpec()),
		}
		if c.Metadata.Labels == nil {
			c.Metadata.Labels = map[string]string{}
		}
		maps.Copy(c.Metadata.Labels, set.GetSpec().GetSelector().GetMatchLabels())
		if withSet {
			c.Metadata.OwnerReferences = []*metav1.OwnerReference{owned.Reference(set)}
		}
		all = append(all, c)
	}
	return all
}

// refers says whether a reference names an object, whatever its uid.
func refers(r *metav1.OwnerReference, o object.Object) bool {
	k := o.ObjectKind()
	return r.GetApiVersion() == k.APIVersion() && r.GetKind() == k.Kind && r.GetName() == o.GetMetadata().GetName()
}

// owns says whether an object is among the owners of a claim.
func owns(o object.Object, c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(c.GetMetadata().GetOwnerReferences(), func(r *metav1.OwnerReference) bool {
		return r.GetUid() == o.GetMetadata().GetUid()
	})
}

// stale says whether an earlier object of a name owns a claim, which then goes with that one.
func stale(o object.Object, c *corev1.PersistentVolumeClaim) bool {
	for _, r := range c.GetMetadata().GetOwnerReferences() {
		if refers(r, o) {
			return r.GetUid() != o.GetMetadata().GetUid()
		}
	}
	return false
}

// conflicting says whether somebody else manages a claim that is to go with its set or pod.
func conflicting(set *appsv1.StatefulSet, p *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	if withSet, withPod := policy(set); !withSet && !withPod {
		return false
	}
	for _, r := range c.GetMetadata().GetOwnerReferences() {
		switch {
		case refers(r, set):
			if r.GetUid() != set.GetMetadata().GetUid() {
				return true
			}
		case refers(r, p):
			if r.GetUid() != p.GetMetadata().GetUid() {
				return true
			}
		case r.GetController():
			return true
		}
	}
	return false
}

// half says whether the set or the pod owns a claim without managing it.
func half(set *appsv1.StatefulSet, p *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	for _, r := range c.GetMetadata().GetOwnerReferences() {
		uid := r.GetUid()
		if (uid == set.GetMetadata().GetUid() || uid == p.GetMetadata().GetUid()) && !r.GetController() {
			return true
		}
	}
	return false
}

// wanted returns whether the set and whether the pod is to own a claim: the pod when it is one too many and claims go
// with such pods, the set otherwise if claims go with it.
func wanted(set *appsv1.StatefulSet, ordinal int) (ofSet, ofPod bool) {
	withSet, withPod := policy(set)
	ofPod = withPod && !within(set, ordinal)
	return withSet && !ofPod, ofPod
}

// settled says whether a claim has the owners that the policy wants. One that belongs to an earlier set or pod, or is
// managed by somebody else alone, is left as it is.
func settled(set *appsv1.StatefulSet, p *corev1.Pod, ordinal int, c *corev1.PersistentVolumeClaim) bool {
	switch {
	case stale(set, c), stale(p, c):
		return true
	case conflicting(set, p, c):
		return !owns(set, c) && !owns(p, c)
	case half(set, p, c):
		return false
	}
	ofSet, ofPod := wanted(set, ordinal)
	return owns(set, c) == ofSet && owns(p, c) == ofPod
}

// owners returns the owners that a claim of a member is to have.
func owners(
	set *appsv1.StatefulSet, p *corev1.Pod, ordinal int, c *corev1.PersistentVolumeClaim,
) []*metav1.OwnerReference {
	var refs []*metav1.OwnerReference
	for _, r := range c.GetMetadata().GetOwnerReferences() {
		if !refers(r, set) && !refers(r, p) {
			refs = append(refs, r)
		}
	}
	if conflicting(set, p, c) {
		return refs
	}
	ofSet, ofPod := wanted(set, ordinal)
	if ofPod {
		refs = append(refs, owned.Reference(p))
	}
	if ofSet {
		refs = append(refs, owned.Reference(set))
	}
	return refs
}
