package batch

import (
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/schedule"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// CronJob describes the kind.
func CronJob(define.Config) define.Definition {
	template := func(o *batchv1.CronJob) *batchv1.JobSpec { return o.GetSpec().GetJobTemplate().GetSpec() }
	return define.Definition{Strategy: registry.Typed[*batchv1.CronJob]{
		Kind:     batchv1.CronJobKind,
		Spec:     func(o *batchv1.CronJob) proto.Message { return o.GetSpec() },
		Default:  DefaultCronJob,
		Validate: ValidateCronJob,
		Warn: func(next, live *batchv1.CronJob) validation.Warnings {
			at := validation.NewPath("spec", "jobTemplate", "spec")
			w := warningsOfJobs(next, at, live == nil, template(next), template(live))
			if live != nil && schedule.NamesZone(next.GetSpec().GetSchedule()) {
				w.Say("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see " +
					"https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
			}
			return w
		},
		Main:         registry.TypedUpdateRules[*batchv1.CronJob]{Validate: ValidateCronJobUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*batchv1.CronJob]{"status": {Validate: ValidateCronJobStatus}},
		Table: append(define.Columns[*batchv1.CronJob]{
			define.Text("Schedule", "The times at which there are to be Jobs.",
				func(o *batchv1.CronJob) string { return o.GetSpec().GetSchedule() }),
			define.Text("Timezone", "The time zone of the schedule.",
				func(o *batchv1.CronJob) string { return define.OrNone(o.GetSpec().GetTimeZone()) }),
			suspended(),
			define.Integer("Active", "How many Jobs run.",
				func(o *batchv1.CronJob) int64 { return int64(len(o.GetStatus().GetActive())) }),
			define.Since("Last Schedule", "How long ago the time was for which a Job was made last.",
				func(o *batchv1.CronJob) *metav1.Time { return o.GetStatus().GetLastScheduleTime() }),
			define.Age[*batchv1.CronJob](),
		}, workload.Wide(func(o *batchv1.CronJob) *corev1.PodTemplateSpec { return template(o).GetTemplate() },
			func(o *batchv1.CronJob) string {
				if template(o).GetSelector() == nil {
					return define.OrNone("")
				}
				return workload.Selector(template(o).GetSelector())
			})...),
	}.Strategy()}
}

// suspended is a column of yes or no that is written in words, as in Kubernetes.
func suspended() define.Column[*batchv1.CronJob] {
	c := define.Text("Suspend", "Whether no Jobs are made.", func(o *batchv1.CronJob) string {
		switch s := o.GetSpec(); {
		case s == nil || s.Suspend == nil:
			return define.OrUnset("")
		case *s.Suspend:
			return "True"
		default:
			return "False"
		}
	})
	c.Type = "boolean"
	return c
}

// What happens when the last Job still runs.
const (
	allow   = "Allow"
	forbid  = "Forbid"
	replace = "Replace"
)

// DefaultCronJob fills in a CronJob.
func DefaultCronJob(o *batchv1.CronJob) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	s := o.Spec
	defaults.Set(&s.ConcurrencyPolicy, allow)
	defaults.SetPtr(&s.Suspend, false)
	defaults.SetPtr(&s.SuccessfulJobsHistoryLimit, 3)
	defaults.SetPtr(&s.FailedJobsHistoryLimit, 1)
	defaults.Message(&s.JobTemplate)
	defaults.Message(&s.JobTemplate.Metadata)
	defaults.Message(&s.JobTemplate.Spec)
	defaultPods(s.JobTemplate.Spec)
}

// ValidateCronJob checks a CronJob that is to be created.
func ValidateCronJob(o *batchv1.CronJob) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkCronJob(f, o, nil)
		if name := o.GetMetadata().GetName(); len(name) > longestCronName {
			f.Invalid(f.Root("metadata").Child("name"), name, "must be no more than 52 characters")
		}
	}
	return f.Causes()
}

// longestCronName leaves room in the names of Jobs, which are labels of pods, for a dash and ten digits.
const longestCronName = 52

// ValidateCronJobUpdate checks that a change of a CronJob is allowed: all of its spec may change. A zone in the
// schedule that was there before it was refused may stay.
func ValidateCronJobUpdate(new, old *batchv1.CronJob) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkCronJob(f, new, old)
	}
	return f.Causes()
}

// ValidateCronJobStatus checks a change of a CronJob's status, which may be anything.
func ValidateCronJobStatus(new, old *batchv1.CronJob) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	}
	return f.Causes()
}

func checkCronJob(f *validation.Faults, o, old *batchv1.CronJob) {
	f.CoreMeta(o.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
	s, was, at := o.GetSpec(), old.GetSpec(), f.Root("spec")
	checkSchedule(f, at.Child("schedule"), s, was)
	f.NotNegative(at.Child("startingDeadlineSeconds"), s.GetStartingDeadlineSeconds())
	if s != nil && s.TimeZone != nil && (was == nil || was.TimeZone == nil || *was.TimeZone != *s.TimeZone) {
		f.Invalid(at.Child("timeZone"), *s.TimeZone, schedule.WrongZone(*s.TimeZone)...)
	}
	f.RequiredOneOf(at.Child("concurrencyPolicy"), s.GetConcurrencyPolicy(), allow, forbid, replace)
	template, at := s.GetJobTemplate().GetSpec(), at.Child("jobTemplate").Child("spec")
	checkJobSpec(f, at, template)
	if template.GetSelector() != nil {
		f.Invalid(at.Child("selector"), template.GetSelector().String(), "`selector` will be auto-generated")
	}
	if template.GetManualSelector() {
		f.OneOf(at.Child("manualSelector"), "true", "nil", "false")
	}
	f.NotNegative(f.Root("spec").Child("successfulJobsHistoryLimit"), int64(s.GetSuccessfulJobsHistoryLimit()))
	f.NotNegative(f.Root("spec").Child("failedJobsHistoryLimit"), int64(s.GetFailedJobsHistoryLimit()))
}

func checkSchedule(f *validation.Faults, at *validation.Path, s, was *batchv1.CronJobSpec) {
	text := s.GetSchedule()
	if text == "" {
		f.Required(at, "")
		return
	}
	if _, err := schedule.Parse(text, ""); err != nil {
		f.Invalid(at, text, err.Error())
	}
	switch {
	case !schedule.NamesZone(text):
	case !schedule.NamesZone(was.GetSchedule()):
		f.Invalid(at, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case s.TimeZone != nil:
		f.Invalid(at, text, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}
