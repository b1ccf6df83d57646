// Package batch describes the kinds of group batch.
package batch

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/propagation"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Job describes the kind.
func Job(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*batchv1.Job]{
		Kind:       batchv1.JobKind,
		Dependents: propagation.Orphans, // as before there was a choice
		Spec:       func(o *batchv1.Job) proto.Message { return o.GetSpec() },
		Default:    DefaultJob,
		DefaultNew: DefaultNewJob,
		Validate:   ValidateJob,
		Warn: func(next, live *batchv1.Job) validation.Warnings {
			return warningsOfJobs(next, validation.NewPath("spec"), live == nil, next.GetSpec(), live.GetSpec())
		},
		Main:         registry.TypedUpdateRules[*batchv1.Job]{Validate: ValidateJobUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*batchv1.Job]{"status": {Validate: ValidateJobStatus}},
		Fields: map[string]func(*batchv1.Job) string{
			"status.successful": func(o *batchv1.Job) string { return strconv.Itoa(int(o.GetStatus().GetSucceeded())) },
		},
		Table: append(define.Columns[*batchv1.Job]{
			define.Text("Status", "Whether it runs, waits or has ended.", shownStatus),
			define.Text("Completions", "How many pods have succeeded, of those that have to.", completions),
			define.Elapsed("Duration", "Time from the start to the end, or until now.",
				func(o *batchv1.Job) (from, to *metav1.Time) {
					return o.GetStatus().GetStartTime(), o.GetStatus().GetCompletionTime()
				}),
			define.Age[*batchv1.Job](),
		}, workload.Wide(func(o *batchv1.Job) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
			func(o *batchv1.Job) string { return workload.Selector(o.GetSpec().GetSelector()) })...),
	}.Strategy()}
}

// DefaultJob fills in a Job. It has the labels of its template when it has none of its own.
func DefaultJob(o *batchv1.Job) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	s := o.Spec
	defaultPods(s)
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = proto.Int32(1)
	}
	defaults.SetPtr(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		defaults.SetPtr(&s.BackoffLimit, math.MaxInt32)
	}
	defaults.SetPtr(&s.BackoffLimit, 6)
	defaults.SetPtr(&s.CompletionMode, jobs.NonIndexed)
	defaults.SetPtr(&s.Suspend, false)
	if s.PodFailurePolicy != nil {
		defaults.SetPtr(&s.PodReplacementPolicy, jobs.Failed)
	}
	defaults.SetPtr(&s.PodReplacementPolicy, jobs.TerminatingOrFailed)
	defaults.SetPtr(&s.ManualSelector, false)
	if len(o.Metadata.Labels) == 0 {
		o.Metadata.Labels = maps.Clone(s.Template.Metadata.Labels)
	}
}

// defaultPods fills in what is said about pods, in a Job and in a template of Jobs alike.
func defaultPods(s *batchv1.JobSpec) {
	defaults.Message(&s.Template)
	podspec.DefaultTemplate(s.Template)
	for _, r := range s.GetPodFailurePolicy().GetRules() {
		for _, p := range r.GetOnPodConditions() {
			if p != nil {
				defaults.Set(&p.Status, "True")
			}
		}
	}
}

// DefaultNewJob fills in a Job that is to be created, which has its name and uid. Unless manualSelector is true, its
// pods get labels with both, and its selector selects those of this uid. Labels that are there already stay, and
// validation refuses them if they are others.
func DefaultNewJob(o *batchv1.Job) {
	o.Status = nil
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	s, m := o.Spec, o.Metadata
	if !s.GetManualSelector() {
		defaults.Message(&s.Template)
		defaults.Message(&s.Template.Metadata)
		defaults.Message(&s.Selector)
		label(&s.Template.Metadata.Labels, m.Name, jobs.NameLabel, jobs.OldNameLabel)
		label(&s.Template.Metadata.Labels, m.Uid, jobs.UIDLabel, jobs.OldUIDLabel)
		label(&s.Selector.MatchLabels, m.Uid, jobs.UIDLabel)
	}
	DefaultJob(o)
}

// label sets those of the labels to value that are not there.
func label(set *map[string]string, value string, names ...string) {
	if *set == nil {
		*set = make(map[string]string)
	}
	for _, name := range names {
		if _, found := (*set)[name]; !found {
			(*set)[name] = value
		}
	}
}

// warningsOfJobs returns what whoever makes an object with the spec of a Job at a path, or changes that, is told.
func warningsOfJobs(o object.Object, at *validation.Path, made bool, s, live *batchv1.JobSpec) validation.Warnings {
	var w validation.Warnings
	if made {
		w.NamesPods(o.GetMetadata().GetName())
	} else if validation.Equal(s, live) {
		return nil
	}
	if jobs.IsIndexed(s) && s.GetCompletions() > manyIndexes && s.GetParallelism() > fewAtOnce {
		w.Add(at, "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
			"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(w, podspec.WarningsOfTemplate(at.Child("template"), s.GetTemplate())...)
}

func shownStatus(o *batchv1.Job) string {
	for _, c := range []string{jobs.Complete, jobs.FailedCondition} {
		if jobs.Has(o.GetStatus(), c) {
			return c
		}
	}
	if o.GetMetadata().GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	for _, c := range []string{jobs.Suspended, jobs.FailureTarget, jobs.SuccessCriteriaMet} {
		if jobs.Has(o.GetStatus(), c) {
			return c
		}
	}
	return "Running"
}

func completions(o *batchv1.Job) string {
	s, done := o.GetSpec(), o.GetStatus().GetSucceeded()
	switch {
	case s != nil && s.Completions != nil:
		return fmt.Sprintf("%d/%d", done, *s.Completions)
	case s.GetParallelism() > 1:
		return fmt.Sprintf("%d/1 of %d", done, s.GetParallelism())
	default:
		return fmt.Sprintf("%d/1", done)
	}
}
