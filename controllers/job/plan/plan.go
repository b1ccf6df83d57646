// Package plan decides what becomes of a Job: which pods are made and deleted, which ended pods are counted, and how
// the Job ends. It has no clock and asks nobody; what it decided is carried out between its steps:
//
//	Begin ──► Work ──► Did ──► Record ──► Count
//	           │                  │          └─ the counts go up, the Job may be finished: write the status
//	           │                  └─ ended pods are noted by their uids: write the status, then take their finalizers
//	           └─ make and delete pods
//
// What it guarantees: a pod that has ended is counted once, wherever the steps are broken off and begun again on what
// the server has. Its uid is in the written status before its finalizer goes, and leaves the status in the write that
// counts it. An index of an Indexed Job counts by being in the status. A Job is finished only when none of its pods is
// left to be counted, or still to end.
//
// The decisions are those of Kubernetes' controller, which test/oracle compares over random histories.
package plan

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Bounds of one step, so that the status stays small and other Jobs have their turn.
const (
	// MaxUncounted is how many pods are counted in one step.
	MaxUncounted = 500
	// MaxPods is how many pods are made or deleted in one step, but for those of a Job that has ended.
	MaxPods = 500
)

// Reasons of the end of a Job.
const (
	ReasonPodFailurePolicy   = "PodFailurePolicy"
	ReasonBackoffLimit       = "BackoffLimitExceeded"
	ReasonDeadline           = "DeadlineExceeded"
	ReasonMaxFailedIndexes   = "MaxFailedIndexesExceeded"
	ReasonFailedIndexes      = "FailedIndexes"
	ReasonSuccessPolicy      = "SuccessPolicy"
	ReasonCompletionsReached = "CompletionsReached"
)

// Sync is one look at a Job. Call its methods in the order that is drawn above, each once.
type Sync struct {
	spec   *batchv1.JobSpec
	status *batchv1.JobStatus
	// written is the status as the server has it.
	written *batchv1.JobStatus
	name    string
	// deleting says that the Job itself is being deleted.
	deleting bool
	now      time.Time
	facts    []fact

	active, ready, terminating int32
	succeeded, failed          int32
	// done and lost are the indexes that have succeeded, and those that have failed if they can.
	done, lost indexes.Set
	// delayed are failed pods that stay until their successors are made, which take over how often their index failed.
	delayed map[int32]*corev1.Pod
	// notedSuccess and notedFailure are the pods that the status already notes.
	notedSuccess, notedFailure map[string]bool
	backoff                    Backoff
	// end is how the Job ends: of type SuccessCriteriaMet, FailureTarget or Failed; nil while it goes on.
	end *batchv1.JobCondition
	// full says that more pods have ended than are counted in one step.
	full bool
	// actions counts what a pod failure policy did with pods that are counted.
	actions map[string]int
	// Suspension is "Suspended" or "Resumed" when the Job has just become so.
	Suspension string
}

// Begin looks at a Job, which it does not change, and its pods as they are now. Those in released have lost their
// finalizer.
func Begin(job *batchv1.Job, pods []*corev1.Pod, released map[string]bool, b Backoff, now time.Time) *Sync {
	s := &Sync{
		spec: job.GetSpec(), status: object.Clone(job.GetStatus()), written: job.GetStatus(),
		name: job.GetMetadata().GetName(), deleting: job.GetMetadata().GetDeletionTimestamp() != nil, now: now,
		facts: factsOf(job, pods, released), actions: map[string]int{},
	}
	if s.status == nil {
		s.status = &batchv1.JobStatus{}
	}
	if s.status.UncountedTerminatedPods == nil {
		s.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	noted := s.status.UncountedTerminatedPods
	s.notedSuccess, s.notedFailure = setOf(noted.GetSucceeded()), setOf(noted.GetFailed())
	s.look(b)
	if s.status.StartTime == nil && !s.spec.GetSuspend() {
		s.status.StartTime = s.stamp()
	}
	s.decide()
	return s
}

// look counts.
func (s *Sync) look(b Backoff) {
	noted := s.status.GetUncountedTerminatedPods()
	s.succeeded = s.status.GetSucceeded() + int32(len(noted.GetSucceeded())) //nolint:gosec // no more than pods
	s.failed = s.status.GetFailed() + int32(len(noted.GetFailed()))          //nolint:gosec // no more than pods
	var successes, losses []time.Time
	for i := range s.facts {
		f := &s.facts[i]
		if f.active {
			s.active++
		}
		if f.ready {
			s.ready++
		}
		if f.terminating {
			s.terminating++
		}
		if !f.tracked || jobs.IsIndexed(s.spec) && f.index == none {
			continue
		}
		if f.success && !s.notedSuccess[f.uid] && !s.notedFailure[f.uid] {
			s.succeeded++
			successes = append(successes, Ended(f.Pod))
		}
		if f.fails && !s.notedFailure[f.uid] {
			losses = append(losses, Ended(f.Pod))
			if Judge(s.spec.GetPodFailurePolicy(), f.Pod).Counts {
				s.failed++
			}
		}
	}
	s.backoff = b.After(successes, losses)
}

// decide decides whether the Job ends. What was decided before stands; a failure counts before a success.
func (s *Sync) decide() {
	if met := jobs.Condition(s.status, jobs.SuccessCriteriaMet); met.GetStatus() == "True" {
		s.end = met
	} else if target := jobs.Condition(s.status, jobs.FailureTarget); target.GetStatus() == "True" {
		s.end = s.condition(jobs.FailedCondition, target.GetReason(), target.GetMessage())
	} else if message := s.failJob(); message != "" {
		s.end = s.condition(jobs.FailureTarget, ReasonPodFailurePolicy, message)
	}
	switch {
	case s.end != nil:
	case s.failed > s.spec.GetBackoffLimit() || s.restartedTooOften():
		s.fail(ReasonBackoffLimit, "Job has reached the specified backoff limit")
	case s.Deadline() < 0:
		s.fail(ReasonDeadline, "Job was active longer than specified deadline")
	}
	if jobs.IsIndexed(s.spec) {
		s.decideIndexes()
	}
}

// decideIndexes looks at the indexes that have ended.
func (s *Sync) decideIndexes() {
	n := s.spec.GetCompletions()
	s.done = indexes.Read(s.status.GetCompletedIndexes(), n)
	done := indexesOf(s.facts, s.completes)
	if s.perIndex() {
		// Of an index that has two pods one may succeed and the other fail. What was written first stands, and the server
		// takes no index that has done both.
		s.lost = indexes.Read(s.status.GetFailedIndexes(), n)
		done = done.Without(s.lost)
	}
	s.done = s.done.Union(done)
	s.succeeded = s.done.Len()
	if s.perIndex() {
		s.lost = s.lost.Union(indexesOf(s.facts, func(f *fact) bool { return f.tracked && s.losesIndex(f) })).Without(s.done)
		switch lost := s.lost.Len(); {
		case s.end != nil:
		case s.spec.MaxFailedIndexes != nil && lost > *s.spec.MaxFailedIndexes:
			s.fail(ReasonMaxFailedIndexes, "Job has exceeded the specified maximal number of failed indexes")
		case lost > 0 && lost+s.succeeded >= n:
			s.fail(ReasonFailedIndexes, "Job has failed indexes")
		}
		s.delay()
	}
	if s.end == nil {
		if rule, ok := Met(s.spec.GetSuccessPolicy(), n, s.done); ok {
			s.end = s.condition(jobs.SuccessCriteriaMet, ReasonSuccessPolicy,
				fmt.Sprintf("Matched rules at index %d", rule))
		}
	}
}

// completes says whether a pod completes its index. One that counts as failed already, since its deletion began, does
// not, however it ends.
func (s *Sync) completes(f *fact) bool { return f.tracked && f.success && !s.notedFailure[f.uid] }

// perIndex says whether indexes fail one by one.
func (s *Sync) perIndex() bool { return s.spec.BackoffLimitPerIndex != nil }

// losesIndex says whether the failure of a pod is the last one that its index may have.
func (s *Sync) losesIndex(f *fact) bool {
	if !f.fails {
		return false
	}
	v := Judge(s.spec.GetPodFailurePolicy(), f.Pod)
	return v.Action == jobs.FailIndex || v.Counts && number(f.Pod, jobs.Failures) >= s.spec.GetBackoffLimitPerIndex()
}

// delay finds the failed pods whose indexes have no other pod yet: of each index the one that knows of most failures.
func (s *Sync) delay() {
	active := indexesOf(s.facts, func(f *fact) bool { return f.active })
	s.delayed = map[int32]*corev1.Pod{}
	for i := range s.facts {
		f := &s.facts[i]
		if !f.tracked || !f.fails || f.index == none ||
			s.done.Has(f.index) || s.lost.Has(f.index) || active.Has(f.index) {
			continue
		}
		last := s.delayed[f.index]
		if last == nil || failures(last) <= failures(f.Pod) && !Ended(f.Pod).Before(Ended(last)) {
			s.delayed[f.index] = f.Pod
		}
	}
}

// failJob returns why a pod failure policy fails the Job; empty when it does not.
func (s *Sync) failJob() string {
	if s.spec.GetPodFailurePolicy() == nil {
		return ""
	}
	for i := range s.facts {
		if f := &s.facts[i]; f.fails {
			if v := Judge(s.spec.GetPodFailurePolicy(), f.Pod); v.Message != "" {
				return v.Message
			}
		}
	}
	return ""
}

// restartedTooOften says whether the containers of pods that restart by themselves have failed as often as pods may.
func (s *Sync) restartedTooOften() bool {
	if s.spec.GetTemplate().GetSpec().GetRestartPolicy() != "OnFailure" {
		return false
	}
	var n int64
	for i := range s.facts {
		f := &s.facts[i]
		if !f.active && !f.terminating {
			continue
		}
		for _, list := range [][]*corev1.ContainerStatus{
			f.GetStatus().GetInitContainerStatuses(), f.GetStatus().GetContainerStatuses(),
		} {
			for _, c := range list {
				n += int64(c.GetRestartCount())
			}
		}
	}
	return n > 0 && n >= int64(s.spec.GetBackoffLimit())
}

// Deadline returns how long the Job may still run; negative when it is over, 0 when there is no deadline.
func (s *Sync) Deadline() time.Duration {
	if s.spec.ActiveDeadlineSeconds == nil || s.status.StartTime == nil || s.spec.GetSuspend() {
		return 0
	}
	left := time.Duration(*s.spec.ActiveDeadlineSeconds)*time.Second - s.now.Sub(goTime(s.status.StartTime))
	if left <= 0 {
		return -1
	}
	return left
}

// Backoff returns how often pods have failed, those that Record notes included.
func (s *Sync) Backoff() Backoff { return s.backoff }

// Lost returns how many pods have failed, those included that the status does not count yet, and how many are being
// deleted.
func (s *Sync) Lost() (failed, terminating int32) { return s.failed, s.terminating }

// fail has the Job end without success.
func (s *Sync) fail(reason, message string) { s.end = s.condition(jobs.FailureTarget, reason, message) }

// stamp returns the time as it is written.
func (s *Sync) stamp() *metav1.Time { return value.Time(s.now.Truncate(time.Second)) }

func (s *Sync) condition(kind, reason, message string) *batchv1.JobCondition {
	at := s.stamp()
	return &batchv1.JobCondition{
		Type: kind, Status: "True", Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at,
	}
}

// set writes a condition, and says whether it is another one now. What was never true is not said to be false.
func (s *Sync) set(kind, status, reason, message string) bool {
	next := s.condition(kind, reason, message)
	next.Status = status
	for i, c := range s.status.Conditions {
		if c.GetType() != kind {
			continue
		}
		if c.GetStatus() == status && c.GetReason() == reason && c.GetMessage() == message {
			return false
		}
		s.status.Conditions[i] = next
		return true
	}
	if status == "False" {
		return false
	}
	s.status.Conditions = append(s.status.Conditions, next)
	return true
}

// differs says whether the status is to be written.
func (s *Sync) differs() bool { return !proto.Equal(s.status, s.written) }

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, x := range list {
		set[x] = true
	}
	return set
}
