package plan

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/podrank"

	corev1 "monoplane.dev/api/core/v1"
)

// Work is what is to be done with pods.
type Work struct {
	// Delete are pods that are to go. Uncounted says that they are not to count as failures: their finalizers go first.
	Delete    []*corev1.Pod
	Uncounted bool
	// Create are pods that are to be made.
	Create []New
	// Again is after which time pods can be made that cannot be made yet; 0 for none.
	Again time.Duration
}

// New is a pod that is to be made.
type New struct {
	// Index is its index; negative for none.
	Index int32
	// Annotations are what it takes over from the pod that failed before it.
	Annotations map[string]string
}

// Work returns what is to be done with pods: either some are made, or some are deleted.
func (s *Sync) Work() Work {
	switch {
	case s.end != nil:
		return Work{Delete: s.pods(func(f *fact) bool { return f.active })}
	case s.deleting:
		return Work{}
	case s.spec.GetSuspend():
		return Work{Delete: s.pods(func(f *fact) bool { return f.active }), Uncounted: true}
	}
	wanted := s.wanted()
	if rest := s.surplus(int(max(0, s.active-wanted))); len(rest) > 0 {
		return Work{Delete: rest[:min(len(rest), MaxPods)], Uncounted: true}
	}
	missing := wanted - s.active
	if onlyEnded(s.spec) {
		missing -= s.terminating
	}
	if missing <= 0 {
		return Work{}
	}
	if !s.perIndex() {
		if left := s.backoff.Left(s.now); left > 0 {
			return Work{Again: left}
		}
	}
	return s.create(min(missing, MaxPods))
}

// wanted returns how many pods are to be active.
func (s *Sync) wanted() int32 {
	if s.spec.Completions != nil {
		return max(0, min(s.spec.GetParallelism(), *s.spec.Completions-s.succeeded))
	}
	if s.succeeded > 0 {
		return s.active // the others end by themselves
	}
	return s.spec.GetParallelism()
}

// surplus returns the pods that are to go: at least some, and all that have no index, a wrong one or another's.
func (s *Sync) surplus(least int) []*corev1.Pod {
	var remove, rest []*corev1.Pod
	if jobs.IsIndexed(s.spec) {
		byIndex := map[int32][]*corev1.Pod{}
		var order []int32
		for i := range s.facts {
			switch f := &s.facts[i]; {
			case !f.active:
			case f.index == none:
				remove = append(remove, f.Pod)
			default:
				if byIndex[f.index] == nil {
					order = append(order, f.index)
				}
				byIndex[f.index] = append(byIndex[f.index], f.Pod)
			}
		}
		for _, i := range order {
			same := byIndex[i]
			slices.SortStableFunc(same, podrank.CompareWork)
			remove, rest = append(remove, same[:len(same)-1]...), append(rest, same[len(same)-1])
		}
	} else {
		if least == 0 {
			return nil
		}
		rest = s.pods(func(f *fact) bool { return f.active })
	}
	if n := least - len(remove); n > 0 {
		slices.SortStableFunc(rest, podrank.CompareWork)
		remove = append(remove, rest[:n]...)
	}
	return remove
}

// create returns up to n pods that are to be made.
func (s *Sync) create(n int32) Work {
	var w Work
	if !jobs.IsIndexed(s.spec) {
		for range n {
			w.Create = append(w.Create, New{Index: none})
		}
		return w
	}
	taken := s.done.Union(s.lost).Union(indexesOf(s.facts, func(f *fact) bool {
		return f.active || f.terminating && onlyEnded(s.spec)
	}))
	for i := range taken.Missing(s.spec.GetCompletions()) {
		if n--; n < 0 {
			break
		}
		p := New{Index: i}
		if s.perIndex() {
			last := s.delayed[i]
			if left := leftFor(last, s.now); left > 0 {
				w.Again = min(cmp.Or(w.Again, left), left)
				continue
			}
			p.Annotations = s.inherit(last)
		}
		w.Create = append(w.Create, p)
	}
	return w
}

// leftFor returns how long an index has to wait whose last pod failed; nil for none.
func leftFor(last *corev1.Pod, now time.Time) time.Duration {
	if last == nil {
		return 0
	}
	//nolint:gosec // beyond the longest pause it does not matter
	return Backoff{Failures: int32(min(failures(last), 100)) + 1, Last: Ended(last)}.Left(now)
}

// inherit returns how often an index has failed, whose last pod is given; nil for none.
func (s *Sync) inherit(last *corev1.Pod) map[string]string {
	var counted, ignored int32
	if last != nil {
		counted, ignored = number(last, jobs.Failures), number(last, jobs.Ignored)
		if Judge(s.spec.GetPodFailurePolicy(), last).Counts {
			counted++
		} else {
			ignored++
		}
	}
	set := map[string]string{jobs.Failures: strconv.Itoa(int(counted))}
	if ignored > 0 {
		set[jobs.Ignored] = strconv.Itoa(int(ignored))
	}
	return set
}

func (s *Sync) pods(which func(*fact) bool) []*corev1.Pod {
	var list []*corev1.Pod
	for i := range s.facts {
		if which(&s.facts[i]) {
			list = append(list, s.facts[i].Pod)
		}
	}
	return list
}

// Did takes what came of the work: how many pods were made, and which of those to be deleted are being deleted now. It
// then decides whether enough pods have succeeded.
func (s *Sync) Did(made int, deleted []*corev1.Pod) {
	gone := make(map[string]bool, len(deleted))
	for _, p := range deleted {
		gone[p.GetMetadata().GetUid()] = true
	}
	for i := range s.facts {
		if f := &s.facts[i]; gone[f.uid] && f.active {
			s.active--
			s.terminating++
			if f.ready {
				s.ready--
			}
		}
	}
	s.active += int32(made) //nolint:gosec // at most MaxPods
	switch {
	case s.end != nil:
		if s.active > 0 {
			s.end = nil // not yet: some pods still run
		}
		return
	case s.complete():
		s.end = s.condition(jobs.SuccessCriteriaMet, ReasonCompletionsReached, "Reached expected number of succeeded pods")
	case s.deleting:
	case s.spec.GetSuspend():
		if s.set(jobs.Suspended, "True", "JobSuspended", "Job suspended") {
			s.Suspension = "Suspended"
			s.status.StartTime = nil
		}
	default:
		if s.set(jobs.Suspended, "False", "JobResumed", "Job resumed") {
			s.Suspension = "Resumed"
			s.status.StartTime = s.stamp()
		}
	}
}

// complete says whether enough pods have succeeded, and none is left that still runs.
func (s *Sync) complete() bool {
	if s.active > 0 {
		return false
	}
	if s.spec.Completions == nil {
		return s.succeeded > 0
	}
	return s.succeeded >= *s.spec.Completions
}
