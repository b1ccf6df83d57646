// Package owned tells which objects belong to their controller, and makes it so: what nobody manages and the selector
// takes is adopted, what is managed and no longer selected is released.
//
//	             nobody manages it, selected
//	orphan ─────────────────────────────────────► managed
//	       ◄─────────────────────────────────────
//	             managed, not selected any more
//
// What it guarantees: an object has one manager. References are written by compare-and-swap on the object as it was
// judged. Before the first adoption the owner is read from the server: one that is gone, or being deleted, adopts
// nothing. An owner that is being deleted releases nothing either.
package owned

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
)

// Reference returns the reference that says that owner manages an object.
func Reference(owner object.Object) *metav1.OwnerReference {
	k, m := owner.ObjectKind(), owner.GetMetadata()
	return &metav1.OwnerReference{
		ApiVersion: k.APIVersion(), Kind: k.Kind, Name: m.GetName(), Uid: m.GetUid(),
		Controller: proto.Bool(true), BlockOwnerDeletion: proto.Bool(true),
	}
}

// IsManager says whether a reference names the controller of an object and means a kind.
func IsManager(r *metav1.OwnerReference, kind *object.Kind) bool {
	return r.GetController() && r.GetKind() == kind.Kind && r.GetApiVersion() == kind.APIVersion()
}

// Claim says what an owner takes.
type Claim[T object.Object] struct {
	// Owner is the owner as its controller knows it.
	Owner object.Object
	// Finalizer is given to what is adopted, and taken from what is released; empty for none.
	Finalizer string
	// Selects says whether the owner's selector takes an object.
	Selects func(T) bool
	// Live reads the owner from the server.
	Live func(context.Context) (object.Object, error)
	// Patch changes an object.
	Patch func(context.Context, *metav1.PatchRequest) (T, error)
}

// Take returns those of some objects that the owner manages when it is done, as they are then. An object that changed
// meanwhile is looked at again later: the error is then a Conflict.
func (c *Claim[T]) Take(ctx context.Context, objects []T) ([]T, error) {
	own, deleting := c.Owner.GetMetadata(), c.Owner.GetMetadata().GetDeletionTimestamp() != nil
	mine, confirmed := objects[:0:0], false
	for _, o := range objects {
		m, manager := o.GetMetadata(), controller.ManagerOf(o)
		switch {
		case manager != nil && manager.GetUid() != own.GetUid():
		case manager != nil && c.Selects(o):
			mine = append(mine, o)
		case manager != nil:
			if deleting {
				continue
			}
			if _, err := c.refer(ctx, o, without(m.GetOwnerReferences(), own.GetUid()), false); err != nil {
				return nil, fmt.Errorf("release %s/%s: %w", m.GetNamespace(), m.GetName(), err)
			}
		case deleting, m.GetDeletionTimestamp() != nil, m.GetNamespace() != own.GetNamespace(), !c.Selects(o):
		default:
			if !confirmed {
				if err := c.confirm(ctx); err != nil {
					return nil, err
				}
				confirmed = true
			}
			owners := append(without(m.GetOwnerReferences(), own.GetUid()), Reference(c.Owner))
			adopted, err := c.refer(ctx, o, owners, true)
			if err != nil {
				return nil, fmt.Errorf("adopt %s/%s: %w", m.GetNamespace(), m.GetName(), err)
			}
			if adopted != nil {
				mine = append(mine, *adopted)
			}
		}
	}
	return mine, nil
}

// confirm asks the server whether the owner is still there and stays.
func (c *Claim[T]) confirm(ctx context.Context) error {
	own := c.Owner.GetMetadata()
	live, err := c.Live(ctx)
	if err != nil {
		return fmt.Errorf("read the owner before it adopts: %w", err)
	}
	m := live.GetMetadata()
	if m.GetUid() != own.GetUid() || m.GetDeletionTimestamp() != nil {
		return apierrors.New(apierrors.Conflict, "%s/%s is gone, or being deleted: it adopts nothing", own.GetNamespace(),
			own.GetName())
	}
	return nil
}

// refer writes the owners of an object, which is kept or let go; nil when it is gone.
func (c *Claim[T]) refer(ctx context.Context, o T, owners []*metav1.OwnerReference, keep bool) (*T, error) {
	req, err := write(o, owners, c.finalizers(o.GetMetadata().GetFinalizers(), keep))
	if err != nil {
		return nil, err
	}
	out, err := c.Patch(ctx, req)
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil //nolint:nilnil // what is gone belongs to nobody
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// finalizers returns what an object that is kept or let go is to have; nil when that is what it has.
func (c *Claim[T]) finalizers(has []string, keep bool) []string {
	if c.Finalizer == "" || slices.Contains(has, c.Finalizer) == keep {
		return nil
	}
	if keep {
		return append(slices.Clone(has), c.Finalizer)
	}
	rest := make([]string, 0, len(has))
	for _, f := range has {
		if f != c.Finalizer {
			rest = append(rest, f)
		}
	}
	return rest
}

// Patch returns the request that gives an object, as it was judged, other owners.
func Patch(o object.Object, owners []*metav1.OwnerReference) (*metav1.PatchRequest, error) {
	return write(o, owners, nil)
}

// write returns the request that gives an object other owners and, unless they are nil, other finalizers.
func write(o object.Object, owners []*metav1.OwnerReference, finalizers []string) (*metav1.PatchRequest, error) {
	m := o.GetMetadata()
	type reference struct {
		APIVersion         string `json:"apiVersion"`
		Kind               string `json:"kind"`
		Name               string `json:"name"`
		UID                string `json:"uid"`
		Controller         *bool  `json:"controller,omitempty"`
		BlockOwnerDeletion *bool  `json:"blockOwnerDeletion,omitempty"`
	}
	list := make([]reference, len(owners))
	for i, r := range owners {
		list[i] = reference{r.GetApiVersion(), r.GetKind(), r.GetName(), r.GetUid(), r.Controller, r.BlockOwnerDeletion}
	}
	change := map[string]any{"uid": m.GetUid(), "resourceVersion": m.GetResourceVersion(), "ownerReferences": list}
	if finalizers != nil {
		change["finalizers"] = finalizers
	}
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return nil, err
	}
	return &metav1.PatchRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), Patch: patch, PatchType: "application/merge-patch+json",
	}, nil
}

// without returns the references but for those to an owner.
func without(owners []*metav1.OwnerReference, uid string) []*metav1.OwnerReference {
	var rest []*metav1.OwnerReference
	for _, r := range owners {
		if r.GetUid() != uid {
			rest = append(rest, r)
		}
	}
	return rest
}
