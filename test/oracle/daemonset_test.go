package oracle

import (
	"fmt"
	"testing"

	apps1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	oa "monoplane.dev/api/apps/v1"
	ourapps "monoplane.dev/apiserver/kinds/apps"
)

// spec: OBJ-3, WORK-1
func TestDaemonSetsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		template, altered, what := podTemplate(r)
		m := meta("w")
		m.ResourceVersion = "1"
		m.Annotations = map[string]string{apps1.DeprecatedTemplateGeneration: "2"}
		k := &apps1.DaemonSet{ObjectMeta: m, Spec: apps1.DaemonSetSpec{
			Selector: selector(r), Template: altered, MinReadySeconds: int32(r.IntN(4) - 1),
			RevisionHistoryLimit: someCount(r), UpdateStrategy: apps1.DaemonSetUpdateStrategy{
				Type: pick(r, []apps1.DaemonSetUpdateStrategyType{"", "OnDelete", "RollingUpdate", "Other"})},
		}}
		if r.IntN(2) == 0 {
			k.Spec.UpdateStrategy.RollingUpdate = &apps1.RollingUpdateDaemonSet{
				MaxSurge: amount(r), MaxUnavailable: amount(r)}
		}
		old := k.DeepCopy()
		old.Spec.Selector, old.Spec.Template = &metav1.LabelSelector{MatchLabels: template.Labels}, template
		o, before := converted(t, k, &oa.DaemonSet{}), converted(t, old, &oa.DaemonSet{})
		ourapps.DefaultDaemonSet(o)
		ourapps.DefaultDaemonSet(before)
		keep(o.Metadata, before.Metadata)
		if judged(t, append(what, "daemonset", fmt.Sprint(k.Spec.UpdateStrategy)), ask[verdict](t, "daemonsets", k, old),
			ourapps.ValidateDaemonSet(o), ourapps.ValidateDaemonSetUpdate(o, before)) {
			bad++
		}
	}
}
