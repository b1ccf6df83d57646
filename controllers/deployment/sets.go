package deployment

import (
	"context"
	"fmt"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/deployment/rollout"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
)

// makeSet makes the set of the newest template. When its name is another one's, it returns that and the error, and
// notes that the next name is to be another.
func (c *Controller) makeSet(
	ctx context.Context, d *appsv1.Deployment, old []*appsv1.ReplicaSet, size int32,
) (*appsv1.ReplicaSet, error) {
	rs := rollout.New(d, old, size)
	rs.Metadata.OwnerReferences = []*metav1.OwnerReference{owned.Reference(d)}
	made, err := c.api.ReplicaSets.Create(ctx,
		&appsv1rpc.CreateReplicaSetRequest{Namespace: rs.Metadata.Namespace, Object: rs})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return c.taken(ctx, d, rs, err)
	}
	if err != nil {
		return nil, err
	}
	c.wrote(d, made)
	if size > 0 {
		c.say(d, made, 0, size)
	}
	return made, nil
}

// taken looks at the set that has the name of one that was to be made. When it is that one, an earlier answer was
// lost; the cache will have it.
func (c *Controller) taken(
	ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet, reason error,
) (*appsv1.ReplicaSet, error) {
	m := rs.GetMetadata()
	there, err := c.api.ReplicaSets.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
	if err != nil {
		return rs, err
	}
	if controller.ManagerOf(there).GetUid() == d.GetMetadata().GetUid() && rollout.SameTemplate(d, there) {
		_, err := c.wroteSet(d, there, nil)
		return there, err
	}
	status := object.Clone(d.GetStatus())
	if status == nil {
		status = &appsv1.DeploymentStatus{}
	}
	n := status.GetCollisionCount() + 1
	status.CollisionCount = &n
	if err := c.writeStatus(ctx, d, status); err != nil {
		return there, err
	}
	return there, fmt.Errorf("make the replica set of the newest template: %w", reason)
}

// scaleSet scales a set, and has seen tell of it as it is then.
func (c *Controller) scaleSet(ctx context.Context, d *appsv1.Deployment, s rollout.Scaling, seen *rollout.Seen) error {
	next := rollout.Scaled(d, s)
	if next == nil {
		return nil
	}
	out, err := c.updateSet(ctx, d, next)
	if err != nil {
		return err
	}
	if from := s.Set.GetSpec().GetReplicas(); from != s.To {
		c.say(d, out, from, s.To)
	}
	if seen.New == s.Set {
		seen.New = out
	}
	for i, rs := range seen.Old {
		if rs == s.Set {
			seen.Old[i] = out
		}
	}
	return nil
}

// say tells that a set was scaled.
func (c *Controller) say(d *appsv1.Deployment, rs *appsv1.ReplicaSet, from, to int32) {
	direction := "up"
	if to < from {
		direction = "down"
	}
	c.events.Event(d, record.Normal, "ScalingReplicaSet", "Scaling",
		fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, rs.GetMetadata().GetName(), from, to))
}

// removeSet removes a set as it was judged.
func (c *Controller) removeSet(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet) error {
	m := rs.GetMetadata()
	uid, revision := m.GetUid(), m.GetResourceVersion()
	_, err := c.api.ReplicaSets.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), Options: &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{Uid: &uid, ResourceVersion: &revision},
		},
	})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		return fmt.Errorf("remove replica set %s/%s of deployment %s: %w", m.GetNamespace(), m.GetName(),
			d.GetMetadata().GetName(), err)
	}
	return nil
}

func (c *Controller) updateSet(
	ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet,
) (*appsv1.ReplicaSet, error) {
	out, err := c.api.ReplicaSets.Update(ctx, &appsv1rpc.UpdateReplicaSetRequest{Object: rs})
	return c.wroteSet(d, out, err)
}

func (c *Controller) wroteSet(d *appsv1.Deployment, rs *appsv1.ReplicaSet, err error) (*appsv1.ReplicaSet, error) {
	if err == nil {
		c.wrote(d, rs)
	}
	return rs, err
}

// markRevision writes to a Deployment which revision its newest template is, and returns it as it is then.
func (c *Controller) markRevision(
	ctx context.Context, d *appsv1.Deployment, fresh *appsv1.ReplicaSet,
) (*appsv1.Deployment, error) {
	m, revision := d.GetMetadata(), fresh.GetMetadata().GetAnnotations()[rollout.Revision]
	if m.GetAnnotations()[rollout.Revision] == revision {
		return d, nil
	}
	out, err := c.api.Deployments.Patch(ctx, &metav1.PatchRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), PatchType: "application/merge-patch+json",
		Patch: fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, m.GetUid(), rollout.Revision, revision),
	})
	if err != nil {
		return nil, fmt.Errorf("write the revision: %w", err)
	}
	c.wrote(d, out)
	return out, nil
}
