package oracle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	oa "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	om "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/statefulset/members"
)

// cast is the pods and claims of a StatefulSet. It is what Kubernetes' control reads and writes.
type cast struct {
	mu     sync.Mutex
	pods   map[string]*v1.Pod
	claims map[string]*v1.PersistentVolumeClaim
	made   int
	// status is the last one that was written.
	status *apps1.StatefulSetStatus
}

func (c *cast) copy() *cast {
	next := &cast{pods: map[string]*v1.Pod{}, claims: map[string]*v1.PersistentVolumeClaim{}, made: c.made}
	for name, p := range c.pods {
		next.pods[name] = p.DeepCopy()
	}
	for name, claim := range c.claims {
		next.claims[name] = claim.DeepCopy()
	}
	return next
}

func (c *cast) CreatePod(_ context.Context, p *v1.Pod, _ *apps1.StatefulSet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods[p.Name] != nil {
		return apierrs.NewAlreadyExists(v1.Resource("pods"), p.Name)
	}
	p = p.DeepCopy()
	c.made++
	p.UID = types.UID(fmt.Sprint(p.Name, "-", c.made))
	p.Status.Phase = v1.PodPending
	c.pods[p.Name] = p
	return nil
}

func (c *cast) GetPod(_, name string) (*v1.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[name]; p != nil {
		return p, nil
	}
	return nil, apierrs.NewNotFound(v1.Resource("pods"), name)
}

func (c *cast) UpdatePod(p *v1.Pod, _ *apps1.StatefulSet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[p.Name] = p.DeepCopy()
	return nil
}

func (c *cast) DeletePod(p *v1.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there := c.pods[p.Name]; there != nil {
		there.DeletionTimestamp = ptr(metav1.Unix(1, 0))
	}
	return nil
}

func (c *cast) CreateClaim(claim *v1.PersistentVolumeClaim, _ *apps1.StatefulSet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims[claim.Name] = claim.DeepCopy()
	return nil
}

func (c *cast) GetClaim(_, name string) (*v1.PersistentVolumeClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim := c.claims[name]; claim != nil {
		return claim, nil
	}
	return nil, apierrs.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
}

func (c *cast) UpdateClaim(claim *v1.PersistentVolumeClaim, _ *apps1.StatefulSet) error {
	return c.CreateClaim(claim, nil)
}

func (c *cast) UpdateStatefulSetStatus(_ context.Context, _ *apps1.StatefulSet, s *apps1.StatefulSetStatus) error {
	c.status = s.DeepCopy()
	return nil
}

// String tells what matters of pods and claims.
func (c *cast) String() string {
	var all []string
	for name, p := range c.pods {
		volumes := map[string]string{}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				volumes[v.Name] = v.PersistentVolumeClaim.ClaimName
			}
		}
		all = append(all, fmt.Sprint("pod ", name, " going ", p.DeletionTimestamp != nil, " ", p.Labels, " ",
			p.Spec.Hostname, ".", p.Spec.Subdomain, " ", p.Spec.Containers[0].Image, " ", volumes))
	}
	for name, claim := range c.claims {
		var refs []string
		for _, r := range claim.OwnerReferences {
			refs = append(refs, fmt.Sprint(r.Kind, "/", r.Name, "/", r.UID, " ", r.Controller != nil && *r.Controller))
		}
		slices.Sort(refs)
		all = append(all, fmt.Sprint("claim ", name, " ", claim.Labels, " ", refs))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// act does to pods and claims what Monoplane decided.
func (c *cast) act(t *testing.T, plan members.Plan) error {
	t.Helper()
	for _, part := range plan.Parts {
		for _, s := range part {
			for _, claim := range s.Make {
				_ = c.CreateClaim(theirClaim(claim), nil)
			}
			if len(s.Going) > 0 {
				return errors.New("a claim is being deleted")
			}
			for _, own := range s.Own {
				there := c.claims[own.Claim.GetMetadata().GetName()]
				there.OwnerReferences = theirOwners(own.Owners)
			}
			switch name := s.Pod.GetMetadata().GetName(); s.Verb {
			case members.Create:
				if err := c.CreatePod(t.Context(), theirPod(s.Pod), nil); err != nil {
					return err
				}
			case members.Update:
				next := theirPod(s.Pod)
				c.pods[name].Labels, c.pods[name].Spec.Volumes = next.Labels, next.Spec.Volumes
			case members.Delete:
				_ = c.DeletePod(c.pods[name])
			case members.Keep:
			}
		}
	}
	return nil
}

func theirOwners(refs []*om.OwnerReference) (all []metav1.OwnerReference) {
	for _, r := range refs {
		all = append(all, metav1.OwnerReference{APIVersion: r.GetApiVersion(), Kind: r.GetKind(), Name: r.GetName(),
			UID: types.UID(r.GetUid()), Controller: r.Controller, BlockOwnerDeletion: r.BlockOwnerDeletion})
	}
	return all
}

func theirClaim(c *corev1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	m := c.GetMetadata()
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(),
		Labels: m.GetLabels(), OwnerReferences: theirOwners(m.GetOwnerReferences())}}
}

func theirPod(p *corev1.Pod) *v1.Pod {
	m, s := p.GetMetadata(), p.GetSpec()
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), Labels: m.GetLabels()},
		Spec: v1.PodSpec{Hostname: s.GetHostname(), Subdomain: s.GetSubdomain(),
			Containers: []v1.Container{{Name: "c", Image: s.GetContainers()[0].GetImage()}}},
	}
	for _, v := range s.GetVolumes() {
		volume := v1.Volume{Name: v.GetName()}
		if c := v.GetVolumeSource().GetPersistentVolumeClaim(); c != nil {
			volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: c.GetClaimName()}
		}
		out.Spec.Volumes = append(out.Spec.Volumes, volume)
	}
	return out
}

// newSet is a StatefulSet of some kind.
func newSet(r *rand.Rand) *apps1.StatefulSet {
	retention := []apps1.PersistentVolumeClaimRetentionPolicyType{"Retain", "Delete"}
	set := &apps1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set", Generation: 1},
		Spec: apps1.StatefulSetSpec{
			Replicas: ptr(int32(r.IntN(5))), ServiceName: "db", RevisionHistoryLimit: ptr(int32(1000)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image:0"}},
					Volumes: []v1.Volume{{Name: "data"}, {Name: "other"}}}},
			PodManagementPolicy: pick(r, []apps1.PodManagementPolicyType{"OrderedReady", "Parallel"}),
			MinReadySeconds:     int32(r.IntN(2) * 30),
			PersistentVolumeClaimRetentionPolicy: &apps1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: pick(r, retention), WhenScaled: pick(r, retention)},
		},
	}
	for range r.IntN(3) {
		name := fmt.Sprint("data", len(set.Spec.VolumeClaimTemplates))
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix(name, "0"), Labels: map[string]string{"disk": "fast"}}})
	}
	set.Spec.UpdateStrategy.Type = pick(r, []apps1.StatefulSetUpdateStrategyType{"RollingUpdate", "RollingUpdate",
		"OnDelete"})
	if set.Spec.UpdateStrategy.Type == "RollingUpdate" {
		set.Spec.UpdateStrategy.RollingUpdate = &apps1.RollingUpdateStatefulSetStrategy{Partition: ptr(int32(0))}
		if r.IntN(2) == 0 {
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr(intstr.FromInt32(int32(1 + r.IntN(3))))
		}
	}
	return set
}

// happen lets something happen to a StatefulSet, its pods or claims.
func (c *cast) happen(r *rand.Rand, set *apps1.StatefulSet, now *time.Time) {
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		p := c.pods[name]
		if r.IntN(2) == 0 {
			continue
		}
		status := func(ready v1.ConditionStatus) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready,
				LastTransitionTime: metav1.NewTime(*now)}}
		}
		switch {
		case p.DeletionTimestamp != nil && r.IntN(2) == 0:
			delete(c.pods, name)
		case p.Status.Phase == v1.PodPending:
			p.Status.Phase = v1.PodRunning
			status(pick(r, []v1.ConditionStatus{"True", "True", "True", "False"}))
		case r.IntN(12) == 0:
			p.Status.Phase = pick(r, []v1.PodPhase{v1.PodFailed, v1.PodSucceeded})
			status("False")
		case p.Status.Phase == v1.PodRunning && r.IntN(4) == 0:
			status(pick(r, []v1.ConditionStatus{"True", "True", "False"}))
		case r.IntN(20) == 0:
			p.DeletionTimestamp = ptr(metav1.NewTime(*now))
		case r.IntN(30) == 0:
			delete(p.Labels, "statefulset.kubernetes.io/pod-name")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.claims)) {
		claim := c.claims[name]
		switch r.IntN(40) {
		case 0:
			delete(c.claims, name)
		case 1:
			claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap",
				Name: "x", UID: "x", Controller: ptr(r.IntN(2) == 0)})
		case 2:
			for i := range claim.OwnerReferences {
				claim.OwnerReferences[i].UID = "before"
			}
		case 3:
			for i := range claim.OwnerReferences {
				claim.OwnerReferences[i].Controller = nil
			}
		case 4:
			// In parallel it is chance what is done besides what fails.
			if set.Spec.PodManagementPolicy == "OrderedReady" {
				claim.DeletionTimestamp = ptr(metav1.NewTime(*now))
			}
		}
	}
	spec := &set.Spec
	was := spec.DeepCopy()
	switch r.IntN(8) {
	case 0:
		spec.Template.Spec.Containers[0].Image = fmt.Sprint("image:", r.IntN(4))
	case 1:
		spec.Replicas = ptr(int32(r.IntN(6)))
	case 2:
		if spec.UpdateStrategy.RollingUpdate != nil {
			spec.UpdateStrategy.RollingUpdate.Partition = ptr(int32(r.IntN(4)))
		}
	case 3:
		if r.IntN(3) == 0 {
			spec.Ordinals = &apps1.StatefulSetOrdinals{Start: int32(r.IntN(4))}
		}
	}
	if fmt.Sprint(was) != fmt.Sprint(spec) {
		set.Generation++
	}
	*now = now.Add(time.Duration(r.IntN(40)) * time.Second)
}

// castState is a cast as it is told to Kubernetes' code, and by it.
type castState struct {
	Pods   map[string]*v1.Pod
	Claims map[string]*v1.PersistentVolumeClaim
	Made   int
	Status *apps1.StatefulSetStatus
}

func castOf(c *cast) castState { return castState{c.pods, c.claims, c.made, c.status} }

func (s castState) cast() *cast {
	c := (&cast{pods: s.Pods, claims: s.Claims, made: s.Made}).copy()
	c.status = s.Status.DeepCopy()
	return c
}

// castStep is what there is after a step, what went wrong with it, and the image in the template of each revision.
type castStep struct {
	After  castState
	Wrong  string
	Images map[string]string
}

// In the same histories the same pods and claims are made, changed and deleted as by Kubernetes, and the same status
// is written. spec: WORK-2
func TestStatefulSetsAreKeptAlike(t *testing.T) {
	r := random(t)
	for range *count/20 + 1 {
		set, there, now := newSet(r), (&cast{}).copy(), time.Unix(1_800_000_000, 0)
		past := &course{}
		for range 40 {
			before := there.copy()
			answer := ask[castStep](t, "steps-of-statefulsets", past, set, castOf(there), now)
			theirs, theirErr := answer.After.cast(), answer.Wrong
			mine := before.copy()
			got := decideOn(t, set, before, theirs.status.UpdateRevision, answer.Images, now)
			err := mine.act(t, got)
			if err == nil {
				got.Status.CurrentReplicas -= got.Updated
			}
			o := converted(t, set, &oa.StatefulSet{})
			members.Complete(o, got.Status)
			if err != nil && theirErr != "" {
				// Kubernetes gives the claims that it made their owners in a second write, which it did not come to.
				mine.claims, before.claims = theirs.claims, theirs.claims
			}
			if (err == nil) != (theirErr == "") || mine.String() != theirs.String() {
				t.Fatalf("after %v (Kubernetes: %q)\n%s\nKubernetes has\n%s\nwhere there was\n%s\nof %v\nstatus %v", err,
					theirErr, mine, theirs, before, set.Spec, set.Status)
			}
			if err == nil {
				sameStatefulStatus(t, got.Status, theirs.status, before)
			}
			set.Status = *theirs.status.DeepCopy()
			there = theirs
			there.happen(r, set, &now)
		}
	}
}

// decideOn returns what Monoplane decides.
func decideOn(
	t *testing.T, set *apps1.StatefulSet, c *cast, update string, images map[string]string, now time.Time,
) members.Plan {
	t.Helper()
	o := converted(t, set, &oa.StatefulSet{})
	template := func(name string) members.Template {
		next := set.Spec.Template.DeepCopy()
		next.Spec.Containers[0].Image = images[name]
		return members.Template{Name: name, Template: converted(t, next, &corev1.PodTemplateSpec{})}
	}
	seen := members.Seen{
		Set: o, Update: template(update), Now: now,
		Claim: func(name string) *corev1.PersistentVolumeClaim {
			if c.claims[name] == nil {
				return nil
			}
			return converted(t, c.claims[name], &corev1.PersistentVolumeClaim{})
		},
		Pod: func(tpl *corev1.PodTemplateSpec) *corev1.Pod {
			return &corev1.Pod{Metadata: &om.ObjectMeta{Namespace: "ns", Labels: maps.Clone(tpl.GetMetadata().GetLabels())},
				Spec: tpl.GetSpec()}
		},
	}
	seen.Current = seen.Update
	if name := set.Status.CurrentRevision; images[name] != "" {
		seen.Current = template(name)
	}
	for _, p := range c.pods {
		seen.Pods = append(seen.Pods, converted(t, p, &corev1.Pod{}))
	}
	return members.Next(seen)
}

// sameStatefulStatus compares two statuses. Of the pods that are of neither revision Kubernetes takes those that it
// deletes from those of the current one.
func sameStatefulStatus(t *testing.T, mine *oa.StatefulSetStatus, theirs *apps1.StatefulSetStatus, before *cast) {
	t.Helper()
	for _, p := range before.pods {
		if l := p.Labels["controller-revision-hash"]; l != theirs.CurrentRevision && l != theirs.UpdateRevision {
			mine.CurrentReplicas = theirs.CurrentReplicas
		}
	}
	got := fmt.Sprint(mine.GetReplicas(), mine.GetReadyReplicas(), mine.GetAvailableReplicas(), mine.GetCurrentReplicas(),
		mine.GetUpdatedReplicas(), mine.GetCurrentRevision(), mine.GetUpdateRevision(), mine.GetObservedGeneration())
	want := fmt.Sprint(theirs.Replicas, theirs.ReadyReplicas, theirs.AvailableReplicas, theirs.CurrentReplicas,
		theirs.UpdatedReplicas, theirs.CurrentRevision, theirs.UpdateRevision, theirs.ObservedGeneration)
	if got != want {
		t.Fatalf("status %s, Kubernetes writes %s, of\n%s", got, want, before)
	}
}
