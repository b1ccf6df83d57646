package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/precondition"

	metav1 "monoplane.dev/api/meta/v1"
)

// change is an update in the making: what to write, given the live object.
type change struct {
	namespace, name, subresource string
	// manager is who the request says that it writes; empty when it does not.
	manager string
	dryRun  bool
	// applied are the owners of the fields from then on, which ask finds out; nil for a change that is no apply.
	applied *[]*metav1.ManagedFieldsEntry
	// ask returns the object that the request describes. It must be a function of live, and its result, in terms
	// of what clients see, is not changed.
	ask func(live object.Object) (object.Object, error)
	// states says whether the request itself names a uid.
	states func(uid string) bool
	// patch says that the request changes parts of the object, and does not describe all of it.
	patch bool
}

// Update replaces an object, or the part of it that a subresource stands for.
func (r *Registry) Update(
	ctx context.Context, namespace, name, subresource string, o object.Object, opts object.WriteOptions,
) (object.Object, error) {
	if causes := validation.WriteOptions(opts); len(causes) > 0 {
		return nil, validation.InvalidOptions("UpdateOptions", causes)
	}
	m := meta(o).Shallow()
	if err := r.place(m, namespace, name); err != nil {
		return nil, err
	}
	if m.Name == "" {
		return nil, apierrors.New(apierrors.BadRequest, "name is required")
	}
	for attempt := 1; ; attempt++ {
		out, err := r.update(ctx, change{
			namespace: m.Namespace, name: m.Name, subresource: subresource,
			manager: opts.FieldManager, dryRun: dryRun(opts.DryRun),
			ask:    func(object.Object) (object.Object, error) { return o, nil },
			states: func(uid string) bool { return o.GetMetadata().GetUid() == uid },
		})
		if subresource != "" || !r.strategy.CreateOnUpdate || !apierrors.Is(err, apierrors.NotFound) {
			return out, err
		}
		out, made := r.updateNew(ctx, o, m, opts)
		if !apierrors.Is(made, apierrors.AlreadyExists) || attempt == applyAttempts {
			return out, made
		}
	}
}

// updateNew makes an object that an update is about and that is not there: m is its metadata, with its name. What
// names a uid or a revision means another object, which is gone.
func (r *Registry) updateNew(
	ctx context.Context, o object.Object, m *metav1.ObjectMeta, opts object.WriteOptions,
) (object.Object, error) {
	if m.Uid != "" {
		return nil, precondition.Named(m.Uid, "").Check(r.kind, &metav1.ObjectMeta{Name: m.Name})
	}
	if m.ResourceVersion != "" && m.ResourceVersion != "0" {
		return nil, r.modified(m.Name)
	}
	asked, named := object.Shallow(o), m.Shallow()
	named.ResourceVersion = ""
	asked.SetMetadata(named)
	return r.createElse(ctx, m.Namespace, asked, opts, nil)
}

// update carries a change out by compare-and-swap.
func (r *Registry) update(ctx context.Context, c change) (object.Object, error) {
	resource, ok := r.strategy.Resources[c.subresource]
	if !ok {
		return nil, noSuchResource()
	}
	key := r.key(c.namespace, c.name)
	var a attempt
	decide := func(live object.Object) (*store.Txn, error) {
		a.charge.settle(ErrNotStored) // of the attempt before, which has lost a race
		if live == nil {
			return nil, apierrors.NewNotFound(r.kind, c.name)
		}
		return r.decide(ctx, key, resource, c, live, &a)
	}
	if c.dryRun {
		live, err := r.deps.Store.Get(ctx, key, "")
		if err != nil {
			return nil, err
		}
		if _, err := decide(live); err != nil {
			return nil, err
		}
		return resource.shaped(r.seen(ctx, a.next)), nil
	}
	out, err := r.deps.Store.Mutate(ctx, key, decide)
	a.charge.settle(err)
	if err != nil {
		return nil, r.conflict(c.name, err)
	}
	r.settle(ctx)
	r.told(ctx, out, a.live)
	if out == nil { // the write completed a deletion
		out = a.next
	}
	return resource.shaped(r.seen(ctx, out)), nil
}

// attempt is what the last attempt of an update has come to.
type attempt struct {
	live, next object.Object
	charge     Charge
}

// decide judges one attempt: it returns the transaction that turns live into a.next.
func (r *Registry) decide(
	ctx context.Context, key store.Key, resource *UpdateRules, c change, live object.Object, a *attempt,
) (*store.Txn, error) {
	asked, err := c.ask(live)
	if err != nil {
		return nil, err
	}
	if err := r.expected(asked, live, c); err != nil {
		return nil, err
	}
	stored := r.stored(asked)
	n := resource.Apply(stored, live)
	takes := resource.Metadata
	if auth.From(ctx).Component() {
		takes = resource.OfComponents
	}
	if resource.Main {
		mergeMeta(n, live)
	} else {
		n.SetMetadata(metaOfPart(stored.GetMetadata(), live.GetMetadata(), takes))
	}
	r.track(ctx, asked, live, n, c)
	w := Write{Subresource: c.subresource, Live: live, Next: n, DryRun: c.dryRun}
	if err := r.complete(ctx, w); err != nil {
		return nil, err
	}
	u := &Update{Live: live, Next: n, StatesUID: c.states(meta(live).Uid)}
	if resource.Authorize != nil {
		if err := resource.Authorize(ctx, u); err != nil {
			return nil, err
		}
	}
	if err := r.judge(ctx, n, r.validateUpdate(resource, takes, n, live), live); err != nil {
		return nil, err
	}
	if resource.Main {
		r.warn(ctx, n, live)
	}
	if err := r.allowed(ctx, w); err != nil {
		return nil, err
	}
	r.generation(n, live)
	r.deps.Store.Share(n, live)
	a.live, a.next = live, n

	rev, err := revision(live)
	if err != nil {
		return nil, err
	}
	txn := &store.Txn{Ops: []store.Op{{Key: key, Object: n, Expect: rev}}, Guards: u.Guards}
	if r.completed(n) {
		return txn, r.remove(ctx, txn, live)
	}
	if a.charge, err = r.charge(ctx, w); err != nil {
		return nil, err
	}
	txn.Guards = a.charge.guard(txn.Guards)
	return txn, nil
}

// validateUpdate lists every bad field of an update, in terms of the kind that the client sees.
func (r *Registry) validateUpdate(
	resource *UpdateRules, takes Metadata, next, live object.Object,
) []apierrors.Cause {
	var causes []apierrors.Cause
	if !resource.Main && takes != 0 {
		causes = r.validateMeta(next.GetMetadata(), live.GetMetadata())
	}
	switch {
	case resource.Main && r.view != nil && r.view.ValidateUpdate != nil:
		return r.view.ValidateUpdate(r.view.Out(next), r.view.Out(live))
	case resource.Validate != nil:
		for _, c := range resource.Validate(next, live) {
			if !slices.Contains(causes, c) { // what it says of the metadata, too
				causes = append(causes, c)
			}
		}
	}
	return causes
}

// validateMeta checks metadata that an update of a subresource has changed.
func (r *Registry) validateMeta(next, live *metav1.ObjectMeta) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(next, live)
		f.ObjectMeta(next, r.kind.Namespaced, func(string, bool) []string { return nil })
	}
	return f.Causes()
}

// expected compares what the request says about the object that it means with the live one (OBJ-2, DEL-11). The uid of
// an object in a request is a precondition. In a patch it is a field like others, which cannot be changed, as in
// Kubernetes: controllers take Invalid for a sign that the object is another one now.
func (r *Registry) expected(asked, live object.Object, c change) error {
	a, l := meta(asked), meta(live)
	if a.Name != "" && a.Name != l.Name {
		return apierrors.New(apierrors.BadRequest,
			"the name of the object (%s) does not match the name on the URL (%s)", a.Name, l.Name)
	}
	if a.Namespace != "" && a.Namespace != l.Namespace {
		return apierrors.New(apierrors.BadRequest,
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	other := precondition.Named(a.Uid, "").Check(r.kind, l)
	if other != nil && !c.patch {
		return other
	}
	if err := r.expectedRevision(asked, live, c.name); err != nil {
		return err
	}
	if other != nil {
		return apierrors.NewInvalid(r.kind, c.name, []apierrors.Cause{{
			Type: "FieldValueInvalid", Field: "metadata.uid",
			Message: fmt.Sprintf("Invalid value: %q: %s", a.Uid, validation.Immutable),
		}})
	}
	return nil
}

// expectedRevision compares the revision that the request names, if it does, with that of the live object.
func (r *Registry) expectedRevision(asked, live object.Object, name string) error {
	a, l := meta(asked), meta(live)
	if a.ResourceVersion == "" || a.ResourceVersion == "0" {
		if r.strategy.RequireRevision {
			return apierrors.NewInvalid(r.kind, name, []apierrors.Cause{{Type: "FieldValueInvalid",
				Field: "metadata.resourceVersion", Message: "Invalid value: 0: must be specified for an update"}})
		}
		return nil
	}
	if a.ResourceVersion != l.ResourceVersion {
		if _, err := revision(asked); err != nil {
			return apierrors.NewInvalid(r.kind, name, []apierrors.Cause{{Type: "FieldValueInvalid",
				Field:   "metadata.resourceVersion",
				Message: "Invalid value: \"" + a.ResourceVersion + "\": must be a decimal number"}})
		}
		return r.modified(name)
	}
	return nil
}

func (r *Registry) modified(name string) error {
	return apierrors.NewConflict(r.kind, name,
		"the object has been modified; please apply your changes to the latest version and try again")
}

// conflict words a transaction's failed comparison for clients.
func (r *Registry) conflict(name string, err error) error {
	var c *store.ConflictError
	switch {
	case !errors.As(err, &c):
		return err
	case c.Guard:
		return apierrors.NewConflict(r.kind, name, "%v", c)
	default:
		return r.modified(name)
	}
}
