package job

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/labelselector"
	"monoplane.dev/rules/phase"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// parallel is how many pods are changed or deleted at once.
	parallel = 64
	// maxPrefix is the longest prefix of a name that the server completes without cutting it.
	maxPrefix = 58
)

// What a look at a Job led to, as the metrics say it.
const (
	reconciling = "reconciling"
	tracking    = "tracking"
	podsCreated = "pods_created"
	podsDeleted = "pods_deleted"
)

// How long nothing is tried again after pods could not be made; it doubles from the first to the second.
const (
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
)

// refusal is a failure to make pods.
type refusal struct {
	err error
	// generation is that of the Job whose pods could not be made. Another one is tried at once.
	generation int64
	until      time.Time
	pause      time.Duration
}

// sync carries out what is decided about a Job.
func (c *Controller) sync(
	ctx context.Context, job *batchv1.Job, m *memory, pods []*corev1.Pod,
) (again time.Duration, action string, err error) {
	s := plan.Begin(job, pods, m.released, m.backoff, time.Now())
	again, action, failed := c.work(ctx, job, m, s)
	status, release := s.Record()
	if status != nil {
		if job, err = c.write(ctx, job, m, status); err != nil {
			return 0, action, err
		}
		m.backoff = s.Backoff()
		c.announce(job, s)
	}
	c.metrics.handled(s.Actions())
	lost := c.releaseAll(ctx, job, m, release)
	var wrote *batchv1.JobStatus
	if status != nil {
		wrote = job.GetStatus()
	}
	status, end := s.Count(wrote, m.released, lost == nil)
	if status != nil {
		if job, err = c.write(ctx, job, m, status); err != nil {
			return 0, action, err
		}
	}
	switch {
	case lost != nil:
		return 0, action, lost
	case end != nil:
		c.ended(job, end)
		return 0, action, nil
	case again > 0: // the delay is kept by the memory, where other events do not cut it short
	case failed != nil:
		return 0, action, failed
	}
	if left := s.Deadline(); left > 0 && (again == 0 || left < again) {
		again = left
	}
	return again, action, nil
}

// work makes and deletes pods. It returns after which time it is to be tried again.
func (c *Controller) work(
	ctx context.Context, job *batchv1.Job, m *memory, s *plan.Sync,
) (again time.Duration, action string, failed error) {
	w := s.Work()
	var made int
	var deleted []*corev1.Pod
	action, again = tracking, w.Again
	switch {
	case len(w.Create) > 0:
		var pause time.Duration
		action = podsCreated
		if made, pause, failed = c.create(ctx, job, m, s, w.Create); pause > 0 && (again == 0 || pause < again) {
			again = pause
		}
	case len(w.Delete) > 0:
		action = podsDeleted
		deleted, failed = c.remove(ctx, job, m, w)
	}
	if s.End() != nil {
		action = reconciling
	}
	s.Did(made, deleted)
	return again, action, failed
}

// create makes pods, unless that was refused just now.
func (c *Controller) create(
	ctx context.Context, job *batchv1.Job, m *memory, s *plan.Sync, list []plan.New,
) (made int, again time.Duration, failed error) {
	generation, now := job.GetMetadata().GetGeneration(), time.Now()
	if r := m.refused; r != nil && r.generation == generation && now.Before(r.until) {
		return 0, r.until.Sub(now), r.err
	}
	template := templateOf(job)
	pod := func(i int) *corev1.Pod { return podOf(job, template, list[i]) }
	made, err := c.control.CreateAll(ctx, job, len(list), pod)
	c.metrics.created(job, s, made, err)
	switch {
	case err == nil, apierrors.NamespaceGoes(err):
		m.refused = nil
		return made, 0, nil
	case ctx.Err() != nil:
		return made, 0, err
	}
	m.unsure = m.unsure || !refused(err)
	pause := minPause
	if m.refused != nil && m.refused.generation == generation {
		pause = min(2*m.refused.pause, maxPause)
	}
	m.refused = &refusal{err: err, generation: generation, until: now.Add(pause), pause: pause}
	return made, pause, err
}

// refused says whether an error is the server's word that nothing was made.
func refused(err error) bool {
	for _, k := range []apierrors.Reason{
		apierrors.Invalid, apierrors.Forbidden, apierrors.NotFound, apierrors.BadRequest, apierrors.AlreadyExists,
		apierrors.TooManyRequests,
	} {
		if apierrors.Is(err, k) {
			return true
		}
	}
	return false
}

// search has the cache wait for all pods of a Job, after some may have been made without an answer.
func (c *Controller) search(ctx context.Context, job *batchv1.Job, m *memory) error {
	if !m.unsure {
		return nil
	}
	own := job.GetMetadata()
	list, err := c.api.Pods.List(ctx, &metav1.ListRequest{
		Namespace:     own.GetNamespace(),
		LabelSelector: labelselector.OrNothing(job.GetSpec().GetSelector()).String(),
	})
	if err != nil {
		return fmt.Errorf("look for pods that may have been made: %w", err)
	}
	for _, p := range list.GetItems() {
		c.control.Wrote(own.GetUid(), p)
	}
	m.unsure = false
	return nil
}

// templateOf returns what all pods of a Job are made of.
func templateOf(job *batchv1.Job) *corev1.PodTemplateSpec {
	t := job.GetSpec().GetTemplate()
	if !jobs.IsIndexed(job.GetSpec()) {
		return t
	}
	t = object.Clone(t)
	for _, list := range [][]*corev1.Container{t.GetSpec().GetInitContainers(), t.GetSpec().GetContainers()} {
		for _, c := range list {
			if !slices.ContainsFunc(c.Env, func(v *corev1.EnvVar) bool { return v.GetName() == "JOB_COMPLETION_INDEX" }) {
				c.Env = append(c.Env, &corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{ApiVersion: "v1", FieldPath: "metadata.labels['" + jobs.Index + "']"},
				}})
			}
		}
	}
	return t
}

// podOf returns a pod of a Job.
func podOf(job *batchv1.Job, t *corev1.PodTemplateSpec, n plan.New) *corev1.Pod {
	p := podcontrol.FromTemplate(job, t)
	m := p.Metadata
	if !slices.Contains(m.Finalizers, jobs.Tracking) {
		m.Finalizers = append(m.Finalizers, jobs.Tracking)
	}
	if n.Index < 0 {
		return p
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	maps.Copy(m.Annotations, n.Annotations)
	index, name := strconv.Itoa(int(n.Index)), job.GetMetadata().GetName()
	m.Annotations[jobs.Index], m.Labels[jobs.Index] = index, index
	suffix := "-" + index + "-"
	m.GenerateName = name[:min(len(name), maxPrefix-len(suffix))] + suffix
	spec := p.Spec.Shallow()
	spec.Hostname = name + "-" + index
	p.Spec = spec
	return p
}

// remove deletes pods, and returns those that are being deleted then.
func (c *Controller) remove(
	ctx context.Context, job *batchv1.Job, m *memory, w plan.Work,
) (deleted []*corev1.Pod, failed error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range w.Delete {
		g.Go(func() error {
			var err error
			if w.Uncounted && plan.Tracked(p) {
				// Of the revision that was judged: one that has ended meanwhile counts.
				err = c.release(ctx, job.GetMetadata().GetUid(), p, p.GetMetadata().GetResourceVersion())
			}
			mu.Lock()
			if w.Uncounted && err == nil {
				m.released[p.GetMetadata().GetUid()] = true
			}
			mu.Unlock()
			if err == nil {
				err = c.control.Delete(ctx, job, p)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				deleted = append(deleted, p)
			} else if failed == nil {
				failed = err
			}
			return nil
		})
	}
	_ = g.Wait() // the first error is in failed
	return deleted, failed
}

// releaseAll takes the finalizer from pods. It tries all of them, whatever fails.
func (c *Controller) releaseAll(ctx context.Context, job *batchv1.Job, m *memory, pods []*corev1.Pod) (failed error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range pods {
		g.Go(func() error {
			err := c.release(ctx, job.GetMetadata().GetUid(), p, "")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				m.released[p.GetMetadata().GetUid()] = true
			} else if failed == nil {
				failed = err
			}
			return nil
		})
	}
	_ = g.Wait() // the first error is in failed
	return failed
}

// release takes the finalizer from a pod, of a revision unless that is empty. One that is gone has none.
func (c *Controller) release(ctx context.Context, owner string, p *corev1.Pod, revision string) error {
	out, err := c.take(ctx, p, revision)
	switch {
	case apierrors.Is(err, apierrors.NotFound), apierrors.OtherObject(err):
		return nil
	case err != nil:
		return err
	}
	c.control.Wrote(owner, out)
	return nil
}

// take takes the finalizer from a pod, of a revision unless that is empty.
func (c *Controller) take(ctx context.Context, p *corev1.Pod, revision string) (*corev1.Pod, error) {
	m := p.GetMetadata()
	change := map[string]any{"uid": m.GetUid(), "$deleteFromPrimitiveList/finalizers": []string{jobs.Tracking}}
	if revision != "" {
		change["resourceVersion"] = revision
	}
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return nil, err
	}
	out, err := c.api.Pods.Patch(ctx, &metav1.PatchRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), Patch: patch,
		PatchType: "application/strategic-merge-patch+json",
	})
	if err != nil {
		return nil, fmt.Errorf("take the finalizer from pod %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	return out, nil
}

// confirm asks the server for the pods that have ended and seem not to be counted, when they are seen as they were
// before somebody else wrote the Job: who did may have counted them and taken their finalizers. Seen is the revision
// of the cache, or one before it.
func (c *Controller) confirm(ctx context.Context, m *memory, pods []*corev1.Pod, seen string) error {
	if revision(seen) >= m.foreign {
		return nil
	}
	var mu sync.Mutex
	var released []string
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range pods {
		uid := p.GetMetadata().GetUid()
		if !plan.Tracked(p) || m.released[uid] || !phase.Terminal(p) && !availability.Terminating(p) {
			continue
		}
		g.Go(func() error {
			live, err := c.api.Pods.Get(ctx, &metav1.GetRequest{
				Namespace: p.GetMetadata().GetNamespace(), Name: p.GetMetadata().GetName(),
			})
			switch {
			case apierrors.Is(err, apierrors.NotFound):
			case err != nil:
				return fmt.Errorf("read a pod before it is counted: %w", err)
			case live.GetMetadata().GetUid() == uid && plan.Tracked(live):
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			released = append(released, uid)
			return nil
		})
	}
	err := g.Wait()
	for _, uid := range released {
		m.released[uid] = true
	}
	return err
}

// write writes the status of a Job, by compare-and-swap.
func (c *Controller) write(
	ctx context.Context, job *batchv1.Job, m *memory, status *batchv1.JobStatus,
) (*batchv1.Job, error) {
	next := job.Shallow()
	next.Status = status
	out, err := c.api.Jobs.UpdateStatus(ctx, &batchv1rpc.UpdateJobRequest{Object: next})
	if err != nil {
		return job, fmt.Errorf("write the status of Job %s/%s: %w", job.GetMetadata().GetNamespace(),
			job.GetMetadata().GetName(), err)
	}
	m.written = out.GetMetadata().GetResourceVersion()
	c.metrics.counted(job, out.GetStatus())
	return out, nil
}

// announce tells that a Job was suspended or resumed.
func (c *Controller) announce(job *batchv1.Job, s *plan.Sync) {
	switch s.Suspension {
	case "Suspended":
		c.events.Event(job, record.Normal, s.Suspension, "Suspending", "Job suspended")
	case "Resumed":
		c.events.Event(job, record.Normal, s.Suspension, "Resuming", "Job resumed")
	}
}

// ended tells how a Job ended.
func (c *Controller) ended(job *batchv1.Job, end *batchv1.JobCondition) {
	c.metrics.ended(job.GetSpec(), end)
	if end.GetType() != jobs.Complete {
		c.events.Event(job, record.Warning, end.GetReason(), "Failing", end.GetMessage())
		return
	}
	if s := job.GetSpec(); s.Completions != nil && job.GetStatus().GetSucceeded() > *s.Completions {
		c.events.Event(job, record.Warning, "TooManySucceededPods", "Completing",
			"Too many succeeded pods running after completion count reached")
	}
	c.events.Event(job, record.Normal, "Completed", "Completing", "Job completed")
}
