package job

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/labelselector"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// watch has everything looked at that a change may concern.
func (c *Controller) watch() {
	c.jobs.AddHandler(cache.Handler[*batchv1.Job]{
		OnAdd: func(job *batchv1.Job) {
			if !ours(job) {
				c.metrics.external.WithLabelValues(job.GetSpec().GetManagedBy()).Inc()
			}
			c.queue.Add(cache.KeyOf(job))
		},
		OnUpdate: func(old, job *batchv1.Job) {
			if old.GetMetadata().GetGeneration() != job.GetMetadata().GetGeneration() || jobs.Finished(job.GetStatus()) {
				c.queue.Add(cache.KeyOf(job))
				return
			}
			c.later(job)
		},
		OnDelete: func(job *batchv1.Job) {
			c.forget(job.GetMetadata().GetUid())
			c.freeAll(job.GetMetadata().GetUid())
		},
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd: func(p *corev1.Pod) {
			c.metrics.tracking(nil, p)
			c.podChanged(p)
		},
		OnUpdate: func(old, p *corev1.Pod) {
			c.metrics.tracking(old, p)
			if !counts(old, p) {
				return
			}
			if controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() {
				c.podChanged(old)
			}
			c.podChanged(p)
		},
		OnDelete: func(p *corev1.Pod) {
			c.metrics.tracking(p, nil)
			c.podChanged(p)
		},
	})
}

// counts says whether a change of a pod may change what becomes of its Job. Most changes do not, and a Job may have
// many pods.
func counts(old, p *corev1.Pod) bool {
	o, m := old.GetMetadata(), p.GetMetadata()
	return availability.Active(old) != availability.Active(p) || availability.Terminating(old) !=
		availability.Terminating(p) || availability.Ready(old) != availability.Ready(p) ||
		plan.Tracked(old) != plan.Tracked(p) || restarts(old) != restarts(p) ||
		controller.ManagerOf(old).GetUid() != controller.ManagerOf(p).GetUid() ||
		!labels.Equals(o.GetLabels(), m.GetLabels()) || !maps.Equal(o.GetAnnotations(), m.GetAnnotations())
}

// restarts returns how often the containers of a pod were restarted.
func restarts(p *corev1.Pod) (n int32) {
	for _, s := range p.GetStatus().GetInitContainerStatuses() {
		n += s.GetRestartCount()
	}
	for _, s := range p.GetStatus().GetContainerStatuses() {
		n += s.GetRestartCount()
	}
	return n
}

// podChanged has the Job looked at that manages a pod, or those that may adopt it.
func (c *Controller) podChanged(p *corev1.Pod) {
	namespace := p.GetMetadata().GetNamespace()
	if r := controller.ManagerOf(p); r != nil {
		if !owned.IsManager(r, batchv1.JobKind) {
			return
		}
		job, ok := c.jobs.Get(namespace, r.GetName())
		if ok && job.GetMetadata().GetUid() == r.GetUid() && !jobs.Finished(job.GetStatus()) {
			c.later(job)
		} else if plan.Tracked(p) {
			c.orphans.Add(cache.KeyOf(p))
		}
		return
	}
	if plan.Tracked(p) {
		c.orphans.Add(cache.KeyOf(p))
	}
	set := labels.Set(p.GetMetadata().GetLabels())
	if len(set) == 0 {
		return
	}
	for _, job := range c.jobs.ByIndex(controller.ByNamespace, namespace) {
		if !jobs.Finished(job.GetStatus()) && labelselector.OrNothing(job.GetSpec().GetSelector()).Matches(set) {
			c.later(job)
		}
	}
}

// The pause before a Job is looked at because something changed, for each of its pods and at most.
const (
	pausePerPod  = time.Millisecond
	longestPause = time.Second
)

// later has a Job looked at after a pause that grows with the number of its pods, so that the changes of many pods are
// looked at together.
func (c *Controller) later(job *batchv1.Job) {
	c.mu.Lock()
	m := c.memory[job.GetMetadata().GetUid()]
	c.mu.Unlock()
	var n int64
	if m != nil {
		n = m.pods.Load()
	}
	if pause := min(longestPause, time.Duration(n)*pausePerPod); n > few {
		c.queue.AddAfter(cache.KeyOf(job), pause)
		return
	}
	c.queue.Add(cache.KeyOf(job))
}

// few pods are looked at without a pause.
const few = 10

// freeAll has the finalizer taken from the pods of a Job that takes none any more.
func (c *Controller) freeAll(uid string) {
	for _, p := range c.pods.ByIndex(controller.ByController, uid) {
		if plan.Tracked(p) {
			c.orphans.Add(cache.KeyOf(p))
		}
	}
}

// free takes the finalizer from a pod that has no Job which would.
func (c *Controller) free(ctx context.Context, key cache.Key) (time.Duration, error) {
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if !ok || !plan.Tracked(p) {
		return 0, nil
	}
	if r := controller.ManagerOf(p); r != nil {
		if !owned.IsManager(r, batchv1.JobKind) {
			return 0, nil
		}
		orphan, err := c.orphan(ctx, key.Namespace, r)
		if err != nil || !orphan {
			return 0, err
		}
	}
	// Of the revision that was judged: a Job that adopts the pod needs the finalizer.
	_, err := c.take(ctx, p, p.GetMetadata().GetResourceVersion())
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	return 0, err
}

// orphan asks the server whether the Job that a reference means is gone or finished.
func (c *Controller) orphan(ctx context.Context, namespace string, r *metav1.OwnerReference) (bool, error) {
	if job, ok := c.jobs.Get(namespace, r.GetName()); ok && job.GetMetadata().GetUid() == r.GetUid() &&
		(!ours(job) || !jobs.Finished(job.GetStatus())) {
		return false, nil
	}
	live, err := c.api.Jobs.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: r.GetName()})
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		return true, nil
	case err != nil:
		return false, err
	case live.GetMetadata().GetUid() != r.GetUid():
		return true, nil
	default:
		return ours(live) && jobs.Finished(live.GetStatus()), nil
	}
}
