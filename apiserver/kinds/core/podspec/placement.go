package podspec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/taints"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func (f *faults) affinity(p *validation.Path, a *corev1.Affinity) {
	if a == nil {
		return
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	node, at := a.GetNodeAffinity(), p.Child("nodeAffinity")
	if s := node.GetRequiredDuringSchedulingIgnoredDuringExecution(); s != nil {
		terms := at.Child(required).Child("nodeSelectorTerms")
		if len(s.GetNodeSelectorTerms()) == 0 {
			f.Required(terms, "must have at least one node selector term")
		}
		for i, t := range s.GetNodeSelectorTerms() {
			f.NodeTerm(terms.Index(i), t, true)
		}
	}
	for i, t := range node.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		term := at.Child(preferred).Index(i)
		f.weight(term.Child("weight"), t.GetWeight())
		f.NodeTerm(term.Child("preference"), t.GetPreference(), false)
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

func (f *faults) weight(p *validation.Path, w int32) {
	if w < 1 || w > maxWeight {
		f.InvalidValue(p, w, "must be in the range 1-100")
	}
}

func (f *faults) podTerm(p *validation.Path, t *corev1.PodAffinityTerm) {
	f.LabelSelector(p.Child("labelSelector"), t.GetLabelSelector())
	f.LabelSelector(p.Child("namespaceSelector"), t.GetNamespaceSelector())
	for _, name := range t.GetNamespaces() {
		f.Label(p.Child("namespace"), name)
	}
	f.labelKeys(p, t.GetMatchLabelKeys(), t.GetMismatchLabelKeys(), t.GetLabelSelector())
	if t.GetTopologyKey() == "" {
		f.Required(p.Child("topologyKey"), "can not be empty")
	}
	f.Qualified(p.Child("topologyKey"), t.GetTopologyKey())
}

// labelKeys checks keys whose values are taken from the pod's own labels. At creation the server has
// already put them into the selector, so a key that is there twice was given twice.
func (f *faults) labelKeys(p *validation.Path, match, mismatch []string, s *metav1.LabelSelector) {
	for _, l := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if len(l.keys) > 0 && s == nil {
			f.Forbidden(p.Child(l.name), "must not be specified when labelSelector is not set")
			continue
		}
		for i, k := range l.keys {
			f.Qualified(p.Child(l.name).Index(i), k)
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
			f.Invalid(p.Index(i), r.GetKey(), "exists in both matchLabelKeys and labelSelector")
		}
		selected[r.GetKey()] = true
	}
	refused := make(map[string]bool, len(mismatch))
	for _, k := range mismatch {
		refused[k] = true
	}
	for i, k := range match {
		if refused[k] {
			f.Invalid(p.Child("matchLabelKeys").Index(i), k, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

// spread checks topology spread constraints (SPREAD-1).
func (f *faults) spread(p *validation.Path, constraints []*corev1.TopologySpreadConstraint) {
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
		f.Positive(at.Child("maxSkew"), int64(c.GetMaxSkew()))
		if c.GetTopologyKey() == "" {
			f.Required(at.Child("topologyKey"), "can not be empty")
		}
		f.OneOf(at.Child("whenUnsatisfiable"), action, "DoNotSchedule", "ScheduleAnyway")
		k := kind{c.GetTopologyKey(), action}
		if total[k]--; total[k] > 0 {
			f.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", k.key, k.action))
		}
		if c != nil && c.MinDomains != nil {
			f.Positive(at.Child("minDomains"), int64(c.GetMinDomains()))
			if action != "DoNotSchedule" {
				f.InvalidValue(at.Child("minDomains"), c.GetMinDomains(),
					"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+action)
			}
		}
		if c != nil && c.NodeAffinityPolicy != nil {
			f.OneOf(at.Child("nodeAffinityPolicy"), c.GetNodeAffinityPolicy(), "Honor", "Ignore")
		}
		if c != nil && c.NodeTaintsPolicy != nil {
			f.OneOf(at.Child("nodeTaintsPolicy"), c.GetNodeTaintsPolicy(), "Honor", "Ignore")
		}
		f.labelKeys(at, c.GetMatchLabelKeys(), nil, c.GetLabelSelector())
		f.LabelSelector(at.Child("labelSelector"), c.GetLabelSelector())
	}
}

// CheckTolerations checks tolerations at a path, and adds what is wrong to f.
func CheckTolerations(f *validation.Faults, p *validation.Path, list []*corev1.Toleration) {
	for i, t := range list {
		at := p.Index(i)
		op, value := t.GetOperator(), t.GetValue()
		if t.GetKey() != "" {
			f.Qualified(at.Child("key"), t.GetKey())
		} else if op != validation.OpExists {
			f.Invalid(at.Child("operator"), op,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t != nil && t.TolerationSeconds != nil && t.GetEffect() != taints.NoExecute {
			f.Invalid(at.Child("effect"), t.GetEffect(), "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch op {
		case "Equal", "":
			if msgs := validation.WrongLabelValue(value); len(msgs) > 0 {
				f.Invalid(at.Child("operator"), value, validation.Joined(msgs))
			}
		case validation.OpExists:
			if value != "" {
				f.Invalid(at.Child("operator"), value, "value must be empty when `operator` is 'Exists'")
			}
		case validation.OpLt, validation.OpGt:
			// Known to Kubernetes, and listed as supported there, but switched off in 1.36.
			known := []string{"Equal", validation.OpExists, validation.OpLt, validation.OpGt}
			f.Add(at.Child("operator"), field.NotSupported(nil, op, known))
		default:
			f.OneOf(at.Child("operator"), op, "Equal", validation.OpExists)
		}
		if t.GetEffect() != "" {
			f.OneOf(at.Child("effect"), t.GetEffect(), taints.NoSchedule, taints.PreferNoSchedule, taints.NoExecute)
		}
	}
}

func (f *faults) schedulingGates(p *validation.Path, gates []*corev1.PodSchedulingGate) {
	if len(gates) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, g := range gates {
		f.Qualified(p.Index(i), g.GetName())
		if seen[g.GetName()] {
			f.Duplicate(p.Index(i), g.GetName())
		}
		seen[g.GetName()] = true
	}
}
