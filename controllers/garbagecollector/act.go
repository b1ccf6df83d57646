package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/garbagecollector/graph"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"
)

// fieldManager is who writes, in what the server keeps about writes.
const fieldManager = "garbage-collector"

// behind is how soon an owner is looked at again of which a list has shown dependents that the graph does not know.
const behind = 100 * time.Millisecond

// orphaned is how many dependents of an owner are patched at once.
const orphaned = 16

// policyOf returns how an object is deleted none of whose owners waits: as its finalizers say.
func policyOf(m *metav1.ObjectMeta) string {
	switch {
	case slices.Contains(m.GetFinalizers(), propagation.OrphanFinalizer):
		return propagation.Orphan
	case slices.Contains(m.GetFinalizers(), propagation.ForegroundFinalizer):
		return propagation.Foreground
	default:
		return propagation.Background
	}
}

// maxRemovals is how often a deletion that others come before is tried within one look.
const maxRemovals = 10

// remove deletes an object as it was read. If it has changed since, in anything but its owners and in what is to
// become of its dependents, it is deleted all the same, as it is then: what changes all the time would never go. What
// somebody else has begun to delete meanwhile goes as they have said.
func (c *Controller) remove(ctx context.Context, i *item, policy string) error {
	m := i.meta
	var err error
	for range maxRemovals {
		err = i.client.Delete(ctx, m.GetNamespace(), m.GetName(), &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{
				Uid: proto.String(m.GetUid()), ResourceVersion: proto.String(object.Revision(m)),
			},
			PropagationPolicy: &policy,
		})
		if !apierrors.Is(err, apierrors.Conflict) {
			break
		}
		o, readErr := i.client.Get(ctx, m.GetNamespace(), m.GetName())
		if readErr != nil {
			err = readErr
			break
		}
		now := o.GetMetadata()
		if now.GetUid() != m.GetUid() || now.GetDeletionTimestamp() != nil {
			return nil
		}
		if object.Revision(now) == object.Revision(m) || !sameOwners(now, m) || policyOf(now) != policyOf(m) {
			break
		}
		m = now
	}
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err = c.metrics.done(actionDelete, err); err != nil {
		return fmt.Errorf("delete %s: %w", i, err)
	}
	c.cfg.Logger.Debug("collected", "object", i.String(), "uid", m.GetUid(), "propagation", policy)
	return nil
}

func sameOwners(a, b *metav1.ObjectMeta) bool {
	return slices.EqualFunc(a.GetOwnerReferences(), b.GetOwnerReferences(), func(x, y *metav1.OwnerReference) bool {
		return proto.Equal(x, y)
	})
}

// unown takes references from an object.
func (c *Controller) unown(ctx context.Context, i *item, refs []*metav1.OwnerReference) error {
	var without []any
	for _, ref := range refs {
		without = append(without, map[string]string{"$patch": "delete", "uid": ref.GetUid()})
	}
	return c.patch(ctx, actionUnown, i, map[string]any{"ownerReferences": without})
}

// unblock makes an object block the deletion of no owner.
func (c *Controller) unblock(ctx context.Context, i *item) error {
	var refs []any
	for _, ref := range i.meta.GetOwnerReferences() {
		refs = append(refs, map[string]any{"uid": ref.GetUid(), "blockOwnerDeletion": false})
	}
	return c.patch(ctx, actionUnblock, i, map[string]any{"ownerReferences": refs})
}

// patch merges metadata into that of an object, if it is still the same one, and makes i what came of it.
func (c *Controller) patch(ctx context.Context, action string, i *item, metadata map[string]any) error {
	metadata["uid"] = i.meta.GetUid()
	doc, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	o, err := i.client.Patch(ctx, &metav1.PatchRequest{
		Namespace: i.meta.GetNamespace(), Name: i.meta.GetName(), Patch: doc,
		PatchType: "application/strategic-merge-patch+json", FieldManager: fieldManager,
	})
	if err = c.metrics.done(action, err); err != nil {
		return fmt.Errorf("%s of %s: %w", action, i, err)
	}
	i.meta = o.GetMetadata()
	return nil
}

// finish lets an owner go that waits in the foreground, if nothing blocks it any more.
func (c *Controller) finish(ctx context.Context, i *item) (time.Duration, error) {
	if c.graph.Blocking(i.uid) > 0 {
		if c.graph.Cycle(i.uid) {
			return 0, c.unblock(ctx, i)
		}
		return 0, nil // the last of them has it looked at again
	}
	left, err := c.dependents(ctx, i, (*metav1.OwnerReference).GetBlockOwnerDeletion)
	if err != nil {
		return 0, err
	}
	if len(left) > 0 {
		return behind, nil
	}
	return 0, c.finalize(ctx, i, propagation.ForegroundFinalizer)
}

// orphan takes the reference to an owner from all its dependents, and then lets it go.
func (c *Controller) orphan(ctx context.Context, i *item) error {
	left, err := c.dependents(ctx, i, func(*metav1.OwnerReference) bool { return true })
	if err != nil {
		return err
	}
	ref := []*metav1.OwnerReference{{Uid: i.meta.GetUid()}}
	errs := make([]error, len(left))
	var g errgroup.Group
	g.SetLimit(orphaned)
	for n, d := range left {
		g.Go(func() error {
			// One that has gone meanwhile, be it that another has its name, is no dependent.
			if err := c.unown(ctx, d, ref); !apierrors.Is(err, apierrors.NotFound) && !apierrors.OtherObject(err) {
				errs[n] = err
			}
			return nil
		})
	}
	_ = g.Wait() // errs has them
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("orphan the dependents of %s: %w", i, err)
	}
	return c.finalize(ctx, i, propagation.OrphanFinalizer)
}

// dependents lists the objects with a reference to an owner that counts, as they are at the owner's revision or later.
func (c *Controller) dependents(
	ctx context.Context, i *item, counts func(*metav1.OwnerReference) bool,
) ([]*item, error) {
	var found []*item
	for _, k := range c.kinds {
		if !k.Kind().Namespaced && i.meta.GetNamespace() != "" {
			continue
		}
		l, err := k.List(ctx, &metav1.ListRequest{
			Namespace: i.meta.GetNamespace(), ResourceVersion: object.Revision(i.meta), ResourceVersionMatch: "NotOlderThan",
		})
		if err != nil {
			return nil, fmt.Errorf("look for dependents of %s among %s: %w", i, k.Kind().Resource(), err)
		}
		for n := range l.Len() {
			m := l.At(n).GetMetadata()
			for _, ref := range m.GetOwnerReferences() {
				if ref.GetUid() == i.meta.GetUid() && counts(ref) {
					found = append(found, &item{client: k, uid: graph.UIDOf(m.GetUid()), meta: m})
					break
				}
			}
		}
	}
	return found, nil
}

// finalize takes a finalizer from an object, and with it the object, unless others hold it.
func (c *Controller) finalize(ctx context.Context, i *item, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(i.meta.GetFinalizers()), func(f string) bool { return f == finalizer })
	doc, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": i.meta.GetUid(), "resourceVersion": object.Revision(i.meta), "finalizers": left,
	}})
	if err != nil {
		return err
	}
	_, err = i.client.Patch(ctx, &metav1.PatchRequest{
		Namespace: i.meta.GetNamespace(), Name: i.meta.GetName(), Patch: doc,
		PatchType: "application/merge-patch+json", FieldManager: fieldManager,
	})
	if apierrors.Is(err, apierrors.NotFound) || apierrors.OtherObject(err) {
		return nil
	}
	if err = c.metrics.done(actionFinalize, err); err != nil {
		return fmt.Errorf("take finalizer %s from %s: %w", finalizer, i, err)
	}
	return nil
}
