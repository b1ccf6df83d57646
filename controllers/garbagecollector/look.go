package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/generic"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/garbagecollector/graph"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"
)

// item is an object that is looked at, as a live read has just shown it.
type item struct {
	client *generic.Client
	uid    graph.UID
	// owns says that others name it as their owner.
	owns bool
	meta *metav1.ObjectMeta
}

func (i *item) String() string {
	name := i.meta.GetName()
	if ns := i.meta.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return i.client.Kind().Resource() + " " + name
}

// look looks at one object.
func (c *Controller) look(ctx context.Context, uid graph.UID) (time.Duration, error) {
	known, ok := c.graph.Get(uid)
	if !ok || known.State == graph.Deleting || !known.Owned && known.State == graph.Alive {
		return 0, nil // gone, on its way, or nobody's
	}
	client := c.byName[kindName{known.Kind.APIVersion(), known.Kind.Kind}]
	o, err := client.Get(ctx, known.Namespace, known.Name)
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil // its watch will tell
	}
	if err != nil {
		return 0, fmt.Errorf("read %s %s/%s: %w", known.Kind.Resource(), known.Namespace, known.Name, err)
	}
	i := &item{client: client, uid: uid, owns: known.Owns, meta: o.GetMetadata()}
	if graph.UIDOf(i.meta.GetUid()) != uid {
		return 0, nil
	}
	switch graph.StateOf(i.meta) {
	case graph.Orphaning:
		return 0, c.orphan(ctx, i)
	case graph.Foreground:
		return c.finish(ctx, i)
	case graph.Deleting:
		return 0, nil
	default:
		return c.judge(ctx, i)
	}
}

// owners are the references of an object, by what live reads have shown of them.
type owners struct {
	// solid are there; gone are not; waiting are there, until their dependents are gone.
	solid, gone, waiting []*metav1.OwnerReference
	// unseen says that one is there which no watch has shown yet.
	unseen bool
}

// judge decides on an object that is not being deleted.
func (c *Controller) judge(ctx context.Context, i *item) (time.Duration, error) {
	refs := i.meta.GetOwnerReferences()
	if len(refs) == 0 {
		return 0, nil
	}
	found, ok, err := c.classify(ctx, i, refs)
	if err != nil || !ok {
		return 0, err
	}
	again := time.Duration(0)
	if found.unseen {
		again = unseen
	}
	switch {
	case len(found.solid) > 0 && len(found.gone)+len(found.waiting) == 0:
		return again, nil
	case len(found.solid) > 0:
		// The waiting would wait for ever.
		return again, c.unown(ctx, i, slices.Concat(found.gone, found.waiting))
	case len(found.waiting) > 0 && i.owns:
		return again, c.remove(ctx, i, propagation.Foreground)
	default:
		return again, c.remove(ctx, i, policyOf(i.meta))
	}
}

// classify reads the owners. It is not ok when one of them can never be judged.
func (c *Controller) classify(ctx context.Context, i *item, refs []*metav1.OwnerReference) (owners, bool, error) {
	var found owners
	for _, ref := range refs {
		kind := c.byName[kindName{ref.GetApiVersion(), ref.GetKind()}]
		switch {
		case kind == nil:
			c.invalid(i, "OwnerRefUnknownKind", fmt.Sprintf("ownerRef %s names a kind that is not served; the object is "+
				"never collected", refText(ref)))
			return found, false, nil
		case kind.Kind().Namespaced && i.meta.GetNamespace() == "":
			c.invalid(i, invalidNamespace, fmt.Sprintf("ownerRef %s of a cluster-scoped object names a kind that lives in "+
				"namespaces; the object is never collected", refText(ref)))
			return found, false, nil
		}
		state, there, err := c.read(ctx, kind, i.meta.GetNamespace(), ref)
		switch {
		case err != nil:
			return found, false, err
		case !there:
			found.gone = append(found.gone, ref)
			c.elsewhere(i, ref)
			continue
		case state == graph.Foreground:
			found.waiting = append(found.waiting, ref)
		default:
			found.solid = append(found.solid, ref)
		}
		if _, seen := c.graph.Get(graph.UIDOf(ref.GetUid())); !seen {
			found.unseen = true
		}
	}
	return found, true, nil
}

// read says whether an owner is there, and how far its deletion has come.
func (c *Controller) read(
	ctx context.Context, kind *generic.Client, namespace string, ref *metav1.OwnerReference,
) (state graph.State, there bool, err error) {
	if !kind.Kind().Namespaced {
		namespace = ""
	}
	who := target{kind.Kind(), namespace, ref.GetName(), ref.GetUid()}
	if c.gone.has(who) {
		return graph.Alive, false, nil
	}
	o, err := kind.Get(ctx, namespace, ref.GetName())
	switch {
	case apierrors.Is(err, apierrors.NotFound):
	case err != nil:
		return graph.Alive, false, fmt.Errorf("read the owner %s: %w", refText(ref), err)
	case o.GetMetadata().GetUid() == ref.GetUid():
		return graph.StateOf(o.GetMetadata()), true, nil
	}
	c.gone.add(who)
	return graph.Alive, false, nil
}

const invalidNamespace = "OwnerRefInvalidNamespace"

// elsewhere tells about a reference to an object of another namespace.
func (c *Controller) elsewhere(i *item, ref *metav1.OwnerReference) {
	owner, ok := c.graph.Get(graph.UIDOf(ref.GetUid()))
	if ok && owner.Namespace != "" && owner.Namespace != i.meta.GetNamespace() {
		c.invalid(i, invalidNamespace, fmt.Sprintf("ownerRef %s does not exist in namespace %q", refText(ref),
			i.meta.GetNamespace()))
	}
}

// invalid tells about a reference that can never be to anything.
func (c *Controller) invalid(i *item, reason, note string) {
	c.metrics.invalid.WithLabelValues(reason).Inc()
	kind := i.client.Kind()
	c.events.EventFor(&corev1.ObjectReference{
		ApiVersion: kind.APIVersion(), Kind: kind.Kind, Namespace: i.meta.GetNamespace(), Name: i.meta.GetName(),
		Uid: i.meta.GetUid(),
	}, record.Warning, reason, "GarbageCollecting", note)
}

func refText(ref *metav1.OwnerReference) string {
	return fmt.Sprintf("[%s/%s, name: %s, uid: %s]", ref.GetApiVersion(), ref.GetKind(), ref.GetName(), ref.GetUid())
}

// target is an owner as a dependent names it.
type target struct {
	kind                 *object.Kind
	namespace, name, uid string
}

// absent remembers owners that live reads have not found, so that they are not read for each of many dependents. No
// uid is ever given twice, so what is gone stays gone.
type absent struct {
	mu  sync.Mutex
	all map[target]struct{}
}

// maxAbsent is when everything is forgotten.
const maxAbsent = 500

func (a *absent) has(t target) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.all[t]
	return ok
}

func (a *absent) add(t target) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil || len(a.all) >= maxAbsent {
		a.all = map[target]struct{}{}
	}
	a.all[t] = struct{}{}
}
