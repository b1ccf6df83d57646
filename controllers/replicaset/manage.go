package replicaset

import (
	"context"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/controllers/replicaset/plan"
	"monoplane.dev/rules/availability"
)

// How long nothing is tried again after pods could not be made; it doubles from the first to the second.
const (
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
)

// refusal is a failure to make pods.
type refusal struct {
	err error
	// generation is that of the object whose pods could not be made. Another one is tried at once.
	generation int64
	until      time.Time
	pause      time.Duration
}

// manage makes and deletes pods, and writes the status.
func (c *Controller[T]) manage(ctx context.Context, o T, m *memory, pods []*corev1.Pod) (time.Duration, error) {
	now, w := time.Now(), c.wanted(o)
	active, terminating := plan.Sort(pods)
	var again time.Duration
	var failed error
	if o.GetMetadata().GetDeletionTimestamp() == nil {
		create, remove := plan.Decide(w, active, func() []*corev1.Pod { return c.neighbours(o) }, now)
		switch {
		case create > 0:
			again, failed = c.create(ctx, o, m, create, now)
		case len(remove) > 0:
			failed = c.control.DeleteAll(ctx, o, remove)
			m.refused = nil
		default:
			m.refused = nil
		}
	}
	next := status{
		Counts:   plan.Count(w, active, terminating, now),
		observed: o.GetMetadata().GetGeneration(), conditions: c.status(o).conditions,
	}
	next.conditions = withFailure(next.conditions, failed, len(active) < w.Replicas, now)
	if err := c.publish(ctx, o, m, next); err != nil {
		return 0, err
	}
	if again > 0 { // the delay is kept here, where other events do not cut it short
		return again, nil
	}
	if failed != nil {
		return 0, failed
	}
	return availability.Next(active, w.MinReadySeconds, now), nil
}

// neighbours returns the pods beside which one of o counts as doubled up.
func (c *Controller[T]) neighbours(o T) []*corev1.Pod {
	var all []*corev1.Pod
	for _, r := range c.related(o) {
		all = append(all, c.pods.ByIndex(controller.ByController, r.GetMetadata().GetUid())...)
	}
	return all
}

// create makes n pods, unless that was refused just now. It returns after which time it is to be tried again.
func (c *Controller[T]) create(
	ctx context.Context, o T, m *memory, n int, now time.Time,
) (again time.Duration, failed error) {
	generation := o.GetMetadata().GetGeneration()
	if r := m.refused; r != nil && r.generation == generation && now.Before(r.until) {
		return r.until.Sub(now), r.err
	}
	template := c.template(o)
	_, err := c.control.CreateAll(ctx, o, n, func(int) *corev1.Pod { return podcontrol.FromTemplate(o, template) })
	switch {
	case err == nil, apierrors.NamespaceGoes(err):
		m.refused = nil
		return 0, nil
	case ctx.Err() != nil:
		return 0, err
	}
	pause := minPause
	if m.refused != nil && m.refused.generation == generation {
		pause = min(2*m.refused.pause, maxPause)
	}
	m.refused = &refusal{err: err, generation: generation, until: now.Add(pause), pause: pause}
	return pause, err
}

// replicaFailure is the condition that pods cannot be made or deleted.
const replicaFailure = "ReplicaFailure"

// withFailure returns conditions with, or without, the one that pods cannot be made or deleted. One that is there
// stays as it is: its time is that of the first failure.
func withFailure(conditions []condition, failed error, tooFew bool, now time.Time) []condition {
	is := func(x condition) bool { return x.kind == replicaFailure }
	switch there := slices.ContainsFunc(conditions, is); {
	case failed == nil && there:
		return slices.DeleteFunc(slices.Clone(conditions), is)
	case failed == nil, there:
		return conditions
	}
	reason := "FailedDelete"
	if tooFew {
		reason = "FailedCreate"
	}
	return append(slices.Clone(conditions),
		condition{replicaFailure, "True", reason, apierrors.Text(failed), value.Time(now)})
}

// publish writes the status, unless it is there.
func (c *Controller[T]) publish(ctx context.Context, o T, m *memory, next status) error {
	was := c.status(o)
	if was.Counts == next.Counts && was.observed == next.observed && slices.Equal(was.conditions, next.conditions) {
		return nil
	}
	out, err := c.write(ctx, o, next)
	if err != nil {
		return err
	}
	m.written = out.GetMetadata().GetResourceVersion()
	return nil
}

func getRequest(m *metav1.ObjectMeta) *metav1.GetRequest {
	return &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()}
}

// patchPod writes owners to pods in the name of one of which it is remembered.
func (c *Controller[T]) patchPod(owner string) func(context.Context, *metav1.PatchRequest) (*corev1.Pod, error) {
	return func(ctx context.Context, req *metav1.PatchRequest) (*corev1.Pod, error) {
		p, err := c.api.Pods.Patch(ctx, req)
		if err == nil {
			c.control.Wrote(owner, p)
		}
		return p, err
	}
}
