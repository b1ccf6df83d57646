package plan

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// Record notes the pods that have ended. It returns the status that is to be written now, nil when there is nothing
// new in it, and the pods whose finalizers are to go once it is written.
func (s *Sync) Record() (*batchv1.JobStatus, []*corev1.Pod) {
	s.status.Active, s.status.Ready, s.status.Terminating = s.active, &s.ready, &s.terminating
	left := make(map[string]bool, len(s.facts))
	for i := range s.facts {
		if s.facts[i].tracked {
			left[s.facts[i].uid] = true
		}
	}
	s.count(left)
	release := s.note()
	if jobs.IsIndexed(s.spec) {
		s.status.Succeeded, s.status.CompletedIndexes = s.done.Len(), s.done.String()
		s.status.FailedIndexes = nil
		if s.perIndex() {
			s.status.FailedIndexes = proto.String(s.lost.String())
		}
	}
	s.announce()
	if !s.differs() {
		return nil, release
	}
	return object.Clone(s.status), release
}

// note puts pods that have ended into the status, and returns those whose finalizers are to go.
func (s *Sync) note() (release []*corev1.Pod) {
	if jobs.IsIndexed(s.spec) {
		// So that the indexes of a status that is written in between are in order, with few gaps.
		slices.SortStableFunc(s.facts, func(a, b fact) int { return cmp.Compare(a.index, b.index) })
	}
	noted := s.status.UncountedTerminatedPods
	for i := range s.facts {
		f := &s.facts[i]
		if !f.tracked || !s.mayGo(f) {
			continue
		}
		release = append(release, f.Pod)
		indexed := jobs.IsIndexed(s.spec)
		failing := s.end != nil && s.end.GetType() != jobs.SuccessCriteriaMet
		switch {
		case s.notedSuccess[f.uid] || s.notedFailure[f.uid]:
		case f.success && indexed:
			// Its index is in the status, and cannot be counted twice.
		case f.success:
			noted.Succeeded = append(noted.Succeeded, f.uid)
		case (f.fails || failing) && (!indexed || f.index != none):
			v := Judge(s.spec.GetPodFailurePolicy(), f.Pod)
			if v.Action != "" {
				s.actions[v.Action]++
			}
			if v.Counts {
				noted.Failed = append(noted.Failed, f.uid)
			}
		}
		if len(release) >= MaxUncounted {
			s.full = true
			break
		}
	}
	return release
}

// mayGo says whether a pod need not be kept any more once it is counted.
func (s *Sync) mayGo(f *fact) bool {
	if s.deleting || s.end != nil || f.success {
		return true
	}
	return f.fails && (f.index == none || s.delayed[f.index] == nil || s.delayed[f.index].GetMetadata().GetUid() != f.uid)
}

// announce writes how the Job will end.
func (s *Sync) announce() {
	switch s.end.GetType() {
	case jobs.FailureTarget:
		s.status.Conditions = append(s.status.Conditions, s.end)
		s.end = s.condition(jobs.FailedCondition, s.end.GetReason(), s.end.GetMessage())
	case jobs.SuccessCriteriaMet:
		if !jobs.Has(s.status, jobs.SuccessCriteriaMet) {
			s.status.Conditions = append(s.status.Conditions, s.end)
		}
		s.end = s.condition(jobs.Complete, s.end.GetReason(), s.end.GetMessage())
	}
}

// count counts the pods that are noted and have no finalizer any more, which left does not have.
func (s *Sync) count(left map[string]bool) {
	kept := func(list []string) []string {
		return slices.DeleteFunc(list, func(uid string) bool { return !left[uid] })
	}
	noted := s.status.UncountedTerminatedPods
	n := len(noted.Succeeded)
	noted.Succeeded = kept(noted.Succeeded)
	s.status.Succeeded += int32(n - len(noted.Succeeded)) //nolint:gosec // at most MaxUncounted
	n = len(noted.Failed)
	noted.Failed = kept(noted.Failed)
	s.status.Failed += int32(n - len(noted.Failed)) //nolint:gosec // at most MaxUncounted
}

// Count counts the pods that are noted and have lost their finalizer; all says that none of those that Record returned
// has kept it. It returns the status that is to be written, nil when there is nothing new in it, and how the Job
// ended; nil when it has not.
func (s *Sync) Count(
	wrote *batchv1.JobStatus, released map[string]bool, all bool,
) (next *batchv1.JobStatus, end *batchv1.JobCondition) {
	if wrote != nil {
		s.written = wrote
	}
	left := make(map[string]bool, len(s.facts))
	for i := range s.facts {
		if f := &s.facts[i]; f.tracked && !released[f.uid] {
			left[f.uid] = true
		}
	}
	s.count(left)
	noted := s.status.UncountedTerminatedPods
	if s.end != nil && all && !s.full && s.terminating == 0 && len(noted.Succeeded)+len(noted.Failed) == 0 {
		end = s.end
		s.finish()
	}
	if !s.differs() {
		return nil, end
	}
	return s.status, end
}

// finish writes that the Job has ended.
func (s *Sync) finish() {
	s.set(s.end.GetType(), "True", s.end.GetReason(), s.end.GetMessage())
	nothing := s.spec.GetSuspend() && s.spec.Completions != nil && *s.spec.Completions == 0
	if s.status.StartTime == nil && !nothing {
		s.status.StartTime = s.stamp() // a Job that ends while it is suspended: it has to have begun
	}
	if s.end.GetType() != jobs.Complete {
		return
	}
	s.status.CompletionTime = s.stamp()
	if start := s.status.GetStartTime(); start != nil && goTime(start).After(s.now) {
		s.status.CompletionTime = start // the clock was set back: nothing ends before it begins
	}
}

// Actions returns how many of the pods that Record noted a pod failure policy did what with.
func (s *Sync) Actions() map[string]int { return s.actions }

// End returns how the Job is going to end, nil while it goes on.
func (s *Sync) End() *batchv1.JobCondition { return s.end }
