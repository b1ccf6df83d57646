package rollout

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/semantic"
)

// The annotations and the label of the sets of a Deployment. The revision is on the Deployment, too.
const (
	Revision        = "deployment.kubernetes.io/revision"
	RevisionHistory = "deployment.kubernetes.io/revision-history"
	DesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	MaxReplicas     = "deployment.kubernetes.io/max-replicas"
	TemplateHash    = "pod-template-hash"

	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	rollbackTo  = "deprecated.deployment.rollback.to"
)

// maxHistory is the longest list of earlier revisions of a set.
const maxHistory = 2000

// Find returns the set whose template means the same as that of the Deployment, the oldest of several, nil for none;
// and the others.
func Find(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	want := withoutHash(d.GetSpec().GetTemplate())
	for _, rs := range slices.SortedFunc(slices.Values(sets), older) {
		if fresh == nil && semantic.Equal(withoutHash(rs.GetSpec().GetTemplate()), want) {
			fresh = rs
			continue
		}
		old = append(old, rs)
	}
	return fresh, old
}

// SameTemplate says whether a set is of the template of a Deployment.
func SameTemplate(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	return semantic.Equal(withoutHash(rs.GetSpec().GetTemplate()), withoutHash(d.GetSpec().GetTemplate()))
}

// withoutHash returns a template without the label that only those of sets have.
func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := t.GetMetadata().GetLabels()[TemplateHash]; !ok {
		return t
	}
	t = t.Shallow()
	t.Metadata = t.Metadata.Shallow()
	t.Metadata.Labels = maps.Clone(t.Metadata.Labels)
	delete(t.Metadata.Labels, TemplateHash)
	return t
}

// Hash returns a short text that stands for a template. Collisions, of which nil is none, make it another one.
func Hash(t *corev1.PodTemplateSpec, collisions *int32) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789" // no vowels, so that no words arise
	h := fnv.New32a()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
	if err != nil {
		b = []byte(t.String()) // a text that is no UTF-8, which the server refuses
	}
	_, _ = h.Write(b)
	if collisions != nil {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions))) //nolint:gosec // any number does
	}
	text := []byte(strconv.FormatUint(uint64(h.Sum32()), 10))
	for i, c := range text {
		text[i] = alphabet[int(c)%len(alphabet)]
	}
	return string(text)
}

// maxName is the longest name of an object.
const maxName = 253

// New returns the set that a Deployment makes for its template, without its owner. Its name is made of the template,
// so that nobody makes it twice.
func New(d *appsv1.Deployment, old []*appsv1.ReplicaSet, size int32) *appsv1.ReplicaSet {
	var collisions *int32
	if s := d.GetStatus(); s != nil {
		collisions = s.CollisionCount
	}
	spec, m := d.GetSpec(), d.GetMetadata()
	hash := Hash(spec.GetTemplate(), collisions)
	template := object.Clone(spec.GetTemplate())
	if template.Metadata == nil {
		template.Metadata = &metav1.ObjectMeta{}
	}
	if template.Metadata.Labels == nil {
		template.Metadata.Labels = map[string]string{}
	}
	template.Metadata.Labels[TemplateHash] = hash
	selector := object.Clone(spec.GetSelector())
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[TemplateHash] = hash
	name := m.GetName()
	if most := maxName - 1 - len(hash); len(name) > most {
		name = name[:most]
	}
	rs := &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{
			Namespace: m.GetNamespace(), Name: name + "-" + hash, Labels: maps.Clone(template.Metadata.Labels),
		},
		Spec: &appsv1.ReplicaSetSpec{
			Replicas: &size, MinReadySeconds: spec.GetMinReadySeconds(), Selector: selector, Template: template,
		},
	}
	rs.Metadata.Annotations = annotations(d, rs, old)
	note(d, rs)
	return rs
}

// Renewed returns the new set with what it takes over from the Deployment; nil when it has it already.
func Renewed(d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	set, ready := annotations(d, fresh, old), d.GetSpec().GetMinReadySeconds()
	if maps.Equal(set, fresh.GetMetadata().GetAnnotations()) && ready == fresh.GetSpec().GetMinReadySeconds() {
		return nil
	}
	next := object.Clone(fresh)
	next.Metadata.Annotations, next.Spec.MinReadySeconds = set, ready
	return next
}

// Scaled returns a set of another size, with what it notes of the Deployment; nil when it is so already.
func Scaled(d *appsv1.Deployment, s Scaling) *appsv1.ReplicaSet {
	next := object.Clone(s.Set)
	next.Spec.Replicas = &s.To
	note(d, next)
	if s.To == replicas(s.Set) && maps.Equal(next.Metadata.Annotations, s.Set.GetMetadata().GetAnnotations()) {
		return nil
	}
	return next
}

// note writes on a set how many pods the Deployment wanted, and allowed, when the set was scaled.
func note(d *appsv1.Deployment, rs *appsv1.ReplicaSet) {
	if rs.Metadata.Annotations == nil {
		rs.Metadata.Annotations = map[string]string{}
	}
	want := d.GetSpec().GetReplicas()
	rs.Metadata.Annotations[DesiredReplicas] = decimal(int64(want))
	rs.Metadata.Annotations[MaxReplicas] = decimal(int64(want + Surge(d)))
}

// noted reads a number that note wrote.
func noted(rs *appsv1.ReplicaSet, name string) (int32, bool) {
	n, err := strconv.ParseInt(rs.GetMetadata().GetAnnotations()[name], 10, 32)
	return int32(n), err == nil && n >= 0
}

// annotations returns those of the new set: its own, the Deployment's, and the next revision. A set that is the new
// one again, after a rollback, keeps its earlier revisions in a list.
func annotations(d *appsv1.Deployment, rs *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) map[string]string {
	out := maps.Clone(rs.GetMetadata().GetAnnotations())
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range d.GetMetadata().GetAnnotations() {
		switch k {
		case Revision, RevisionHistory, DesiredReplicas, MaxReplicas, lastApplied, rollbackTo:
		default:
			out[k] = v
		}
	}
	next := int64(1)
	for _, o := range old {
		next = max(next, RevisionOf(o)+1)
	}
	had, ok := out[Revision]
	was, err := strconv.ParseInt(had, 10, 64)
	if err != nil && had != "" || was >= next {
		return out
	}
	out[Revision] = decimal(next)
	if ok {
		out[RevisionHistory] = history(out[RevisionHistory], had)
	}
	return out
}

// history appends a revision to a list, from which the oldest go when it is too long.
func history(list, revision string) string {
	if list == "" {
		return revision
	}
	all := append(strings.Split(list, ","), revision)
	for len(all) > 1 && len(strings.Join(all, ",")) > maxHistory {
		all = all[1:]
	}
	return strings.Join(all, ",")
}

// RevisionOf returns the revision of a set; 0 when it has none.
func RevisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.GetMetadata().GetAnnotations()[Revision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
