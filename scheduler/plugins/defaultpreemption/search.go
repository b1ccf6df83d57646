package defaultpreemption

import (
	"cmp"
	"slices"
	"time"

	"monoplane.dev/scheduler/framework"
)

// search looks for the best candidate.
type search struct {
	pod     *framework.PodInfo
	budgets []*framework.Budget
	// limit is how many candidates are enough.
	limit int

	best *candidate
	// found is how many candidates there were, tried how many nodes were tried, harmless on how many there was no victim.
	found, tried, harmless int
	// reasons count the nodes that are no candidates.
	reasons map[string]int

	// Scratch space.
	order  []*framework.PodInfo
	broken []bool
}

// run tries nodes, in the order in which the decision went round them, so that not always the same ones are tried. It
// does not end before there is a candidate that breaks no budget, if there is any (spec: PREEMPT-3).
func (s *search) run(t *framework.Trial, nodes []*framework.NodeInfo) {
	for _, n := range nodes {
		if s.found > 0 && s.found >= s.limit && s.best.broken == 0 {
			return
		}
		s.tried++
		if !n.HasBelow(s.pod.Priority) {
			s.harmless++
			continue
		}
		s.take(s.about(t, n))
	}
}

// take counts what was found out about a node.
func (s *search) take(about any) {
	switch v := about.(type) {
	case *candidate:
		s.found++
		if s.best == nil || v.better(s.best) {
			s.best = v
		}
	case *framework.Status:
		s.refused(v.Reasons()...)
	default: // what refused the node is not on the node
		s.harmless++
	}
}

// about returns the candidate that a node is, or the status that refuses it also without all pods of lower priority.
// What was found out for a pod of the same template holds as long as there are no budgets, which are not the node's.
func (s *search) about(t *framework.Trial, n *framework.NodeInfo) any {
	if len(s.budgets) > 0 {
		return s.judge(t, n, nil)
	}
	about := t.Recall(n)
	if about == nil {
		about = s.judge(t, n, nil)
		if failed, ok := about.(*framework.Status); !ok || failed.IsRejected() {
			t.Note(n, about)
		}
	}
	return about
}

func (s *search) refused(reasons ...string) {
	for _, r := range reasons {
		s.reasons[r]++
	}
}

// victims returns those of the best candidate, the most important first.
func (s *search) victims(t *framework.Trial) []*framework.PodInfo {
	list := make([]*framework.PodInfo, 0, s.best.victims)
	s.judge(t, s.best.node, &list)
	slices.SortFunc(list, byImportance)
	return list
}

// none stands for a node that fits without any victim.
type none struct{}

// judge finds the victims on a node, which it adds to the list if there is one.
func (s *search) judge(t *framework.Trial, n *framework.NodeInfo, list *[]*framework.PodInfo) any {
	t.Begin(n, func(p *framework.PodInfo) bool { return p.Priority < s.pod.Priority })
	if refused := t.Fits(); refused != nil {
		return refused
	}
	s.order = append(s.order[:0], t.Gone()...)
	slices.SortFunc(s.order, byImportance)
	s.breaks()
	c := &candidate{node: n}
	for _, breaking := range [...]bool{true, false} {
		for i, p := range s.order {
			if s.broken[i] != breaking || t.Return(p) {
				continue
			}
			c.add(p, breaking)
			if list != nil {
				*list = append(*list, p)
			}
		}
	}
	if c.victims == 0 {
		return none{}
	}
	return c
}

// breaks notes which of the pods cannot go without breaking a budget, if they went in this order.
func (s *search) breaks() {
	s.broken = append(s.broken[:0], make([]bool, len(s.order))...)
	if len(s.budgets) == 0 {
		return
	}
	left := make([]int32, len(s.budgets))
	for i, b := range s.budgets {
		left[i] = b.Allowed
	}
	for i, p := range s.order {
		for j, b := range s.budgets {
			if b.About(p.Pod) {
				left[j]--
				s.broken[i] = s.broken[i] || left[j] < 0
			}
		}
	}
}

// byImportance puts pods of higher priority first, then those that have run for longer.
func byImportance(a, b *framework.PodInfo) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	return started(a).Compare(started(b))
}

// started returns when a pod started; one that has not, is later than all others.
func started(p *framework.PodInfo) time.Time {
	if t := p.Pod.GetStatus().GetStartTime(); t != nil {
		return time.Unix(t.GetSeconds(), int64(t.GetNanos()))
	}
	return time.Unix(1<<40, 0)
}
