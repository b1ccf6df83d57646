package registry

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/precondition"

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
	opts, err := r.deleteOptions(ctx, req.GetName(), req)
	if err != nil {
		return nil, err
	}
	return r.delete(ctx, r.key(req.GetNamespace(), req.GetName()), opts)
}

// DeleteCollection deletes every selected object as Delete does (DEL-12). Each is deleted by the uid it was
// listed with, so that a successor that takes its name meanwhile is not touched. A collection with an object that
// nobody may delete is refused as a whole, rather than deleted up to there.
func (r *Registry) DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (object.Items, error) {
	opts, err := r.deleteOptions(ctx, "", req)
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
			out, err := r.delete(groupCtx, r.key(m.Namespace, m.Name), own)
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

func (r *Registry) delete(ctx context.Context, key store.Key, opts *metav1.DeleteOptions) (object.Object, error) {
	remove := r.strategy.Delete
	if remove == nil {
		remove = r.generic
	}
	var last Removal
	var stays string
	decide := func(live object.Object) (*store.Txn, error) {
		if live == nil {
			return nil, apierrors.NewNotFound(r.kind, key.Name)
		}
		if err := r.protected(live); err != nil {
			return nil, err
		}
		var err error
		if last, err = remove(ctx, live, opts); err != nil || last.Unchanged {
			return nil, err
		}
		rev, err := revision(live)
		if err != nil {
			return nil, err
		}
		if stays, err = r.dependents(ctx, live, opts); err != nil {
			return nil, err
		}
		txn := &store.Txn{Ops: []store.Op{{Key: key, Object: last.Object, Expect: rev}}, Guards: last.Guards}
		if last.Gone {
			return txn, r.remove(ctx, txn, live)
		}
		return txn, nil
	}
	if dryRun(opts.GetDryRun()) {
		live, err := r.deps.Store.Get(ctx, key, "")
		if err != nil {
			return nil, err
		}
		if _, err := decide(live); err != nil {
			return nil, err
		}
		r.warnOfDependents(ctx, last, stays)
		return r.seen(ctx, last.Object), nil
	}
	if _, err := r.deps.Store.Mutate(ctx, key, decide); err != nil {
		return nil, r.conflict(key.Name, err)
	}
	r.settle(ctx)
	r.warnOfDependents(ctx, last, stays)
	if last.Done != nil {
		last.Done()
	}
	return r.seen(ctx, last.Object), nil
}

// dependents says how many objects of which kinds name o as their owner and do not go with it; empty for none, and
// when nobody is to be told: the caller asks for them to stay, or collects no warnings.
func (r *Registry) dependents(ctx context.Context, o object.Object, opts *metav1.DeleteOptions) (string, error) {
	if opts.GetPropagationPolicy() == "Orphan" || opts.GetOrphanDependents() || !warning.Collected(ctx) {
		return "", nil
	}
	found := r.deps.Store.Dependents(meta(o).Uid)
	if len(found) == 0 {
		return "", nil
	}
	going := map[*object.Kind]int{}
	if r.strategy.Takes != nil {
		taken, err := r.strategy.Takes(ctx, o)
		if err != nil {
			return "", err
		}
		for _, op := range taken {
			going[op.Key.Kind]++
		}
	}
	var what []string
	for _, f := range found {
		if n := f.Count - going[f.Kind]; n > 0 {
			what = append(what, fmt.Sprintf("%d %s", n, f.Kind.Resource()))
		}
	}
	return strings.Join(what, ", "), nil
}

// warnOfDependents says that what names a deleted object as its owner stays: nothing collects it (OBJ-12). Most
// objects own nothing, so that clients that ask for Background every time, as kubectl does, are not told every time.
func (r *Registry) warnOfDependents(ctx context.Context, d Removal, stays string) {
	if d.Unchanged || stays == "" {
		return
	}
	warning.Add(ctx, fmt.Sprintf(
		"%s %q is the owner of %s, which stay: dependents are not deleted with their owner in this version",
		r.kind.Resource(), meta(d.Object).Name, stays))
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

// generic deletes at once unless finalizers hold the object.
func (r *Registry) generic(_ context.Context, live object.Object, opts *metav1.DeleteOptions) (Removal, error) {
	if err := precondition.Of(opts).Check(r.kind, meta(live)); err != nil {
		return Removal{}, err
	}
	m := meta(live)
	held := len(m.Finalizers) > 0 || (r.strategy.Held != nil && r.strategy.Held(live))
	if !held {
		return Removal{Object: live, Gone: true}, nil
	}
	if m.DeletionTimestamp != nil {
		return Removal{Object: live, Unchanged: true}, nil
	}
	return Removal{Object: r.mark(live)}, nil
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
func (r *Registry) deleteOptions(ctx context.Context, name string, req deleteRequest) (*metav1.DeleteOptions, error) {
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
		return nil, apierrors.NewInvalid(r.kind, name, causes)
	}
	if opts.GetPropagationPolicy() == "Foreground" {
		warning.Add(ctx, "propagationPolicy Foreground: dependents are not deleted in this version; "+
			"the object is deleted on its own")
	}
	return opts, nil
}
