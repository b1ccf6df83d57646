// Package jobs has the words of Jobs that several components use: labels, annotations and the finalizer of their pods,
// conditions and reasons of their status, and what can be read off them. They are those of Kubernetes.
//
// The conditions of a Job follow one another like this. The end is decided in one step, with SuccessCriteriaMet or
// FailureTarget; the remaining pods are then deleted, and when the last one has ended the Job is finished.
//
//	            +---- Suspended=True <----> Suspended=False
//	            |
//	(running) --+--> SuccessCriteriaMet ---> Complete
//	            |
//	            +--> FailureTarget --------> Failed
package jobs

import (
	batchv1 "monoplane.dev/api/batch/v1"
)

// Labels and annotations of a Job's pods.
const (
	// NameLabel has the name of the Job, UIDLabel its uid; the old ones are without the prefix.
	NameLabel    = "batch.kubernetes.io/job-name"
	UIDLabel     = "batch.kubernetes.io/controller-uid"
	OldNameLabel = "job-name"
	OldUIDLabel  = "controller-uid"
	// Index is a label and an annotation, with the index of a pod.
	Index = "batch.kubernetes.io/job-completion-index"
	// Failures is an annotation: how many pods of the index failed before this one, and counted. Ignored is how many
	// did not count.
	Failures = "batch.kubernetes.io/job-index-failure-count"
	Ignored  = "batch.kubernetes.io/job-index-ignored-failure-count"
	// Tracking is the finalizer that keeps a pod until its end is counted.
	Tracking = "batch.kubernetes.io/job-tracking"
)

// ControllerName stands in managedBy for the controller of Jobs itself.
const ControllerName = "kubernetes.io/job-controller"

// Modes of completion.
const (
	NonIndexed = "NonIndexed"
	Indexed    = "Indexed"
)

// When a pod is replaced.
const (
	TerminatingOrFailed = "TerminatingOrFailed"
	Failed              = "Failed"
)

// What a rule of a pod failure policy does.
const (
	FailJob   = "FailJob"
	FailIndex = "FailIndex"
	Ignore    = "Ignore"
	Count     = "Count"
)

// How a rule of a pod failure policy compares exit codes.
const (
	In    = "In"
	NotIn = "NotIn"
)

// Types of conditions.
const (
	Suspended          = "Suspended"
	SuccessCriteriaMet = "SuccessCriteriaMet"
	FailureTarget      = "FailureTarget"
	Complete           = "Complete"
	FailedCondition    = "Failed"
)

// Has says whether a condition is true.
func Has(s *batchv1.JobStatus, condition string) bool { return is(s, condition, "True") }

// HasNot says whether a condition is there and false.
func HasNot(s *batchv1.JobStatus, condition string) bool { return is(s, condition, "False") }

func is(s *batchv1.JobStatus, condition, status string) bool {
	c := Condition(s, condition)
	return c != nil && c.GetStatus() == status
}

// Condition returns the condition of a type, nil for none.
func Condition(s *batchv1.JobStatus, kind string) *batchv1.JobCondition {
	for _, c := range s.GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

// Finished says whether nothing happens to a Job any more.
func Finished(s *batchv1.JobStatus) bool { return Has(s, Complete) || Has(s, FailedCondition) }

// IsIndexed says whether the pods of a Job have indexes.
func IsIndexed(s *batchv1.JobSpec) bool { return s.GetCompletionMode() == Indexed }
