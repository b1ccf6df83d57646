package naive

import (
	"fmt"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// dispute is a node that the profile and the naive scheduler think differently of.
type dispute struct{ node, about string }

// agree returns where the profile differs from what is wanted; nil when nowhere.
func (r *referee) agree(s *framework.Snapshot, pod *corev1.Pod, want map[string]*verdict) *dispute {
	e, err := r.profile.Explain(framework.NewPodInfo(pod), s)
	if err != nil {
		return &dispute{"", "the profile fails: " + err.Error()}
	}
	if len(e.Nodes) != len(want) {
		return &dispute{"", fmt.Sprintf("the profile explains %d nodes of %d", len(e.Nodes), len(want))}
	}
	for _, n := range e.Nodes {
		if want[n.Name] == nil {
			return &dispute{n.Name, "the profile explains a node that is not there"}
		}
		if about := sameRefusal(n.Refused, want[n.Name].refusals); about != "" {
			return &dispute{n.Name, about}
		}
	}
	for _, plugin := range r.scores {
		if d := sameScores(plugin, e, want); d != nil {
			return d
		}
	}
	return sameTotals(e)
}

// sameRefusal compares the first refusals. A PreFilter plugin comes before all filters: a node that it leaves out, by
// refusing the pod for all nodes or by choosing others, must be one that the node affinity refuses.
func sameRefusal(s *framework.Status, refusals []refusal) string {
	if (s == nil) != (len(refusals) == 0) {
		return "only one of them says that the pod fits"
	}
	if s == nil {
		return ""
	}
	if m := s.Message(); m == "node(s) didn't satisfy plugin(s) [NodeAffinity]" || m == "pod affinity terms conflict" {
		affinity := func(f refusal) bool { return f.plugin == "NodeAffinity" && f.hopeless }
		if s.Code() != framework.Unresolvable || !slices.ContainsFunc(refusals, affinity) {
			return "the node affinity does not refuse it"
		}
		return ""
	}
	first, reasons := refusals[0], slices.Sorted(slices.Values(s.Reasons()))
	if s.Plugin() != first.plugin || !slices.Equal(reasons, first.reasons) ||
		(s.Code() == framework.Unresolvable) != first.hopeless {
		return "they refuse it differently"
	}
	return ""
}

// sameScores compares one plugin's scores of all nodes. When only one of the two has an opinion on the pod, the scores
// must not tell nodes apart.
func sameScores(plugin string, e framework.Explanation, want map[string]*verdict) *dispute {
	profile, naive := map[string]int64{}, map[string]int64{}
	for _, n := range e.Nodes {
		for _, s := range n.Scores {
			if s.Plugin == plugin {
				profile[n.Name] = s.Score
			}
		}
		if score, ok := want[n.Name].scores[plugin]; ok {
			naive[n.Name] = score
		}
	}
	if len(profile) == 0 || len(naive) == 0 {
		first, seen := int64(0), false
		for _, scores := range []map[string]int64{profile, naive} {
			for node, score := range scores {
				if seen && score != first {
					return &dispute{node, "only one of them has scores of " + plugin}
				}
				first, seen = score, true
			}
		}
		return nil
	}
	for _, n := range e.Nodes {
		if n.Refused == nil && profile[n.Name] != naive[n.Name] {
			return &dispute{n.Name, "the scores of " + plugin + " differ"}
		}
	}
	return nil
}

// sameTotals: weights are the naive scheduler's, and totals are the sums.
func sameTotals(e framework.Explanation) *dispute {
	for _, n := range e.Nodes {
		total := int64(0)
		for _, s := range n.Scores {
			if w, ok := allScores()[s.Plugin]; ok && w.weight != s.Weight {
				return &dispute{n.Name, "the weights of " + s.Plugin + " differ"}
			}
			total += s.Score * s.Weight
		}
		if total != n.Total {
			return &dispute{n.Name, "the total is not the weighted sum"}
		}
	}
	return nil
}
