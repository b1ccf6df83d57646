package oracle

import (
	"fmt"
	"testing"

	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	oa "monoplane.dev/api/apps/v1"
	ourapps "monoplane.dev/apiserver/kinds/apps"
)

// StatefulSets are filled in, and judged, as in Kubernetes. spec: OBJ-3, WORK-2
func TestStatefulSetsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		template, altered, what := podTemplate(r)
		m := meta(pick(r, []string{"w", "w", "w", "w.x"}))
		m.ResourceVersion = "1"
		k := &apps1.StatefulSet{ObjectMeta: m, Spec: apps1.StatefulSetSpec{
			Replicas: someCount(r), Selector: selector(r), Template: altered, MinReadySeconds: int32(r.IntN(4) - 1),
			RevisionHistoryLimit: someCount(r), ServiceName: pick(r, []string{"", "db", "db", "a.b"}),
			PodManagementPolicy: pick(r, []apps1.PodManagementPolicyType{"", "OrderedReady", "Parallel", "Other"}),
			UpdateStrategy: apps1.StatefulSetUpdateStrategy{Type: pick(r, []apps1.StatefulSetUpdateStrategyType{"",
				"OnDelete", "RollingUpdate", "RollingUpdate", "Other"})},
		}}
		if r.IntN(2) == 0 {
			k.Spec.UpdateStrategy.RollingUpdate = &apps1.RollingUpdateStatefulSetStrategy{
				Partition: someCount(r), MaxUnavailable: amount(r)}
		}
		if r.IntN(3) == 0 {
			k.Spec.Ordinals = &apps1.StatefulSetOrdinals{Start: int32(r.IntN(5) - 1)}
		}
		if r.IntN(2) == 0 {
			policies := []apps1.PersistentVolumeClaimRetentionPolicyType{"", "Retain", "Delete", "Other"}
			k.Spec.PersistentVolumeClaimRetentionPolicy = &apps1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: pick(r, policies), WhenScaled: pick(r, policies)}
		}
		name := pick(r, []string{"data", "logs", "", "a.b"}) // one of them: the order of their volumes is no rule
		for range r.IntN(3) {
			c := v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{"ReadWriteOnce"}}}
			if r.IntN(4) > 0 {
				c.Spec.Resources.Requests = v1.ResourceList{"storage": resource.MustParse(pick(r, []string{"1Gi", "0", "5M"}))}
			}
			k.Spec.VolumeClaimTemplates = append(k.Spec.VolumeClaimTemplates, c)
		}
		old := k.DeepCopy()
		old.Spec.Selector, old.Spec.Template = &metav1.LabelSelector{MatchLabels: template.Labels}, template
		if r.IntN(3) == 0 {
			old.Spec.ServiceName = "other"
		}
		if r.IntN(3) == 0 {
			old.Spec.VolumeClaimTemplates = nil
		}
		o, before := converted(t, k, &oa.StatefulSet{}), converted(t, old, &oa.StatefulSet{})
		ourapps.DefaultStatefulSet(o)
		ourapps.DefaultStatefulSet(before)
		keep(o.Metadata, before.Metadata)
		if judged(t, append(what, "statefulset", fmt.Sprint(k.Spec.UpdateStrategy)), ask[verdict](t, "statefulsets", k, old),
			ourapps.ValidateStatefulSet(o), ourapps.ValidateStatefulSetUpdate(o, before)) {
			bad++
		}
	}
}
