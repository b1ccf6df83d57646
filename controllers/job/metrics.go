package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/phase"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// The words of several metrics.
const (
	succeeded = "succeeded"
	failed    = "failed"
)

// metrics are those of Kubernetes' controller, under its names.
type metrics struct {
	syncs, finished, external, pods, actions, tracked, indexes, creations *prometheus.CounterVec
	syncTime                                                              *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "job_controller", Name: name, Help: help}, labels)
	}
	m := &metrics{
		syncs: counter("job_syncs_total", "[STABLE] Looks at Jobs.", "completion_mode", "result", "action"),
		finished: counter("jobs_finished_total", "[STABLE] Jobs that have ended.",
			"completion_mode", "result", "reason"),
		external: counter("jobs_by_external_controller_total", "[ALPHA] Jobs that another controller carries out.",
			"controller_name"),
		pods: counter("job_pods_finished_total", "[STABLE] Pods of Jobs that have ended and are counted.",
			"completion_mode", "result"),
		actions: counter("pod_failures_handled_by_failure_policy_total",
			"[BETA] Failed pods that a rule of a pod failure policy fits, by its action.", "action"),
		tracked: counter("terminated_pods_tracking_finalizer_total",
			"[BETA] Ended pods that have the finalizer (add) and have lost it (delete).", "event"),
		indexes: counter("job_finished_indexes_total", "[ALPHA] Indexes of Jobs that have ended.", "status", "backoffLimit"),
		creations: counter("job_pods_creation_total", "[ALPHA] Pods that were made for Jobs, by what for.",
			"reason", "status"),
		syncTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "job_controller", Name: "job_sync_duration_seconds",
			Help:    "[STABLE] How long looks at Jobs take.",
			Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
		}, []string{"completion_mode", "result", "action"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.syncs, m.finished, m.external, m.pods, m.actions, m.tracked, m.indexes, m.creations, m.syncTime,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func mode(s *batchv1.JobSpec) string {
	if jobs.IsIndexed(s) {
		return jobs.Indexed
	}
	return jobs.NonIndexed
}

func limit(s *batchv1.JobSpec) string {
	if s.BackoffLimitPerIndex != nil {
		return "perIndex"
	}
	return "global"
}

// synced counts a look at a Job.
func (m *metrics) synced(s *batchv1.JobSpec, action string, err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(mode(s), result, action).Inc()
	m.syncTime.WithLabelValues(mode(s), result, action).Observe(took.Seconds())
}

// handled counts what a pod failure policy did.
func (m *metrics) handled(actions map[string]int) {
	for action, n := range actions {
		m.actions.WithLabelValues(action).Add(float64(n))
	}
}

// created counts pods that were made at a look at a Job.
func (m *metrics) created(job *batchv1.Job, look *plan.Sync, made int, err error) {
	reason := "new"
	switch lost, terminating := look.Lost(); {
	case job.GetSpec().GetPodReplacementPolicy() == jobs.Failed && lost > 0:
		reason = "recreate_failed"
	case lost > 0 || terminating > 0:
		reason = "recreate_terminating_or_failed"
	}
	m.creations.WithLabelValues(reason, succeeded).Add(float64(made))
	if err != nil {
		m.creations.WithLabelValues(reason, failed).Inc()
	}
}

// counted counts the pods and indexes that a new status of a Job counts.
func (m *metrics) counted(job *batchv1.Job, now *batchv1.JobStatus) {
	was, spec := job.GetStatus(), job.GetSpec()
	more := func(c prometheus.Counter, n int32) {
		if n > 0 {
			c.Add(float64(n))
		}
	}
	done := now.GetSucceeded() - was.GetSucceeded()
	more(m.pods.WithLabelValues(mode(spec), succeeded), done)
	more(m.pods.WithLabelValues(mode(spec), failed), now.GetFailed()-was.GetFailed())
	if !jobs.IsIndexed(spec) {
		return
	}
	more(m.indexes.WithLabelValues(succeeded, limit(spec)), done)
	if now.GetFailedIndexes() != was.GetFailedIndexes() {
		n := spec.GetCompletions()
		more(m.indexes.WithLabelValues(failed, limit(spec)),
			indexes.Read(now.GetFailedIndexes(), n).Len()-indexes.Read(was.GetFailedIndexes(), n).Len())
	}
}

// ended counts a Job that has ended.
func (m *metrics) ended(s *batchv1.JobSpec, end *batchv1.JobCondition) {
	result := failed
	if end.GetType() == jobs.Complete {
		result = succeeded
	}
	m.finished.WithLabelValues(mode(s), result, end.GetReason()).Inc()
}

// tracking counts ended pods that get the finalizer, or lose it; nil stands for a pod that is not there.
func (m *metrics) tracking(old, p *corev1.Pod) {
	had, has := phase.Terminal(old) && plan.Tracked(old), phase.Terminal(p) && plan.Tracked(p)
	switch {
	case has && !had:
		m.tracked.WithLabelValues("add").Inc()
	case had && !has:
		m.tracked.WithLabelValues("delete").Inc()
	}
}
