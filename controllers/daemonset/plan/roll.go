package plan

import (
	"cmp"
	"maps"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
)

// Roll takes a rolling update a step further. Manage has nothing to do on any node.
func (s *Seen) Roll() Step {
	if s.rolling() == nil {
		return Step{}
	}
	desired := s.desired()
	var step Step
	if surge := s.surge(desired); surge > 0 {
		step = s.rollBeside(surge, desired)
	} else {
		step = s.rollInPlace(s.missing(desired), desired)
	}
	step.limit()
	return step
}

// pair are the pods of a node, one of the newest template and one of another; nil for none. clear is false while there
// are more of either, which are Manage's affair.
func (s *Seen) pair(pods []*corev1.Pod) (fresh, old *corev1.Pod, clear bool) {
	for _, p := range pods {
		if deleting(p) {
			continue
		}
		slot := &old
		if s.updated(p) {
			slot = &fresh
		}
		if *slot != nil {
			return nil, nil, false
		}
		*slot = p
	}
	return fresh, old, true
}

// all returns the names of the nodes that are to have a pod, or have one, in their order.
func (s *Seen) all() []string {
	names := maps.Clone(s.pods)
	for _, n := range s.names {
		if s.nodes[n].run {
			names[n] = nil
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// rollInPlace deletes old pods, which Manage replaces: those that are not available, and of the others as many as may
// be missing besides what is missing already.
//
// Invariant: what is missing after it is at most what may be, but for what was not available anyway.
func (s *Seen) rollInPlace(may, desired int) Step {
	if may == 0 && desired > 0 { // the server refuses that there is no room at all; an update has to go on all the same
		may = 1
	}
	var useless, useful []*corev1.Pod
	missing := 0
	for _, node := range s.all() {
		fresh, old, clear := s.pair(s.pods[node])
		switch {
		case !clear, (fresh == nil) == (old == nil):
			missing++
		case fresh != nil:
			if !s.available(fresh) {
				missing++
			}
		case s.available(old):
			useful = append(useful, old)
		default:
			useless = append(useless, old)
			missing++
		}
	}
	return Step{Remove: append(useless, useful[:min(len(useful), max(0, may-missing))]...)}
}

// rollBeside makes new pods beside old ones: wherever the old one is not available, and on as many of the other nodes
// as may have two. An old pod goes when the new one is available. Of a node that is to have none any more it goes when
// the others are enough without it.
//
// Invariant: an available pod is deleted only if its node has another one, or if as many as are desired are left.
func (s *Seen) rollBeside(may, desired int) Step {
	var step Step
	var beside []string
	var stray []*corev1.Pod
	two, available := 0, 0
	for _, node := range s.all() {
		fresh, old, clear := s.pair(s.pods[node])
		if !clear {
			two++
			continue
		}
		if first := cmp.Or(old, fresh); first != nil && s.available(first) {
			available++
		}
		run := s.nodes[node].run
		switch {
		case old == nil: // Manage's affair
		case fresh != nil && s.available(fresh):
			step.Remove = append(step.Remove, old)
		case fresh != nil:
			two++
		case !run && s.available(old):
			stray = append(stray, old)
		case !run:
			step.Remove = append(step.Remove, old)
		case s.available(old):
			beside = append(beside, node)
		default:
			step.Create = append(step.Create, node)
		}
	}
	step.Remove = append(step.Remove, stray[:min(len(stray), max(0, available-desired))]...)
	step.Create = append(step.Create, beside[:min(len(beside), max(0, may-two))]...)
	return step
}
