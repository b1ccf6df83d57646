package pod

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/internal/intern"
	"monoplane.dev/object"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/precondition"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// bind assigns a pod to a node, once and for ever (LIFE-2, SCHED-3, DEL-11). The pod and its Scheduled event
// are one transaction, which compares that the pod is as it was judged and the node as it was seen: what
// metadata and target say of uid and resourceVersion holds in that very transaction.
func (p *Pods) bind(ctx context.Context, req *corev1rpc.BindPodRequest) (*metav1.Status, error) {
	b := req.GetObject()
	opts := object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}
	causes := append(validation.WriteOptions(opts), ValidateBinding(b)...)
	if len(causes) > 0 {
		return nil, apierrors.NewInvalid(corev1.BindingKind, b.GetMetadata().GetName(), causes)
	}
	key, err := bindKey(req)
	if err != nil {
		return nil, err
	}
	decide := func(live object.Object) (*store.Txn, error) { return p.bound(ctx, key, live, b, opts) }
	if len(opts.DryRun) > 0 {
		live, err := p.deps.Store.Get(ctx, key, "")
		if err != nil {
			return nil, err
		}
		if _, err := decide(live); err != nil {
			return nil, err
		}
		return success(), nil
	}
	_, err = p.deps.Store.Mutate(ctx, key, decide)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		return nil, apierrors.NewConflict(corev1.PodKind, key.Name, "%v", conflict)
	}
	if err != nil {
		return nil, err
	}
	return success(), nil
}

// bindingOfPod is what a conflict is about: the subresource, not the pod.
var bindingOfPod = &object.Kind{Version: "v1", Kind: "Binding", Plural: "pods/binding"}

func bindKey(req *corev1rpc.BindPodRequest) (store.Key, error) {
	m := req.GetObject().GetMetadata()
	key := store.Key{Kind: corev1.PodKind, Namespace: req.GetNamespace(), Name: req.GetName()}
	if key.Namespace == "" {
		key.Namespace = m.GetNamespace()
	}
	if key.Name == "" {
		key.Name = m.GetName()
	}
	switch {
	case key.Namespace == "" || key.Name == "":
		return key, apierrors.New(apierrors.BadRequest, "a binding needs the namespace and the name of a pod")
	case m.GetName() != "" && m.GetName() != key.Name:
		return key, apierrors.New(apierrors.BadRequest,
			"the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), key.Name)
	case m.GetNamespace() != "" && m.GetNamespace() != key.Namespace:
		return key, apierrors.New(apierrors.BadRequest,
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	return key, nil
}

// target returns the node as the transaction will compare it. The cache will do: when it was behind, the
// comparison fails and the binding is judged again.
func (p *Pods) target(ctx context.Context, t *corev1.ObjectReference) (object.Object, store.Guard, error) {
	key := nodeKeyOf(t.GetName())
	node, err := p.meant(ctx, key, t, "0")
	if apierrors.Is(err, apierrors.NotFound) || apierrors.Is(err, apierrors.Conflict) {
		// What the caller has seen may be newer than the cache.
		node, err = p.meant(ctx, key, t, "")
	}
	if err != nil {
		return nil, store.Guard{}, err
	}
	rev, err := strconv.ParseInt(node.GetMetadata().GetResourceVersion(), 10, 64)
	return node, store.Guard{Key: key, Condition: store.AtRevision, Revision: rev}, err
}

// meant returns the node if it is the one that the binding means.
func (p *Pods) meant(ctx context.Context, key store.Key, t *corev1.ObjectReference, rv string) (object.Object, error) {
	node, err := p.deps.Store.Get(ctx, key, rv)
	if err != nil {
		return nil, err
	}
	return node, precondition.Named(t.GetUid(), t.GetResourceVersion()).Check(corev1.NodeKind, node.GetMetadata())
}

// bound judges one attempt.
func (p *Pods) bound(
	ctx context.Context, key store.Key, o object.Object, b *corev1.Binding, opts object.WriteOptions,
) (*store.Txn, error) {
	live, _ := o.(*corev1.Pod)
	if live == nil {
		return nil, apierrors.NewNotFound(corev1.PodKind, key.Name)
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(bindingOfPod, key.Name, format, args...)
	}
	m, id := live.GetMetadata(), auth.From(ctx)
	uid := b.GetMetadata().GetUid()
	if uid == "" && id.Component() {
		return nil, apierrors.NewForbidden(corev1.PodKind, key.Name, "%s must name the pod's uid in metadata.uid", id.Name)
	}
	if err := precondition.Named(uid, b.GetMetadata().GetResourceVersion()).Check(corev1.PodKind, m); err != nil {
		return nil, err
	}
	switch {
	case m.GetDeletionTimestamp() != nil:
		return nil, conflict("pod %s is being deleted, cannot be assigned to a host", key.Name)
	case live.GetSpec().GetNodeName() != "":
		return nil, conflict("pod %s is already assigned to node %q", key.Name, live.GetSpec().GetNodeName())
	case len(live.GetSpec().GetSchedulingGates()) > 0:
		return nil, conflict("pod %s has non-empty .spec.schedulingGates", key.Name)
	case phase.Terminal(live):
		return nil, conflict("pod %s has already ended, cannot be assigned to a host", key.Name)
	}
	rev, err := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	node, guard, err := p.target(ctx, b.GetTarget())
	if err != nil {
		return nil, err
	}
	next := p.assigned(live, b, node)
	event, err := p.scheduled(live, node.GetMetadata().GetName(), binder(live, id, opts.FieldManager))
	if err != nil {
		return nil, err
	}
	return &store.Txn{
		Ops: []store.Op{
			{Key: key, Object: next, Expect: rev},
			{Key: store.Key{Kind: corev1.EventKind, Namespace: key.Namespace, Name: event.Metadata.Name}, Object: event},
		},
		Guards: []store.Guard{guard},
	}, nil
}

// topology are the labels of its node that a pod gets, as Kubernetes' admission (PodTopologyLabels) copies them.
var topology = []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone"}

// place writes into the metadata of a pod, whose maps are the caller's, what it has of its node: the key of the
// machine, and where that is. Without a node it has no key, and what labels it has are its own.
func place(pod, node *metav1.ObjectMeta) {
	nodekey.Set(pod, nodekey.Of(node))
	for _, label := range topology {
		if value, ok := node.GetLabels()[label]; ok {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[label] = value
		}
	}
}

// with returns a map of its own with what both have, the second one's where they differ.
func with(m, add map[string]string) map[string]string {
	m = maps.Clone(m)
	if m == nil && len(add) > 0 {
		m = make(map[string]string, len(add))
	}
	maps.Copy(m, add)
	return m
}

// assigned returns live bound to node. What does not change is shared with live.
func (p *Pods) assigned(live *corev1.Pod, b *corev1.Binding, node object.Object) *corev1.Pod {
	m := live.GetMetadata().Shallow()
	m.Annotations = with(m.Annotations, b.GetMetadata().GetAnnotations())
	m.Labels = with(m.Labels, b.GetMetadata().GetLabels())
	place(m, node.GetMetadata())
	m.Annotations = intern.Map(p.deps.Store.Parts(), m.Annotations)
	m.Labels = intern.Map(p.deps.Store.Parts(), m.Labels)
	spec := live.GetSpec().Shallow()
	spec.NodeName = node.GetMetadata().GetName()
	spec = intern.Message(p.deps.Store.Parts(), spec)
	status := live.GetStatus().Shallow()
	if status == nil {
		status = &corev1.PodStatus{Phase: phase.Pending}
	}
	status.NominatedNodeName = "" // where room was made for it, which is past
	status.Conditions = slices.Clone(status.Conditions)
	scheduled := &corev1.PodCondition{
		Type: "PodScheduled", Status: "True", LastTransitionTime: p.now(), ObservedGeneration: m.Generation,
	}
	for i, c := range status.Conditions {
		if c.GetType() == scheduled.Type {
			status.Conditions[i] = scheduled
			scheduled = nil
			break
		}
	}
	if scheduled != nil {
		status.Conditions = append(status.Conditions, scheduled)
	}
	return &corev1.Pod{Metadata: m, Spec: spec, Status: status}
}

// binder is who the event says has bound a pod. The scheduler does that by the profile whose name the pod gives, which
// its other events bear; anybody else is who it says it is.
func binder(o *corev1.Pod, id auth.Identity, manager string) string {
	switch {
	case id.Class == auth.Scheduler:
		return o.GetSpec().GetSchedulerName()
	case manager != "":
		return manager
	default:
		return id.Name
	}
}

// scheduled is the event that goes with a binding (design decision 9), as the binder reports it.
func (p *Pods) scheduled(o *corev1.Pod, node, binder string) (*corev1.Event, error) {
	var suffix [8]byte
	if _, err := io.ReadFull(p.deps.Rand, suffix[:]); err != nil {
		return nil, err
	}
	uid, err := uuid.NewRandomFromReader(p.deps.Rand)
	if err != nil {
		return nil, err
	}
	now := p.deps.Clock.Now()
	m := o.GetMetadata()
	event := &corev1.Event{
		Metadata: &metav1.ObjectMeta{
			Name: m.GetName() + "." + hex.EncodeToString(suffix[:]), Namespace: m.GetNamespace(),
			Uid: uid.String(), CreationTimestamp: value.Time(now),
		},
		InvolvedObject: &corev1.ObjectReference{
			Kind: "Pod", ApiVersion: "v1", Namespace: m.GetNamespace(), Name: m.GetName(), Uid: m.GetUid(),
			ResourceVersion: m.GetResourceVersion(),
		},
		Reason:             "Scheduled",
		Message:            fmt.Sprintf("Successfully assigned %s/%s to %s", m.GetNamespace(), m.GetName(), node),
		Source:             &corev1.EventSource{},
		Type:               "Normal",
		EventTime:          value.MicroTime(now),
		Action:             "Binding",
		ReportingComponent: binder,
		ReportingInstance:  binder,
	}
	p.deps.Store.Share(event, nil)
	return event, nil
}

func success() *metav1.Status { return &metav1.Status{Status: "Success", Code: 201} }
