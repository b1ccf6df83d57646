package framework

import corev1 "monoplane.dev/api/core/v1"

// SpreadConstraint is one of a pod's topologySpreadConstraints, made ready (spec: SPREAD-1).
type SpreadConstraint struct {
	// Key is the node label that makes the domains.
	Key string
	// Pods are those that count. Self says whether the pod is one of them itself.
	Pods *PodQuery
	Self bool
	// Hard constraints refuse nodes; the others only rate them.
	Hard                bool
	MaxSkew, MinDomains int
	// HonorAffinity and HonorTaints leave out nodes that the pod cannot be on for these reasons.
	HonorAffinity, HonorTaints bool
}

func spreadOf(p *corev1.Pod) []SpreadConstraint {
	list := p.GetSpec().GetTopologySpreadConstraints()
	if len(list) == 0 {
		return nil
	}
	m := p.GetMetadata()
	all := make([]SpreadConstraint, len(list))
	for i, c := range list {
		more := map[string]string{}
		for _, key := range c.GetMatchLabelKeys() {
			if v, ok := m.GetLabels()[key]; ok {
				more[key] = v
			}
		}
		q := NewPodQuery(m.GetNamespace(), c.GetLabelSelector(), more)
		all[i] = SpreadConstraint{
			Key: c.GetTopologyKey(), Pods: q, Self: q.Selects(m.GetLabels()),
			Hard: c.GetWhenUnsatisfiable() == "DoNotSchedule", MaxSkew: int(c.GetMaxSkew()), MinDomains: 1,
			HonorAffinity: c.GetNodeAffinityPolicy() != "Ignore", HonorTaints: c.GetNodeTaintsPolicy() == "Honor",
		}
		if c.MinDomains != nil {
			all[i].MinDomains = int(*c.MinDomains)
		}
	}
	return all
}
