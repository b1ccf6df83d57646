package apps

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/core/claimspec"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// What a StatefulSet may say of the order of its pods, of how they are replaced, and of what becomes of their claims.
const (
	orderedReady = "OrderedReady"
	parallel     = "Parallel"
	retain       = "Retain"
	remove       = "Delete"
)

// StatefulSet describes the kind.
func StatefulSet(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*appsv1.StatefulSet]{
		Kind:     appsv1.StatefulSetKind,
		Spec:     func(o *appsv1.StatefulSet) proto.Message { return o.GetSpec() },
		Default:  DefaultStatefulSet,
		Validate: ValidateStatefulSet,
		Warn:     warningsOfStatefulSet,
		Main:     registry.TypedUpdateRules[*appsv1.StatefulSet]{Validate: ValidateStatefulSetUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*appsv1.StatefulSet]{
			"status": {Validate: ValidateStatefulSetStatus},
		},
		Scale: &registry.Scale[*appsv1.StatefulSet]{
			Replicas:    func(o *appsv1.StatefulSet) int32 { return o.GetSpec().GetReplicas() },
			SetReplicas: func(o *appsv1.StatefulSet, n int32) { o.Spec.Replicas = &n },
			Current:     func(o *appsv1.StatefulSet) int32 { return o.GetStatus().GetReplicas() },
			Selector:    func(o *appsv1.StatefulSet) string { return workload.Selector(o.GetSpec().GetSelector()) },
		},
		Table: append(define.Columns[*appsv1.StatefulSet]{
			define.Text("Ready", "How many pods are ready, of those that are wanted.", func(o *appsv1.StatefulSet) string {
				return fmt.Sprintf("%d/%d", o.GetStatus().GetReadyReplicas(), o.GetSpec().GetReplicas())
			}),
			define.Age[*appsv1.StatefulSet](),
		}, workload.WideContainers(func(o *appsv1.StatefulSet) *corev1.PodTemplateSpec {
			return o.GetSpec().GetTemplate()
		})...),
	}.Strategy()}
}

func warningsOfStatefulSet(next, live *appsv1.StatefulSet) validation.Warnings {
	changed := !validation.Equal(next.GetSpec(), live.GetSpec())
	w := workload.Warnings(next, false, live == nil, changed, next.GetSpec().GetTemplate())
	for i, claim := range next.GetSpec().GetVolumeClaimTemplates() {
		at := validation.NewPath("spec", "volumeClaimTemplates").Index(i)
		if live != nil {
			at = at.Child("Spec") // as Kubernetes writes it then
		}
		podspec.WarnOfClaim(&w, at, claim.GetSpec())
	}
	if next.GetSpec().GetRevisionHistoryLimit() < 0 {
		w.Say("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return w
}

// DefaultStatefulSet fills in a StatefulSet.
func DefaultStatefulSet(o *appsv1.StatefulSet) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	s := o.Spec
	defaults.SetPtr(&s.Replicas, 1)
	defaults.Message(&s.Template)
	podspec.DefaultTemplate(s.Template)
	for i := range s.VolumeClaimTemplates {
		defaults.Message(&s.VolumeClaimTemplates[i])
		core.DefaultPersistentVolumeClaim(s.VolumeClaimTemplates[i])
	}
	defaults.Set(&s.PodManagementPolicy, orderedReady)
	defaults.Message(&s.UpdateStrategy)
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = rollingUpdate
		defaults.Message(&s.UpdateStrategy.RollingUpdate)
	}
	if s.UpdateStrategy.Type == rollingUpdate && s.UpdateStrategy.RollingUpdate != nil {
		defaults.SetPtr(&s.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	defaults.Message(&s.PersistentVolumeClaimRetentionPolicy)
	defaults.Set(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, retain)
	defaults.Set(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, retain)
	defaults.SetPtr(&s.RevisionHistoryLimit, 10)
}

// ValidateStatefulSet checks a StatefulSet that is to be created.
func ValidateStatefulSet(o *appsv1.StatefulSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), nil, true, validation.NameIsLabel)
		checkStatefulSpec(f, o.GetSpec(), tolerance{})
	}
	return f.Causes()
}

// ValidateStatefulSetUpdate checks that a change of a StatefulSet is allowed. What the identities of its pods depend
// on stays as it is, and is not judged again: other rules may have been in force when it was created. Nor is what the
// template says of pods, if the StatefulSet was not valid before.
func ValidateStatefulSetUpdate(new, old *appsv1.StatefulSet) []apierrors.Cause {
	was := &validation.Faults{}
	for was.Pass() {
		checkStatefulSpec(was, old.GetSpec(), tolerance{fixed: true})
	}
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsLabel)
		checkStatefulSpec(f, new.GetSpec(), tolerance{fixed: true, template: was.Count() > 0})
		if !validation.Equal(fixedPart(new.GetSpec()), fixedPart(old.GetSpec())) {
			f.Forbidden(f.Root("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', "+
				"'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "+
				"'minReadySeconds' are forbidden")
		}
	}
	return f.Causes()
}

// fixedPart returns the part of a spec that cannot be changed.
func fixedPart(s *appsv1.StatefulSetSpec) *appsv1.StatefulSetSpec {
	return &appsv1.StatefulSetSpec{
		Selector: s.GetSelector(), VolumeClaimTemplates: s.GetVolumeClaimTemplates(), ServiceName: s.GetServiceName(),
		PodManagementPolicy: s.GetPodManagementPolicy(),
	}
}

// ValidateStatefulSetStatus checks a change of a StatefulSet's status. The collisions do not become fewer: names that
// were taken would be tried again.
func ValidateStatefulSetStatus(new, old *appsv1.StatefulSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsLabel)
		s, at := new.GetStatus(), f.Root("status")
		workload.CheckCounts(f, at, workload.Counts{
			Replicas: s.GetReplicas(), Current: s.GetCurrentReplicas(), Updated: s.GetUpdatedReplicas(),
			Ready: s.GetReadyReplicas(), Available: s.GetAvailableReplicas(), ObservedGeneration: s.GetObservedGeneration(),
		})
		f.NotNegative(at.Child("collisionCount"), int64(s.GetCollisionCount()))
		if s.GetCollisionCount() < old.GetStatus().GetCollisionCount() {
			f.InvalidValue(at.Child("collisionCount"), s.GetCollisionCount(), "cannot be decremented")
		}
	}
	return f.Causes()
}

// tolerance says what of a spec is not judged.
type tolerance struct {
	// fixed is what cannot be changed anyway.
	fixed bool
	// template is what the template says of pods.
	template bool
}

func checkStatefulSpec(f *validation.Faults, s *appsv1.StatefulSetSpec, t tolerance) {
	at := f.Root("spec")
	switch p := s.GetPodManagementPolicy(); p {
	case "":
		f.Required(at.Child("podManagementPolicy"), "")
	case orderedReady, parallel:
	default:
		f.Invalid(at.Child("podManagementPolicy"), p, "must be '"+orderedReady+"' or '"+parallel+"'")
	}
	checkUpdateStrategy(f, at.Child("updateStrategy"), s.GetUpdateStrategy())
	if p := s.GetPersistentVolumeClaimRetentionPolicy(); p != nil {
		at := at.Child("persistentVolumeClaimRetentionPolicy")
		f.OneOf(at.Child("whenDeleted"), p.GetWhenDeleted(), retain, remove)
		f.OneOf(at.Child("whenScaled"), p.GetWhenScaled(), retain, remove)
	}
	if !t.fixed {
		for i, c := range s.GetVolumeClaimTemplates() {
			claimspec.Check(f, at.Child("volumeClaimTemplates").Index(i).Child("spec"), c.GetSpec(), nil)
		}
		if name := s.GetServiceName(); name != "" {
			f.Label(at.Child("serviceName"), name)
		}
	}
	f.NotNegative(at.Child("replicas"), int64(s.GetReplicas()))
	f.NotNegative(at.Child("minReadySeconds"), int64(s.GetMinReadySeconds()))
	f.NotNegative(at.Child("ordinals").Child("start"), int64(s.GetOrdinals().GetStart()))
	selector := workload.CheckSelector(f, at.Child("selector"), s.GetSelector(), "statefulset")
	checkMembers(f, at.Child("template"), s, selector, t.template)
}

func checkUpdateStrategy(f *validation.Faults, at *validation.Path, s *appsv1.StatefulSetUpdateStrategy) {
	steps := s.GetRollingUpdate()
	switch kind := s.GetType(); kind {
	case "":
		f.Required(at, "")
	case onDelete:
		if steps != nil {
			f.Invalid(at.Child("rollingUpdate"), steps.String(), "only allowed for updateStrategy '"+rollingUpdate+"'")
		}
	case rollingUpdate:
		at := at.Child("rollingUpdate")
		f.NotNegative(at.Child("partition"), int64(steps.GetPartition()))
		if most := steps.GetMaxUnavailable(); most != nil {
			at := at.Child("maxUnavailable")
			f.Portion(at, most)
			if workload.IsZero(most) {
				f.Invalid(at, "0", "cannot be 0")
			}
			f.AtMostAll(at, most)
		}
	default:
		f.Invalid(at, kind, "must be '"+rollingUpdate+"' or '"+onDelete+"'")
	}
}

// checkMembers checks the template of pods as those will have it: their hostname and subdomain come from their
// identity, and their claims are volumes that containers may mount. Selector is nil for one that cannot be read.
func checkMembers(
	f *validation.Faults, at *validation.Path, s *appsv1.StatefulSetSpec, selector labels.Selector, tolerant bool,
) {
	if s.GetTemplate() == nil {
		f.Required(at, "")
		return
	}
	t := s.Template.Shallow()
	if selector == nil { // which is a fault of its own
		workload.CheckRunsForEver(f, at, t, "StatefulSet")
		return
	}
	if tolerant {
		workload.CheckSelected(f, at, t, selector)
		f.Labels(at.Child("labels"), t.GetMetadata().GetLabels())
		f.Annotations(at.Child("annotations"), t.GetMetadata().GetAnnotations())
		workload.CheckRunsForEver(f, at, t, "StatefulSet")
		return
	}
	if t.Spec != nil {
		t.Spec = t.Spec.Shallow()
		t.Spec.Hostname, t.Spec.Subdomain = "", ""
		t.Spec.Volumes = volumesOf(s)
	}
	workload.CheckTemplate(f, at, t, selector, "StatefulSet")
}

// volumesOf returns the volumes of the pods of a StatefulSet: those of their claims, and those of the template whose
// names no claim has.
func volumesOf(s *appsv1.StatefulSetSpec) []*corev1.Volume {
	claims := map[string]bool{}
	var volumes []*corev1.Volume
	for _, c := range s.GetVolumeClaimTemplates() {
		name := c.GetMetadata().GetName()
		if claims[name] {
			continue
		}
		claims[name] = true
		volumes = append(volumes, &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	for _, v := range s.GetTemplate().GetSpec().GetVolumes() {
		if !claims[v.GetName()] {
			volumes = append(volumes, v)
		}
	}
	return volumes
}
