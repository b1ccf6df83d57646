package statefulset

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/statefulset/members"
)

// parallel is how many steps are done at once.
const parallel = 64

// act does what was decided. A part that fails ends it.
func (c *Controller) act(ctx context.Context, o *appsv1.StatefulSet, plan members.Plan) error {
	confirmed := false
	for _, part := range plan.Parts {
		if !confirmed && destroys(part) {
			if err := c.confirm(ctx, o); err != nil {
				return err
			}
			confirmed = true
		}
		if err := c.part(ctx, o, part, plan.Parallel); err != nil {
			return err
		}
	}
	return nil
}

// destroys says whether a step deletes a pod, or gives a claim owners with which it may go.
func destroys(part []members.Step) bool {
	for _, s := range part {
		if s.Verb == members.Delete || len(s.Own) > 0 {
			return true
		}
	}
	return false
}

// confirm asks the server whether a StatefulSet is still what was judged.
func (c *Controller) confirm(ctx context.Context, o *appsv1.StatefulSet) error {
	live, err := c.live(o)(ctx)
	if err != nil {
		return fmt.Errorf("read the stateful set before its pods are deleted: %w", err)
	}
	m, now := o.GetMetadata(), live.GetMetadata()
	if now.GetUid() != m.GetUid() || now.GetGeneration() != m.GetGeneration() || now.GetDeletionTimestamp() != nil {
		return apierrors.New(apierrors.Conflict, "stateful set %s/%s changed since it was judged", m.GetNamespace(),
			m.GetName())
	}
	return nil
}

// part does some steps: one after the other, or in batches of 1, 2, 4 and so on at once, since what is refused once is
// most likely refused again.
func (c *Controller) part(ctx context.Context, o *appsv1.StatefulSet, steps []members.Step, atOnce bool) error {
	for size := 1; len(steps) > 0; {
		batch := steps[:min(size, len(steps))]
		steps = steps[len(batch):]
		if atOnce {
			size *= 2
		}
		var mu sync.Mutex
		var first error
		var g errgroup.Group
		g.SetLimit(parallel)
		for _, s := range batch {
			g.Go(func() error {
				if err := c.do(ctx, o, s); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = err // the others are most likely the same
					}
				}
				return nil
			})
		}
		_ = g.Wait() // the error is in first
		if first != nil {
			return first
		}
	}
	return nil
}

// do does one step.
func (c *Controller) do(ctx context.Context, o *appsv1.StatefulSet, s members.Step) error {
	if err := c.prepare(ctx, o, s); err != nil {
		if s.Verb == members.Create || s.Verb == members.Update {
			c.say(ctx, o, s, err)
		}
		return err
	}
	switch s.Verb {
	case members.Create:
		return c.create(ctx, o, s)
	case members.Update:
		return c.update(ctx, o, s)
	case members.Delete:
		return c.remove(ctx, o, s)
	case members.Keep:
	}
	return nil
}

// prepare does what a step asks for with claims.
func (c *Controller) prepare(ctx context.Context, o *appsv1.StatefulSet, s members.Step) error {
	var errs []error
	for _, claim := range s.Make {
		errs = append(errs, c.makeClaim(ctx, o, s.Pod, claim))
	}
	for _, name := range s.Going {
		errs = append(errs, apierrors.New(apierrors.Conflict, "claim %s/%s is being deleted",
			o.GetMetadata().GetNamespace(), name))
	}
	for _, own := range s.Own {
		errs = append(errs, c.ownClaim(ctx, o, own))
	}
	return errors.Join(errs...)
}

// makeClaim makes a claim. One that is there already is as good: the cache will tell.
func (c *Controller) makeClaim(
	ctx context.Context, o *appsv1.StatefulSet, p *corev1.Pod, claim *corev1.PersistentVolumeClaim,
) error {
	m, pod, set := claim.GetMetadata(), p.GetMetadata().GetName(), o.GetMetadata().GetName()
	made, err := c.api.PersistentVolumeClaims.Create(ctx,
		&corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: m.GetNamespace(), Object: claim})
	switch {
	case apierrors.Is(err, apierrors.AlreadyExists):
		return nil
	case err != nil && (ctx.Err() != nil || apierrors.NamespaceGoes(err)):
		return err
	case err != nil:
		c.events.Event(o, record.Warning, "FailedCreate", "Creating",
			fmt.Sprintf("Create Claim %s for Pod %s in StatefulSet %s failed error: %v", m.GetName(), pod, set, err))
		return fmt.Errorf("make claim %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	c.wrote(o, func(w *writes) *uint64 { return &w.claim }, made)
	c.events.Event(o, record.Normal, "SuccessfulCreate", "Creating",
		fmt.Sprintf("Create Claim %s Pod %s in StatefulSet %s success", m.GetName(), pod, set))
	return nil
}

// ownClaim writes the owners of a claim, as it was judged.
func (c *Controller) ownClaim(ctx context.Context, o *appsv1.StatefulSet, own members.Owning) error {
	m := own.Claim.GetMetadata()
	if own.Conflict {
		c.events.Event(o, record.Warning, "ConflictingController", "Updating", fmt.Sprintf("PersistentVolumeClaim %s has "+
			"another controller among its owners; the retention policy is ignored for it", m.GetName()))
	}
	req, err := owned.Patch(own.Claim, own.Owners)
	if err != nil {
		return err
	}
	out, err := c.api.PersistentVolumeClaims.Patch(ctx, req)
	if apierrors.Is(err, apierrors.NotFound) {
		return nil // what is gone belongs to nobody
	}
	if err != nil {
		return fmt.Errorf("write the owners of claim %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	c.wrote(o, func(w *writes) *uint64 { return &w.claim }, out)
	return nil
}

// create makes a pod. While there is one of its name, there is none to be made: one of an earlier StatefulSet, or of
// somebody else, whose end will be told, or one that the cache does not have yet.
func (c *Controller) create(ctx context.Context, o *appsv1.StatefulSet, s members.Step) error {
	m := s.Pod.GetMetadata()
	made, err := c.api.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: m.GetNamespace(), Object: s.Pod})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return apierrors.New(apierrors.Conflict, "there is still another pod %s/%s", m.GetNamespace(), m.GetName())
	}
	if err == nil {
		c.control.Wrote(o.GetMetadata().GetUid(), made)
	}
	c.say(ctx, o, s, err)
	return err
}

// update writes a pod that differs from what its identity and claims want.
func (c *Controller) update(ctx context.Context, o *appsv1.StatefulSet, s members.Step) error {
	out, err := c.api.Pods.Update(ctx, &corev1rpc.UpdatePodRequest{Object: s.Pod})
	if err == nil {
		c.control.Wrote(o.GetMetadata().GetUid(), out)
	}
	c.say(ctx, o, s, err)
	return err
}

// remove begins to delete a pod. One that is gone is as good as deleted.
func (c *Controller) remove(ctx context.Context, o *appsv1.StatefulSet, s members.Step) error {
	m := s.Pod.GetMetadata()
	uid := m.GetUid()
	_, err := c.api.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	gone := apierrors.Is(err, apierrors.NotFound)
	if err == nil || gone {
		c.control.Gone(o.GetMetadata().GetUid(), s.Pod)
	}
	if !gone {
		c.say(ctx, o, s, err)
		return err
	}
	return nil
}

// say tells in an event what became of a step. A lost race is tried again, and nothing to tell.
func (c *Controller) say(ctx context.Context, o *appsv1.StatefulSet, s members.Step, err error) {
	verb, action := "Create", "Creating"
	switch s.Verb {
	case members.Update:
		verb, action = "Update", "Updating"
	case members.Delete:
		verb, action = "Delete", "Deleting"
	case members.Create, members.Keep:
	}
	what := fmt.Sprintf("%s Pod %s in StatefulSet %s", verb, s.Pod.GetMetadata().GetName(), o.GetMetadata().GetName())
	switch {
	case err == nil:
		c.events.Event(o, record.Normal, "Successful"+verb, action, what+" successful")
	case ctx.Err() != nil, apierrors.NamespaceGoes(err):
	case s.Verb != members.Create && apierrors.Is(err, apierrors.Conflict):
	default:
		c.events.Event(o, record.Warning, "Failed"+verb, action, what+" failed error: "+apierrors.Text(err))
	}
}
