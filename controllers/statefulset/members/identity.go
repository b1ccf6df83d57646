package members

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// The labels that a member's identity gives it.
const (
	PodNameLabel  = "statefulset.kubernetes.io/pod-name"
	PodIndexLabel = "apps.kubernetes.io/pod-index"
	RevisionLabel = "controller-revision-hash"
)

// maxOrdinal is the largest number that a member can have: the last of as many as can be asked for, from the highest
// number on at which they can begin.
const maxOrdinal = 1<<32 - 1

// Name returns the name of the member with a number.
func Name(set string, ordinal int) string { return set + "-" + strconv.Itoa(ordinal) }

// Ordinal returns the number of a pod that is named as a member of a set is; ok is false for other pods. The number is
// written in one way only: a pod "web-01" is not the member "web-1".
func Ordinal(set string, p *corev1.Pod) (ordinal int, ok bool) {
	text, ok := strings.CutPrefix(p.GetMetadata().GetName(), set+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxOrdinal || strconv.FormatInt(n, 10) != text {
		return 0, false
	}
	return int(n), true
}

// ClaimName returns the name of a claim of a member.
func ClaimName(template *corev1.PersistentVolumeClaim, set string, ordinal int) string {
	return template.GetMetadata().GetName() + "-" + Name(set, ordinal)
}

// Claims says whether a claim of a name may be one of a set's.
func Claims(set *appsv1.StatefulSet, name string) bool {
	for _, t := range set.GetSpec().GetVolumeClaimTemplates() {
		pod, ok := strings.CutPrefix(name, t.GetMetadata().GetName()+"-")
		if ok && strings.HasPrefix(pod, set.GetMetadata().GetName()+"-") {
			return true
		}
	}
	return false
}

// Revision returns the name of the revision that a pod is of.
func Revision(p *corev1.Pod) string { return p.GetMetadata().GetLabels()[RevisionLabel] }

// start returns the number of the first member.
func start(set *appsv1.StatefulSet) int { return int(set.GetSpec().GetOrdinals().GetStart()) }

// within says whether a set wants a member with a number.
func within(set *appsv1.StatefulSet, ordinal int) bool {
	first := start(set)
	return ordinal >= first && ordinal < first+int(set.GetSpec().GetReplicas())
}

// member makes a pod that is made of a template the member with a number: it gets its name, host name, labels and
// claims.
func member(set *appsv1.StatefulSet, p *corev1.Pod, revision string, ordinal int) *corev1.Pod {
	p.Metadata.Name = Name(set.GetMetadata().GetName(), ordinal)
	p.Metadata.Labels = identify(p.GetMetadata(), ordinal)
	p.Metadata.Labels[RevisionLabel] = revision
	if p.Spec == nil {
		p.Spec = &corev1.PodSpec{}
	}
	p.Spec = p.Spec.Shallow()
	p.Spec.Hostname, p.Spec.Subdomain = p.Metadata.Name, set.GetSpec().GetServiceName()
	p.Spec.Volumes = volumes(set, p, ordinal)
	return p
}

// identify returns the labels of a pod with those of its identity.
func identify(m *metav1.ObjectMeta, ordinal int) map[string]string {
	labels := maps.Clone(m.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[PodNameLabel], labels[PodIndexLabel] = m.GetName(), strconv.Itoa(ordinal)
	return labels
}

// volumes returns the volumes of a pod with those of its claims, which take the place of others of their names.
func volumes(set *appsv1.StatefulSet, p *corev1.Pod, ordinal int) []*corev1.Volume {
	templates := set.GetSpec().GetVolumeClaimTemplates()
	if len(templates) == 0 {
		return p.GetSpec().GetVolumes()
	}
	var all []*corev1.Volume
	for i, t := range templates {
		if claimed(templates[:i], t.GetMetadata().GetName()) {
			continue
		}
		all = append(all, &corev1.Volume{Name: t.GetMetadata().GetName(), VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: ClaimName(t, set.GetMetadata().GetName(), ordinal),
			},
		}})
	}
	for _, v := range p.GetSpec().GetVolumes() {
		if !claimed(templates, v.GetName()) {
			all = append(all, v)
		}
	}
	return all
}

func claimed(templates []*corev1.PersistentVolumeClaim, name string) bool {
	return slices.ContainsFunc(templates, func(t *corev1.PersistentVolumeClaim) bool {
		return t.GetMetadata().GetName() == name
	})
}

// identified says whether a pod has the label by which its identity is known.
func identified(p *corev1.Pod) bool {
	return p.GetMetadata().GetLabels()[PodNameLabel] == p.GetMetadata().GetName()
}

// stored says whether a pod has the volumes of its claims.
func stored(set *appsv1.StatefulSet, p *corev1.Pod, ordinal int) bool {
	named := map[string]string{}
	for _, v := range p.GetSpec().GetVolumes() {
		named[v.GetName()] = v.GetVolumeSource().GetPersistentVolumeClaim().GetClaimName()
	}
	for _, t := range set.GetSpec().GetVolumeClaimTemplates() {
		if named[t.GetMetadata().GetName()] != ClaimName(t, set.GetMetadata().GetName(), ordinal) {
			return false
		}
	}
	return true
}

// repaired returns a pod as its identity and claims want it; nil when it is so. Whether what it changes may change is
// for the server to say: the volumes of a pod may not.
func repaired(set *appsv1.StatefulSet, p *corev1.Pod, ordinal int) *corev1.Pod {
	if identified(p) && stored(set, p, ordinal) {
		return nil
	}
	next := object.Clone(p)
	next.Metadata.Labels = identify(next.Metadata, ordinal)
	if !stored(set, p, ordinal) {
		next.Spec.Volumes = volumes(set, next, ordinal)
	}
	return next
}
