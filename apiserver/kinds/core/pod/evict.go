package pod

import (
	"context"
	"slices"
	"strconv"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod/eviction"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/disruption"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

// An eviction is a deletion that a budget may forbid: Evict calls Delete with an evicting in the context, where remove
// finds it, and has the budget counted down in the transaction that marks the pod.
type evicting struct {
	// refused is true when the rules of deletion refused the last attempt. A conflict that is not theirs says that
	// others wrote the budget each time.
	refused bool
	// budget is the name of the budget by which the pod was judged last; empty for none.
	budget string
}

type evictingKey struct{}

// evictionIn returns the eviction that a deletion is a part of, nil for none.
func evictionIn(ctx context.Context) *evicting {
	e, _ := ctx.Value(evictingKey{}).(*evicting)
	return e
}

// Evict serves Pods.Evict.
func (s *service) Evict(ctx context.Context, req *corev1rpc.EvictPodRequest) (*metav1.Status, error) {
	del, err := deletionOf(req)
	if err != nil {
		return nil, err
	}
	release, err := s.pods.await(ctx, del.GetNamespace(), del.GetName())
	if err != nil {
		return nil, err
	}
	defer release()
	e := &evicting{}
	_, err = s.Backend.Delete(context.WithValue(ctx, evictingKey{}, e), del)
	if apierrors.Is(err, apierrors.Conflict) && !e.refused && e.budget != "" {
		return nil, eviction.Lagging(e.budget)
	}
	if err != nil {
		return nil, err
	}
	return success(), nil
}

// deletionOf returns the deletion that an eviction asks for.
func deletionOf(req *corev1rpc.EvictPodRequest) (*metav1.DeleteRequest, error) {
	m, opts := req.GetObject().GetMetadata(), req.GetObject().GetDeleteOptions()
	del := &metav1.DeleteRequest{
		Namespace: req.GetNamespace(), Name: req.GetName(), Options: opts, DryRun: req.GetDryRun(),
	}
	if del.Namespace == "" {
		del.Namespace = m.GetNamespace()
	}
	if del.Name == "" {
		del.Name = m.GetName()
	}
	switch {
	case del.Namespace == "" || del.Name == "":
		return nil, apierrors.New(apierrors.BadRequest, "an eviction needs the namespace and the name of a pod")
	case m.GetName() != "" && m.GetName() != del.Name:
		return nil, apierrors.New(apierrors.BadRequest, "name in URL does not match name in Eviction object")
	case m.GetNamespace() != "" && m.GetNamespace() != del.Namespace:
		return nil, apierrors.New(apierrors.BadRequest,
			"the namespace of the provided object does not match the namespace sent on the request")
	case len(opts.GetDryRun()) > 0 && len(del.DryRun) > 0 && !slices.Equal(opts.GetDryRun(), del.DryRun):
		return nil, apierrors.New(apierrors.BadRequest, "Non-matching dry-run options in request and content: %v and %v",
			del.DryRun, opts.GetDryRun())
	}
	causes := validation.WriteOptions(object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	})
	if len(causes) > 0 {
		return nil, validation.InvalidOptions("CreateOptions", causes)
	}
	return del, nil
}

// evicted makes the deletion of live an eviction: r.Object gets condition DisruptionTarget, and the transaction
// compares the budget, and counts it down. r.Unchanged becomes false unless all of that is so already.
func (p *Pods) evicted(ctx context.Context, e *evicting, live *corev1.Pod, r *registry.Removal) error {
	v, err := p.judge(ctx, live)
	e.budget = v.Budget.GetMetadata().GetName()
	if err != nil {
		return err
	}
	if v.Budget != nil {
		key := store.Key{Kind: policyv1.PodDisruptionBudgetKind, Namespace: live.Metadata.Namespace, Name: e.budget}
		at, err := strconv.ParseInt(v.Budget.GetMetadata().GetResourceVersion(), 10, 64)
		if err != nil {
			return err
		}
		if v.Next == nil {
			r.Guards = append(r.Guards, store.Guard{Key: key, Condition: store.AtRevision, Revision: at})
		} else {
			r.Ops = append(r.Ops, store.Op{Key: key, Object: v.Next, Expect: at})
		}
	}
	if r.Gone {
		return nil
	}
	c := &corev1.PodCondition{
		Type: disruption.Target, Status: "True", Reason: disruption.ByEviction, Message: "Eviction API: evicting",
		LastTransitionTime: p.now(),
	}
	was := condition(live, c.Type)
	if was.GetStatus() == c.Status {
		if r.Unchanged && was.GetReason() == c.Reason && was.GetMessage() == c.Message {
			return nil
		}
		c.LastTransitionTime = was.GetLastTransitionTime()
	}
	next := r.Object.(*corev1.Pod).Shallow()
	next.Metadata = next.Metadata.Shallow()
	if next.Status = next.Status.Shallow(); next.Status == nil {
		next.Status = &corev1.PodStatus{}
	}
	next.Status.Conditions = append(slices.DeleteFunc(slices.Clone(next.Status.Conditions),
		func(o *corev1.PodCondition) bool { return o == was }), c)
	r.Object, r.Unchanged = next, false
	return nil
}

// judge asks the budgets of the pod's namespace, as they are now.
func (p *Pods) judge(ctx context.Context, live *corev1.Pod) (eviction.Verdict, error) {
	if eviction.Exempt(live) {
		return eviction.Verdict{}, nil
	}
	budgets, err := p.budgets(ctx, live.GetMetadata().GetNamespace(), "")
	if err != nil {
		return eviction.Verdict{}, err
	}
	return eviction.Judge(live, budgets, p.deps.Clock.Now())
}

// budgets returns all budgets of a namespace, not older than rv asks for.
func (p *Pods) budgets(ctx context.Context, namespace, rv string) ([]*policyv1.PodDisruptionBudget, error) {
	all, err := p.deps.Store.List(ctx, policyv1.PodDisruptionBudgetKind,
		store.ListOptions{Namespace: namespace, ResourceVersion: rv})
	if err != nil {
		return nil, err
	}
	out := make([]*policyv1.PodDisruptionBudget, 0, len(all.Objects))
	for _, o := range all.Objects {
		if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
			out = append(out, b)
		}
	}
	return out, nil
}

// await waits until the evictions before this one that count down the same budget are over, and returns what lets the
// next one begin. Who would only lose the race for the budget again and again does not take part in it, so that a
// storm of evictions takes the time that their transactions take. It is no part of what makes them right: it goes by
// what the cache has of the pod and the budget, and by the evictions of this server.
func (p *Pods) await(ctx context.Context, namespace, name string) (release func(), err error) {
	free := func() {}
	o, err := p.deps.Store.Get(ctx, store.Key{Kind: corev1.PodKind, Namespace: namespace, Name: name}, "0")
	if apierrors.Is(err, apierrors.NotFound) {
		return free, nil // as far as the cache knows
	}
	if err != nil {
		return nil, err
	}
	live, ok := o.(*corev1.Pod)
	if !ok || eviction.Exempt(live) {
		return free, nil
	}
	budgets, err := p.budgets(ctx, namespace, "0")
	if err != nil {
		return nil, err
	}
	for _, b := range budgets {
		if disruption.Selects(b, live.GetMetadata().GetLabels()) {
			return p.queues.enter(ctx, namespace, b.GetMetadata().GetName())
		}
	}
	return free, nil
}
