package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// minWatch is the shortest time after which the server itself ends a watch; the longest is twice that. Clients
// resume, and are so spread over time.
const minWatch = 30 * time.Minute

// Get returns one object.
func (r *Registry) Get(ctx context.Context, req *metav1.GetRequest) (object.Object, error) {
	if req.GetName() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "name is required")
	}
	if r.kind.Namespaced && req.GetNamespace() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "an empty namespace may not be set for a namespaced resource")
	}
	o, err := r.deps.Store.Get(ctx, r.key(req.GetNamespace(), req.GetName()), req.GetResourceVersion())
	if err != nil {
		return nil, r.renamed(err, req.GetName())
	}
	if r.strategy.MayRead != nil {
		if err := r.strategy.MayRead(ctx, o); err != nil {
			return nil, err
		}
	}
	return r.seen(ctx, o), nil
}

// GetPart returns a part of an object that has a shape of its own.
func (r *Registry) GetPart(
	ctx context.Context, subresource string, req *metav1.GetRequest,
) (object.Object, error) {
	rules, ok := r.strategy.Resources[subresource]
	if !ok || rules.Shape == nil {
		return nil, noSuchResource()
	}
	o, err := r.Get(ctx, req)
	if err != nil {
		return nil, err
	}
	return rules.shaped(o), nil
}

func noSuchResource() error {
	return apierrors.New(apierrors.NotFound, "the server could not find the requested resource")
}

// renamed makes "not found" name the kind that the client asked for.
func (r *Registry) renamed(err error, name string) error {
	if r.view != nil && apierrors.Is(err, apierrors.NotFound) {
		return apierrors.NewNotFound(r.kind, name)
	}
	return err
}

// List returns a consistent snapshot of the selected objects (OBJ-6).
func (r *Registry) List(ctx context.Context, req *metav1.ListRequest) (object.Items, error) {
	items, err := r.list(ctx, req)
	if err != nil || r.asStored() {
		return items, err
	}
	out := make([]object.Object, len(items.Objects))
	for i, o := range items.Objects {
		out[i] = r.seen(ctx, o)
	}
	return object.Items{Meta: items.Meta, Objects: out}, nil
}

// list is List of stored objects.
func (r *Registry) list(ctx context.Context, req *metav1.ListRequest) (object.Items, error) {
	if causes := validation.ListOptions(req); len(causes) > 0 {
		return object.Items{}, validation.InvalidOptions("ListOptions", causes)
	}
	label, field, err := r.selectors(req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return object.Items{}, err
	}
	return r.deps.Store.List(ctx, r.strategy.Kind, store.ListOptions{
		Namespace: req.GetNamespace(), Label: label, Field: field,
		ResourceVersion: req.GetResourceVersion(), ResourceVersionMatch: req.GetResourceVersionMatch(),
		Limit: req.GetLimit(), Continue: req.GetContinue(),
	})
}

// Watch calls send with batches of events until ctx ends, the time is up, or send fails (OBJ-7).
func (r *Registry) Watch(
	ctx context.Context, req *metav1.WatchRequest, accept func() error, send func([]object.Event) error,
) error {
	label, field, err := r.selectors(req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return err
	}
	if err := r.checkWatch(req); err != nil {
		return err
	}
	limit := minWatch + rand.N(minWatch)
	if s := req.GetTimeoutSeconds(); s > 0 {
		limit = time.Duration(min(s, int64(24*time.Hour/time.Second))) * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w, err := r.deps.Store.Watch(limited, r.strategy.Kind, store.WatchOptions{
		Namespace: req.GetNamespace(), Label: label, Field: field, ResourceVersion: req.GetResourceVersion(),
		SendInitialEvents: req.GetSendInitialEvents(), AllowBookmarks: req.GetAllowWatchBookmarks(),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := accept(); err != nil {
		return err
	}
	for {
		batch, err := w.Next(limited)
		if err != nil {
			if limited.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
				return ctx.Err() // nil when only the time was up
			}
			return err
		}
		if err := send(r.seenEvents(ctx, batch)); err != nil {
			return err
		}
	}
}

func (r *Registry) seenEvents(ctx context.Context, batch []object.Event) []object.Event {
	if r.asStored() {
		return batch
	}
	out := make([]object.Event, len(batch))
	for i, e := range batch {
		if e.Type == object.Bookmark {
			e.Object = r.viewed(e.Object) // nobody's object, and its revision is what it is for
		} else {
			e.Object = r.seen(ctx, e.Object)
		}
		out[i] = e
	}
	return out
}

func (r *Registry) checkWatch(req *metav1.WatchRequest) error {
	match := req.GetResourceVersionMatch()
	var cause apierrors.Cause
	switch {
	case req.SendInitialEvents == nil && match != "":
		cause = apierrors.Cause{Type: "FieldValueForbidden", Field: "resourceVersionMatch",
			Message: "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"}
	case req.SendInitialEvents != nil && match == "":
		cause = apierrors.Cause{Type: "FieldValueForbidden", Field: "resourceVersionMatch",
			Message: "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"}
	case match != "" && match != "NotOlderThan":
		cause = apierrors.Cause{Type: "FieldValueNotSupported", Field: "resourceVersionMatch",
			Message: `Unsupported value: "` + match + `": supported values: "NotOlderThan"`}
	case req.GetTimeoutSeconds() < 0:
		cause = apierrors.Cause{
			Type: "FieldValueInvalid", Field: "timeoutSeconds", Message: "Invalid value: must not be negative",
		}
	default:
		return nil
	}
	return validation.InvalidOptions("ListOptions", []apierrors.Cause{cause})
}

// maxSelector is how long a selector may be, in bytes: as long as the header of a request over REST, which has it.
const maxSelector = 64 << 10

// selectors parses selectors and refuses fields that cannot be selected by. Nil selects everything.
func (r *Registry) selectors(label, field string) (labels.Selector, fields.Selector, error) {
	if n := max(len(label), len(field)); n > maxSelector {
		return nil, nil, apierrors.New(apierrors.BadRequest, "a selector of %d bytes: %d are the most", n, maxSelector)
	}
	var l labels.Selector
	if label != "" {
		var err error
		if l, err = labels.Parse(label); err != nil {
			return nil, nil, apierrors.New(apierrors.BadRequest, "%s", validation.Shorten(err.Error()))
		}
	}
	if field == "" {
		return l, nil, nil
	}
	f, err := fields.ParseSelector(field)
	if err != nil {
		return nil, nil, apierrors.New(apierrors.BadRequest, "%s", validation.Shorten(err.Error()))
	}
	f, err = f.Transform(func(name, value string) (string, string, error) {
		stored, err := r.selectable(name)
		return stored, value, err
	})
	if err != nil {
		return nil, nil, err
	}
	return l, f, nil
}

func (r *Registry) selectable(name string) (string, error) {
	switch name {
	case "metadata.name", "metadata.namespace":
		return name, nil
	}
	stored, ok := name, true
	if r.view != nil && r.view.Field != nil {
		stored, ok = r.view.Field(name)
	}
	if ok && r.strategy.Field != nil {
		_, ok = r.strategy.Field(r.strategy.Kind.New(), stored)
	} else {
		ok = false
	}
	if !ok && r.strategy.Field == nil {
		return "", apierrors.New(apierrors.BadRequest,
			`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, name)
	}
	if !ok {
		return "", apierrors.New(apierrors.BadRequest, "field label not supported: %s", name)
	}
	return stored, nil
}
