package registry

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/remains"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/precondition"
	"monoplane.dev/rules/propagation"

	metav1 "monoplane.dev/api/meta/v1"
)

// collectionWorkers is how many objects of a collection are deleted at a time.
const collectionWorkers = 16

// Delete deletes an object, or begins to.
func (r *Registry) Delete(ctx context.Context, req *metav1.DeleteRequest) (object.Object, error) {
	if req.GetName() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "name is required")
	}
	if r.kind.Namespaced && req.GetNamespace() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "an empty namespace may not be set for a namespaced resource")
	}
	opts, err := r.deleteOptions(req.GetName(), req)
	if err != nil {
		return nil, err
	}
	o, gone, err := r.delete(ctx, r.key(req.GetNamespace(), req.GetName()), opts)
	if err == nil && (!gone || r.strategy.ReturnsDeleted) {
		remains.Show(ctx, o)
	}
	return o, err
}

// DeleteCollection deletes every selected object as Delete does (DEL-12). Each is deleted by the uid it was
// listed with, so that a successor that takes its name meanwhile is not touched. A collection with an object that
// nobody may delete is refused as a whole, rather than deleted up to there.
func (r *Registry) DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (object.Items, error) {
	opts, err := r.deleteOptions("", req)
	if err != nil {
		return object.Items{}, err
	}
	selected, err := r.list(ctx, &metav1.ListRequest{
		Namespace: req.GetNamespace(), LabelSelector: req.GetLabelSelector(), FieldSelector: req.GetFieldSelector(),
		ResourceVersion: req.GetResourceVersion(), ResourceVersionMatch: req.GetResourceVersionMatch(),
		Limit: req.GetLimit(), Continue: req.GetContinue(),
	})
	if err != nil {
		return object.Items{}, err
	}
	for _, o := range selected.Objects {
		if err := r.protected(o); err != nil {
			return object.Items{}, err
		}
	}
	results := make([]object.Object, len(selected.Objects))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(collectionWorkers)
	for i, o := range selected.Objects {
		group.Go(func() error {
			m := meta(o)
			own := object.Clone(opts)
			if own.Preconditions == nil {
				own.Preconditions = &metav1.Preconditions{}
			}
			if own.Preconditions.Uid == nil {
				own.Preconditions.Uid = proto.String(m.Uid)
			}
			out, _, err := r.delete(groupCtx, r.key(m.Namespace, m.Name), own)
			switch {
			case err == nil:
				results[i] = out
			case apierrors.Is(err, apierrors.NotFound), r.succeeded(groupCtx, err, o):
				results[i] = r.seen(ctx, o)
			default:
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return object.Items{}, err
	}
	return object.Items{Meta: selected.Meta, Objects: results}, nil
}

// succeeded says whether err is because another object has taken the name of o: o itself is gone then.
func (r *Registry) succeeded(ctx context.Context, err error, o object.Object) bool {
	if !apierrors.Is(err, apierrors.Conflict) {
		return false
	}
	m := meta(o)
	live, err := r.deps.Store.Get(ctx, r.key(m.Namespace, m.Name), "")
	if err != nil {
		return apierrors.Is(err, apierrors.NotFound)
	}
	return meta(live).Uid != m.Uid
}

// told tells the strategy what a request has changed; see Strategy.Stored.
func (r *Registry) told(ctx context.Context, next, live object.Object) {
	if r.strategy.Stored != nil {
		r.strategy.Stored(ctx, next, live)
	}
}

// delete is Delete with options that have been checked; it also says whether the object is gone.
func (r *Registry) delete(
	ctx context.Context, key store.Key, opts *metav1.DeleteOptions,
) (o object.Object, gone bool, err error) {
	var before object.Object
	var last Removal
	decide := func(live object.Object) (*store.Txn, error) {
		if live == nil {
			return nil, apierrors.NewNotFound(r.kind, key.Name)
		}
		if err := r.protected(live); err != nil {
			return nil, err
		}
		before = live
		var err error
		if last, err = r.removal(ctx, live, opts); err != nil || last.Unchanged {
			return nil, err
		}
		rev, err := revision(live)
		if err != nil {
			return nil, err
		}
		txn := &store.Txn{
			Ops: append([]store.Op{{Key: key, Object: last.Object, Expect: rev}}, last.Ops...), Guards: last.Guards,
		}
		if last.Gone {
			return txn, r.remove(ctx, txn, live)
		}
		return txn, nil
	}
	if dryRun(opts.GetDryRun()) {
		live, err := r.deps.Store.Get(ctx, key, "")
		if err != nil {
			return nil, false, err
		}
		if _, err := decide(live); err != nil {
			return nil, false, err
		}
		return r.seen(ctx, last.Object), last.Gone, nil
	}
	after, err := r.deps.Store.Mutate(ctx, key, decide)
	if err != nil {
		return nil, false, r.conflict(key.Name, err)
	}
	r.settle(ctx)
	r.told(ctx, after, before)
	if last.Done != nil {
		last.Done()
	}
	return r.seen(ctx, last.Object), last.Gone, nil
}

// propagated returns live with the finalizers by which what the request says about its dependents is kept (OBJ-12).
// An object whose rules of deletion are its kind's own and that has no grace left is as good as gone: what becomes of
// its dependents is settled.
func (r *Registry) propagated(live object.Object, opts *metav1.DeleteOptions) object.Object {
	m := meta(live)
	if r.strategy.Delete != nil && m.DeletionTimestamp != nil && m.GetDeletionGracePeriodSeconds() == 0 {
		return live
	}
	want := propagation.Finalizers(m.Finalizers, opts, r.strategy.Dependents)
	if slices.Equal(want, m.Finalizers) {
		return live
	}
	next, m := object.Shallow(live), m.Shallow()
	m.Finalizers = want
	next.SetMetadata(m)
	return next
}

// removal decides what a deletion does to live.
func (r *Registry) removal(ctx context.Context, live object.Object, opts *metav1.DeleteOptions) (Removal, error) {
	if r.strategy.Delete == nil {
		return r.generic(live, opts)
	}
	d, err := r.strategy.Delete(ctx, r.propagated(live, opts), opts)
	if d.Unchanged {
		d.Object = live
	}
	return d, err
}

// protected refuses to delete an object that nobody may delete.
func (r *Registry) protected(o object.Object) error {
	if r.strategy.Protected == nil {
		return nil
	}
	return r.strategy.Protected(o)
}

// remove makes a transaction, whose first operation is on o, remove o and what goes with it.
func (r *Registry) remove(ctx context.Context, txn *store.Txn, o object.Object) error {
	txn.Ops[0].Object = nil
	if r.strategy.Takes == nil {
		return nil
	}
	more, err := r.strategy.Takes(ctx, o)
	txn.Ops = append(txn.Ops, more...)
	return err
}

// generic deletes at once unless finalizers hold the object. What is being deleted already is written again only if it
// has other finalizers now.
func (r *Registry) generic(live object.Object, opts *metav1.DeleteOptions) (Removal, error) {
	if err := precondition.Of(opts).Check(r.kind, meta(live)); err != nil {
		return Removal{}, err
	}
	next := r.propagated(live, opts)
	held := len(meta(next).Finalizers) > 0 || (r.strategy.Held != nil && r.strategy.Held(live))
	switch {
	case !held:
		return Removal{Object: live, Gone: true}, nil
	case meta(live).DeletionTimestamp == nil:
		return Removal{Object: r.mark(next)}, nil
	default:
		return Removal{Object: next, Unchanged: next == live}, nil
	}
}

// mark returns live with its deletion begun and no grace left, so that it goes once nothing holds it.
func (r *Registry) mark(live object.Object) object.Object {
	next := object.Clone(live)
	m := meta(next)
	m.DeletionTimestamp = value.Time(r.deps.Clock.Now())
	m.DeletionGracePeriodSeconds = proto.Int64(0)
	if r.strategy.Spec != nil {
		m.Generation++
	}
	return next
}

// deleteRequest is what both deletion requests have.
type deleteRequest interface {
	GetOptions() *metav1.DeleteOptions
	GetDryRun() []string
	GetPropagationPolicy() string
}

// deleteOptions merges the options of a request's body with those of its query, which win.
func (r *Registry) deleteOptions(name string, req deleteRequest) (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	if o := req.GetOptions(); o != nil {
		opts = object.Clone(o)
	}
	var grace, policy = (*int64)(nil), (*string)(nil)
	switch req := req.(type) {
	case *metav1.DeleteRequest:
		grace, policy = req.GracePeriodSeconds, req.PropagationPolicy
	case *metav1.DeleteCollectionRequest:
		grace, policy = req.GracePeriodSeconds, req.PropagationPolicy
	}
	if grace != nil {
		opts.GracePeriodSeconds = grace
	}
	if policy != nil {
		opts.PropagationPolicy = policy
	}
	if len(req.GetDryRun()) > 0 {
		opts.DryRun = req.GetDryRun()
	}
	if causes := validation.DeleteOptions(opts); len(causes) > 0 {
		return nil, validation.InvalidOptions("DeleteOptions", causes)
	}
	return opts, nil
}
