package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func (f *faults) affinity(p *fieldPath, a *corev1.Affinity) {
	if a == nil {
		return
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	node, at := a.GetNodeAffinity(), p.Child("nodeAffinity")
	if s := node.GetRequiredDuringSchedulingIgnoredDuringExecution(); s != nil {
		terms := at.Child(required).Child("nodeSelectorTerms")
		if len(s.GetNodeSelectorTerms()) == 0 {
			f.required(terms, "must have at least one node selector term")
		}
		for i, t := range s.GetNodeSelectorTerms() {
			f.nodeTerm(terms.Index(i), t, true)
		}
	}
	for i, t := range node.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		term := at.Child(preferred).Index(i)
		f.weight(term.Child("weight"), t.GetWeight())
		f.nodeTerm(term.Child("preference"), t.GetPreference(), false)
	}
	for _, k := range []struct {
		name      string
		required  []*corev1.PodAffinityTerm
		preferred []*corev1.WeightedPodAffinityTerm
	}{
		{
			"podAffinity", a.GetPodAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution(),
			a.GetPodAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution(),
		},
		{
			"podAntiAffinity", a.GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution(),
			a.GetPodAntiAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution(),
		},
	} {
		for i, t := range k.required {
			f.podTerm(p.Child(k.name).Child(required).Index(i), t)
		}
		for i, t := range k.preferred {
			term := p.Child(k.name).Child(preferred).Index(i)
			f.weight(term.Child("weight"), t.GetWeight())
			f.podTerm(term.Child("podAffinityTerm"), t.GetPodAffinityTerm())
		}
	}
}

const maxWeight = 100

func (f *faults) weight(p *fieldPath, w int32) {
	if w < 1 || w > maxWeight {
		f.invalidValue(p, w, "must be in the range 1-100")
	}
}

func (f *faults) podTerm(p *fieldPath, t *corev1.PodAffinityTerm) {
	f.labelSelector(p.Child("labelSelector"), t.GetLabelSelector())
	f.labelSelector(p.Child("namespaceSelector"), t.GetNamespaceSelector())
	for _, name := range t.GetNamespaces() {
		f.label(p.Child("namespace"), name)
	}
	f.labelKeys(p, t.GetMatchLabelKeys(), t.GetMismatchLabelKeys(), t.GetLabelSelector())
	if t.GetTopologyKey() == "" {
		f.required(p.Child("topologyKey"), "can not be empty")
	}
	f.qualified(p.Child("topologyKey"), t.GetTopologyKey())
}

// labelKeys checks keys whose values are taken from the pod's own labels. At creation the server has
// already put them into the selector, so a key that is there twice was given twice.
func (f *faults) labelKeys(p *fieldPath, match, mismatch []string, s *metav1.LabelSelector) {
	for _, l := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if len(l.keys) > 0 && s == nil {
			f.forbidden(p.Child(l.name), "must not be specified when labelSelector is not set")
			continue
		}
		for i, k := range l.keys {
			f.qualified(p.Child(l.name).Index(i), k)
		}
	}
	place := make(map[string]int, len(match))
	for i, k := range match {
		place[k] = i
	}
	selected := make(map[string]bool, len(s.GetMatchLabels())+len(s.GetMatchExpressions()))
	for k := range s.GetMatchLabels() {
		selected[k] = true
	}
	for _, r := range s.GetMatchExpressions() {
		if i, ok := place[r.GetKey()]; ok && selected[r.GetKey()] {
			f.invalid(p.Index(i), r.GetKey(), "exists in both matchLabelKeys and labelSelector")
		}
		selected[r.GetKey()] = true
	}
	refused := make(map[string]bool, len(mismatch))
	for _, k := range mismatch {
		refused[k] = true
	}
	for i, k := range match {
		if refused[k] {
			f.invalid(p.Child("matchLabelKeys").Index(i), k, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

// spread checks topology spread constraints (SPREAD-1).
func (f *faults) spread(p *fieldPath, constraints []*corev1.TopologySpreadConstraint) {
	if len(constraints) == 0 {
		return
	}
	type kind struct{ key, action string }
	total := map[kind]int{}
	for _, c := range constraints {
		total[kind{c.GetTopologyKey(), c.GetWhenUnsatisfiable()}]++
	}
	for i, c := range constraints {
		at, action := p.Index(i), c.GetWhenUnsatisfiable()
		f.positive(at.Child("maxSkew"), int64(c.GetMaxSkew()))
		if c.GetTopologyKey() == "" {
			f.required(at.Child("topologyKey"), "can not be empty")
		}
		f.oneOf(at.Child("whenUnsatisfiable"), action, "DoNotSchedule", "ScheduleAnyway")
		k := kind{c.GetTopologyKey(), action}
		if total[k]--; total[k] > 0 {
			f.duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", k.key, k.action))
		}
		if c != nil && c.MinDomains != nil {
			f.positive(at.Child("minDomains"), int64(c.GetMinDomains()))
			if action != "DoNotSchedule" {
				f.invalidValue(at.Child("minDomains"), c.GetMinDomains(),
					"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+action)
			}
		}
		if c != nil && c.NodeAffinityPolicy != nil {
			f.oneOf(at.Child("nodeAffinityPolicy"), c.GetNodeAffinityPolicy(), "Honor", "Ignore")
		}
		if c != nil && c.NodeTaintsPolicy != nil {
			f.oneOf(at.Child("nodeTaintsPolicy"), c.GetNodeTaintsPolicy(), "Honor", "Ignore")
		}
		f.labelKeys(at, c.GetMatchLabelKeys(), nil, c.GetLabelSelector())
		f.labelSelector(at.Child("labelSelector"), c.GetLabelSelector())
	}
}

const (
	effectNoSchedule = "NoSchedule"
	effectPrefer     = "PreferNoSchedule"
	effectNoExecute  = "NoExecute"
)

func (f *faults) tolerations(p *fieldPath, list []*corev1.Toleration) {
	for i, t := range list {
		at := p.Index(i)
		op, value := t.GetOperator(), t.GetValue()
		if t.GetKey() != "" {
			f.qualified(at.Child("key"), t.GetKey())
		} else if op != opExists {
			f.invalid(at.Child("operator"), op,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t != nil && t.TolerationSeconds != nil && t.GetEffect() != effectNoExecute {
			f.invalid(at.Child("effect"), t.GetEffect(), "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch op {
		case "Equal", "":
			if msgs := wrongLabelValue(value); len(msgs) > 0 {
				f.invalid(at.Child("operator"), value, joined(msgs))
			}
		case opExists:
			if value != "" {
				f.invalid(at.Child("operator"), value, "value must be empty when `operator` is 'Exists'")
			}
		case opLess, opGreater:
			// Known to Kubernetes, and listed as supported there, but switched off in 1.36.
			f.add(at.Child("operator"), field.NotSupported(nil, op, []string{"Equal", opExists, opLess, opGreater}))
		default:
			f.oneOf(at.Child("operator"), op, "Equal", opExists)
		}
		if t.GetEffect() != "" {
			f.oneOf(at.Child("effect"), t.GetEffect(), effectNoSchedule, effectPrefer, effectNoExecute)
		}
	}
}

func (f *faults) schedulingGates(p *fieldPath, gates []*corev1.PodSchedulingGate) {
	if len(gates) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, g := range gates {
		f.qualified(p.Index(i), g.GetName())
		if seen[g.GetName()] {
			f.duplicate(p.Index(i), g.GetName())
		}
		seen[g.GetName()] = true
	}
}
