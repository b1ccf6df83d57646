package framework

import (
	"fmt"
	"slices"
	"strings"
)

// Diagnosis says why no node fits.
type Diagnosis struct {
	// Nodes is how many nodes there were.
	Nodes int
	// PreFilter is the refusal of the pod for all nodes, if that is what happened.
	PreFilter *Status
	// PostFilter is what PostFilter plugins add.
	PostFilter string
	// Curable are the nodes that would fit, maybe, if pods were removed from them. The slice is valid during the
	// decision.
	Curable []*NodeInfo

	// byStatus counts nodes by the status that refused them. Plugins reuse statuses, so these are few. The last one,
	// which mostly is the next one too, is counted apart.
	byStatus map[*Status]int
	last     *Status
	lasts    int
}

// NewDiagnosis returns an empty one.
func NewDiagnosis(nodes int) *Diagnosis {
	return &Diagnosis{Nodes: nodes}
}

// Refused counts a node that a filter refused.
func (d *Diagnosis) Refused(s *Status) { d.refused(s, 1) }

func (d *Diagnosis) refused(s *Status, nodes int) {
	if s != d.last {
		d.count()
		d.last = s
	}
	d.lasts += nodes
}

// count adds what is counted apart, and returns all counts.
func (d *Diagnosis) count() map[*Status]int {
	if d.lasts > 0 {
		if d.byStatus == nil {
			d.byStatus = map[*Status]int{}
		}
		d.byStatus[d.last] += d.lasts
		d.lasts = 0
	}
	return d.byStatus
}

// Plugins returns the names of the plugins that refused, sorted.
func (d *Diagnosis) Plugins() []string {
	var names []string
	if d.PreFilter != nil {
		names = append(names, d.PreFilter.Plugin())
	}
	for s := range d.count() {
		names = append(names, s.Plugin())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Message says why, in the words of Kubernetes (spec: SCHED-6).
func (d *Diagnosis) Message() string {
	if d.Nodes == 0 {
		return "no nodes available to schedule pods"
	}
	msg := fmt.Sprintf("0/%d nodes are available:", d.Nodes)
	if d.PreFilter != nil {
		msg += " " + d.PreFilter.Message() + "."
	} else if r := d.reasons(); len(r) > 0 {
		msg += " " + strings.Join(r, ", ") + "."
	}
	if d.PostFilter != "" {
		msg += " " + d.PostFilter
	}
	return msg
}

// reasons returns "count reason" texts, sorted as strings. A node counts once for each of its reasons.
func (d *Diagnosis) reasons() []string {
	counts := map[string]int{}
	for s, n := range d.count() {
		for _, r := range s.Reasons() {
			counts[r] += n
		}
	}
	return CountedReasons(counts)
}

// CountedReasons words counts of reasons, sorted as strings.
func CountedReasons(counts map[string]int) []string {
	texts := make([]string, 0, len(counts))
	for r, n := range counts {
		if n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", n, r))
		}
	}
	slices.Sort(texts)
	return texts
}
