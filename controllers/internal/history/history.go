// Package history keeps the ControllerRevisions of the owners of pods: the states, such as templates of pods, that an
// owner may go back to.
//
//	state of the owner ──► no revision is equal:       one is made, with the next number
//	                   ──► the newest is equal:        nothing
//	                   ──► an older one is equal:      it gets the next number, as after a rollback
//
// What it guarantees: who calls Settle before List sees all that was written for an owner before, so that no revision
// is made or numbered twice. A revision is named after its state: the name of another one makes the next name another
// (collisionCount). Revisions that nobody manages and that the selector takes are adopted, those that it does not take
// any more released. A revision is removed as it was judged, and never one that is in use.
//
// A controller uses it in each look at an owner: Settle, List, Newest, and Truncate when it knows which revisions are
// in use. What a revision holds is the owner's affair; TemplatePatch is what kubectl expects of those whose state is a
// template of pods.
package history

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/internal/writes"
	"monoplane.dev/object"
)

// HashLabel is the label of revisions with the hash that is in their names.
const HashLabel = "controller.kubernetes.io/hash"

// Control writes revisions. Use New.
type Control struct {
	*writes.Memory[*appsv1.ControllerRevision]

	revisions appsv1rpc.ControllerRevisionsClient
	cache     *cache.Cache[*appsv1.ControllerRevision]
}

// New returns a Control that writes revisions, which show up in a cache with the indexes of the shared ones.
func New(revisions appsv1rpc.ControllerRevisionsClient, seen *cache.Cache[*appsv1.ControllerRevision]) *Control {
	return &Control{Memory: writes.New(seen), revisions: revisions, cache: seen}
}

// List returns the revisions of an owner in their order, after adoptions and releases. Live reads the owner from the
// server.
func (c *Control) List(
	ctx context.Context, owner object.Object, selector labels.Selector, live func(context.Context) (object.Object, error),
) ([]*appsv1.ControllerRevision, error) {
	m := owner.GetMetadata()
	claim := owned.Claim[*appsv1.ControllerRevision]{
		Owner: owner,
		Selects: func(r *appsv1.ControllerRevision) bool {
			return selector.Matches(labels.Set(r.GetMetadata().GetLabels()))
		},
		Live: live,
		Patch: func(ctx context.Context, req *metav1.PatchRequest) (*appsv1.ControllerRevision, error) {
			r, err := c.revisions.Patch(ctx, req)
			if err == nil {
				c.Wrote(m.GetUid(), r)
			}
			return r, err
		},
	}
	all, err := claim.Take(ctx, append(c.cache.ByIndex(controller.ByController, m.GetUid()),
		c.cache.ByIndex(controller.Unmanaged, m.GetNamespace())...))
	Sort(all)
	return all, err
}

// State is what the newest revision of an owner is to be.
type State struct {
	// Data is the state, a JSON object.
	Data []byte
	// Labels are those of the revision, which the owner's selector takes; Newest adds the hash.
	Labels map[string]string
	// Annotations are those of the revision, such as the cause of the change.
	Annotations map[string]string
	// HashLabel is the label with the hash; HashLabel of this package when it is empty.
	HashLabel string
	// Collisions is how often a name was taken by another revision.
	Collisions int32
}

// Newest returns the revision of a state, which it makes or gives the next number if need be, and all of them with it,
// in their order. Known are those that List returned. The number of collisions may have grown.
func (c *Control) Newest(
	ctx context.Context, owner object.Object, known []*appsv1.ControllerRevision, s State,
) (newest *appsv1.ControllerRevision, all []*appsv1.ControllerRevision, collisions int32, err error) {
	number := Next(known)
	equal := -1
	for i, r := range known {
		if Equal(r.GetData().GetRaw(), s.Data) {
			equal = i
		}
	}
	switch {
	case equal >= 0 && equal == len(known)-1:
		return known[equal], known, s.Collisions, nil
	case equal >= 0:
		newest, err = c.number(ctx, owner, known[equal], number)
		if err != nil {
			return nil, known, s.Collisions, err
		}
		all = append(append(all, known[:equal]...), known[equal+1:]...)
		return newest, append(all, newest), s.Collisions, nil
	}
	newest, collisions, err = c.create(ctx, owner, s, number)
	if err != nil {
		return nil, known, collisions, err
	}
	return newest, append(append(all, known...), newest), collisions, nil
}

// number gives a revision another number.
func (c *Control) number(
	ctx context.Context, owner object.Object, r *appsv1.ControllerRevision, number int64,
) (*appsv1.ControllerRevision, error) {
	next := r.Shallow()
	next.Revision = number
	out, err := c.revisions.Update(ctx, &appsv1rpc.UpdateControllerRevisionRequest{Object: next})
	if err != nil {
		m := r.GetMetadata()
		return nil, fmt.Errorf("number controller revision %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	c.Wrote(owner.GetMetadata().GetUid(), out)
	return out, nil
}

// create makes a revision. A name that another one has makes the name another.
func (c *Control) create(
	ctx context.Context, owner object.Object, s State, number int64,
) (made *appsv1.ControllerRevision, collisions int32, err error) {
	m, label := owner.GetMetadata(), s.HashLabel
	if label == "" {
		label = HashLabel
	}
	for collisions = s.Collisions; ; collisions++ {
		hash := Hash(s.Data, collisions)
		set := maps.Clone(s.Labels)
		if set == nil {
			set = map[string]string{}
		}
		set[label] = hash
		r := &appsv1.ControllerRevision{
			Metadata: &metav1.ObjectMeta{
				Namespace: m.GetNamespace(), Name: Name(m.GetName(), hash), Labels: set,
				Annotations: maps.Clone(s.Annotations), OwnerReferences: []*metav1.OwnerReference{owned.Reference(owner)},
			},
			Data: &metav1.RawExtension{Raw: s.Data}, Revision: number,
		}
		made, err = c.revisions.Create(ctx,
			&appsv1rpc.CreateControllerRevisionRequest{Namespace: m.GetNamespace(), Object: r})
		if !apierrors.Is(err, apierrors.AlreadyExists) {
			break
		}
		there, err := c.revisions.Get(ctx,
			&metav1.GetRequest{Namespace: m.GetNamespace(), Name: r.GetMetadata().GetName()})
		if err != nil {
			return nil, collisions, fmt.Errorf("read the controller revision that has the name of a new one: %w", err)
		}
		// An earlier answer may have been lost. What belongs to another owner, or to one before of this one's name, is
		// that one's, and may go with it.
		if controller.ManagerOf(there).GetUid() == m.GetUid() && Equal(there.GetData().GetRaw(), s.Data) {
			c.Wrote(m.GetUid(), there)
			return there, collisions, nil
		}
	}
	if err != nil {
		return nil, collisions, fmt.Errorf("make controller revision %d of %s/%s: %w", number, m.GetNamespace(),
			m.GetName(), err)
	}
	c.Wrote(m.GetUid(), made)
	return made, collisions, nil
}

// Truncate removes the oldest of an owner's revisions that are not in use, until limit of those are left; a negative
// limit keeps all. All are in their order, and live names those in use.
func (c *Control) Truncate(
	ctx context.Context, owner object.Object, all []*appsv1.ControllerRevision, live map[string]bool, limit int,
) error {
	for _, r := range Beyond(all, live, limit) {
		m := r.GetMetadata()
		uid, revision := m.GetUid(), m.GetResourceVersion()
		_, err := c.revisions.Delete(ctx, &metav1.DeleteRequest{
			Namespace: m.GetNamespace(), Name: m.GetName(), Options: &metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{Uid: &uid, ResourceVersion: &revision},
			},
		})
		if err != nil && !apierrors.Is(err, apierrors.NotFound) {
			return fmt.Errorf("remove controller revision %s/%s: %w", m.GetNamespace(), m.GetName(), err)
		}
		c.Gone(owner.GetMetadata().GetUid(), r)
	}
	return nil
}
