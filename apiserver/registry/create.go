package registry

import (
	"context"
	"errors"
	"slices"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Create stores a new object.
func (r *Registry) Create(
	ctx context.Context, namespace string, o object.Object, opts object.WriteOptions,
) (object.Object, error) {
	if causes := validation.WriteOptions(opts); len(causes) > 0 {
		return nil, validation.InvalidOptions("CreateOptions", causes)
	}
	return r.create(ctx, namespace, o, opts, nil)
}

// create is Create with options that have been checked. Applied are who owns the fields of an object that is applied.
func (r *Registry) create(
	ctx context.Context, namespace string, o object.Object, opts object.WriteOptions,
	applied *[]*metav1.ManagedFieldsEntry,
) (object.Object, error) {
	// Another name, or another allotment, takes another attempt, and that a fresh copy.
	own := object.Owned(ctx) && o.GetMetadata().GetName() != "" && r.strategy.Allot == nil
	for attempt := 1; ; attempt++ {
		next := r.stored(o)
		if !own {
			next = object.Clone(next)
		}
		m := meta(next)
		if m.ResourceVersion != "" {
			return nil, apierrors.New(apierrors.BadRequest, "resourceVersion should not be set on objects to be created")
		}
		if err := r.place(m, namespace, ""); err != nil {
			return nil, err
		}
		generate := m.Name == "" && m.GenerateName != ""
		if err := r.identify(m); err != nil {
			return nil, err
		}
		if generate {
			name, err := r.generatedName(m.GenerateName)
			if err != nil {
				return nil, err
			}
			m.Name = name
		}
		// Defaults may depend on the name, so that another name means another look, from the beginning.
		guards, err := r.admit(ctx, next, opts, applied)
		if err != nil {
			return nil, err
		}
		dry := dryRun(opts.DryRun)
		err = r.insert(ctx, next, guards, dry)
		if err == nil {
			if !dry {
				r.told(ctx, next, nil)
			}
			return r.seen(ctx, next), nil
		}
		if errors.Is(err, errAllotted) && ctx.Err() == nil {
			attempt--
			continue
		}
		if !generate || attempt == nameAttempts || !apierrors.Is(err, apierrors.AlreadyExists) {
			return nil, err
		}
	}
}

// errAllotted says that what was allotted to a new object has been taken by another write.
var errAllotted = errors.New("what the object was given has been taken by another write")

// admit makes a new object complete, or refuses it with every bad field. From here on next shares parts with others
// and must not be changed. The guards are those of what it was allotted.
func (r *Registry) admit(
	ctx context.Context, next object.Object, opts object.WriteOptions, applied *[]*metav1.ManagedFieldsEntry,
) ([]store.Guard, error) {
	s := r.strategy
	s.Default(next)
	// What admission adds is nobody's.
	if applied != nil {
		meta(next).ManagedFields = slices.Clone(*applied)
	} else {
		by := r.write(ctx, opts.FieldManager, "")
		by.Time = meta(next).CreationTimestamp
		meta(next).ManagedFields = r.owners.Update(nil, next, nil, by)
	}
	w := Write{Next: next, DryRun: dryRun(opts.DryRun)}
	if err := r.complete(ctx, w); err != nil {
		return nil, err
	}
	if s.Admit != nil {
		if err := s.Admit(ctx, next); err != nil {
			return nil, err
		}
	}
	var guards []store.Guard
	if s.Allot != nil {
		var err error
		if guards, err = s.Allot(ctx, next); err != nil {
			return nil, err
		}
	}
	r.deps.Store.Share(next, nil)
	if err := r.judge(ctx, next, r.validate(next), nil); err != nil {
		return nil, err
	}
	r.warn(ctx, next, nil)
	return guards, r.allowed(ctx, w)
}

// judge turns causes, and fields that are not supported, into an error, and warns about fields that have no
// effect. What live, when given, has already is not warned about again.
func (r *Registry) judge(ctx context.Context, next object.Object, causes []apierrors.Cause, live object.Object) error {
	refused, stored := r.deps.Support.Unsupported(next)
	if causes = append(causes, refused...); len(causes) > 0 {
		return apierrors.NewInvalid(r.kind, meta(next).Name, causes)
	}
	if len(stored) > 0 && live != nil {
		_, before := r.deps.Support.Unsupported(live)
		stored = without(stored, before)
	}
	for _, text := range stored {
		warning.Add(ctx, text)
	}
	return nil
}

// warn tells whoever listens what there is to say of an object that is made, or changed, all the same.
func (r *Registry) warn(ctx context.Context, next, live object.Object) {
	if r.strategy.Warn == nil || !warning.Collected(ctx) {
		return
	}
	for _, text := range r.strategy.Warn(next, live) {
		warning.Add(ctx, text)
	}
}

func without(texts, known []string) []string {
	have := make(map[string]bool, len(known))
	for _, t := range known {
		have[t] = true
	}
	var out []string
	for _, t := range texts {
		if !have[t] {
			out = append(out, t)
		}
	}
	return out
}

// insert stores a new object in a namespace that exists and is not being deleted (OBJ-14): the transaction
// compares the namespace, and whatever else counts, as it was seen. When that fails all of it is looked at again, but
// what the object was allotted: that ends in errAllotted.
func (r *Registry) insert(ctx context.Context, next object.Object, allotted []store.Guard, dry bool) error {
	m := meta(next)
	op := store.Op{Key: r.key(m.Namespace, m.Name), Object: next}
	for fresh := dry; ; fresh = true {
		txn := store.Txn{Ops: []store.Op{op}, Guards: slices.Clone(allotted)}
		if r.kind.Namespaced {
			guard, err := r.namespace(ctx, m.Namespace, m.Name, fresh)
			if err != nil {
				return err
			}
			txn.Guards = append(txn.Guards, guard)
		}
		if r.strategy.Guards != nil {
			more, err := r.strategy.Guards(ctx, next)
			if err != nil {
				return err
			}
			txn.Guards = append(txn.Guards, more...)
		}
		charge, err := r.charge(ctx, Write{Next: next, DryRun: dry})
		if err != nil {
			return err
		}
		if dry {
			return r.absent(ctx, op.Key)
		}
		txn.Guards = charge.guard(txn.Guards)
		_, err = r.deps.Store.Commit(ctx, txn)
		charge.settle(err)
		var conflict *store.ConflictError
		switch {
		case err == nil:
			r.settle(ctx)
			return nil
		case !errors.As(err, &conflict):
			return err
		case !conflict.Guard:
			return apierrors.NewAlreadyExists(r.kind, m.Name)
		case slices.ContainsFunc(allotted, func(g store.Guard) bool { return g.Key == conflict.Key }):
			return errAllotted
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (r *Registry) absent(ctx context.Context, key store.Key) error {
	_, err := r.deps.Store.Get(ctx, key, "")
	switch {
	case err == nil:
		return apierrors.NewAlreadyExists(r.kind, key.Name)
	case apierrors.Is(err, apierrors.NotFound):
		return nil
	default:
		return err
	}
}

// namespace returns a guard that the namespace is as it was found: present and not terminating. Unless fresh
// it may be read from the cache, since the guard finds out.
func (r *Registry) namespace(ctx context.Context, namespace, name string, fresh bool) (store.Guard, error) {
	key := store.Key{Kind: corev1.NamespaceKind, Name: namespace}
	rv := "0"
	if fresh {
		rv = ""
	}
	ns, err := r.deps.Store.Get(ctx, key, rv)
	if !fresh && (apierrors.Is(err, apierrors.NotFound) || err == nil && meta(ns).DeletionTimestamp != nil) {
		return r.namespace(ctx, namespace, name, true) // it may have been made since
	}
	if err != nil {
		return store.Guard{}, err
	}
	if meta(ns).DeletionTimestamp != nil {
		return store.Guard{}, apierrors.NewForbidden(r.kind, name,
			"unable to create new content in namespace %s because it is being terminated", namespace).
			WithCause(apierrors.Cause{Type: "NamespaceTerminating", Field: "metadata.namespace",
				Message: "namespace " + namespace + " is being terminated"})
	}
	rev, err := revision(ns)
	return store.Guard{Key: key, Condition: store.AtRevision, Revision: rev}, err
}

// validate lists every bad field of an object, in terms of the kind that the client sees.
func (r *Registry) validate(o object.Object) []apierrors.Cause {
	switch {
	case r.view != nil && r.view.Validate != nil:
		return r.view.Validate(r.view.Out(o))
	case r.strategy.Validate != nil:
		return r.strategy.Validate(o)
	default:
		return nil
	}
}
