// Package pod is what is special about pods: how they are created, updated, bound, deleted and shown, and who
// may do which of it (spec: OBJ-10, DEL, LIFE-2, LIFE-10, LIFE-11, PRIO-2, CLI-3).
//
// The rules of deletion are in package deletion; this package gives them the live pod and the identity, and
// carries out what they decide. Defaults and
// validation of what templates of pods have too are in package podspec.
package pod

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/scheduling/priority"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Pods makes the strategy and the service of pods.
type Pods struct {
	deps   registry.Deps
	audit  *auth.Audit
	rights *auth.Authorizer
	valid  recent[*corev1.PodSpec]
	// queues are those of evictions.
	queues queues
}

// New returns the pods of one server.
func New(deps registry.Deps, audit *auth.Audit, rights *auth.Authorizer) *Pods {
	return &Pods{deps: deps, audit: audit, rights: rights}
}

// Strategy returns the strategy.
func (p *Pods) Strategy() *registry.Strategy {
	return registry.Typed[*corev1.Pod]{
		Kind:       corev1.PodKind,
		Spec:       func(o *corev1.Pod) proto.Message { return o.GetSpec() },
		DefaultNew: Default,
		Admit: func(ctx context.Context, o *corev1.Pod) error {
			CompleteNew(o)
			return p.admit(ctx, o)
		},
		Validate: p.validate,
		Warn: func(next, live *corev1.Pod) validation.Warnings {
			if live != nil { // Few change pods by hand.
				return nil
			}
			return podspec.WarningsOfPod(next)
		},
		Guards: p.sameMachine,
		Main: registry.TypedUpdateRules[*corev1.Pod]{
			Apply: applyMain, Authorize: authorizeMain, Validate: ValidateUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.Pod]{
			"status": {
				Keeps: registry.Owners,
				Apply: applyStatus, Authorize: p.authorizeStatus, Validate: ValidateStatusUpdate,
			},
			"resize": {
				Keeps: registry.AllMetadata,
				Apply: applyResize, Authorize: p.authorizeResize, Validate: ValidateResize,
			},

			"ephemeralcontainers": {Keeps: registry.AllMetadata, Apply: applyEphemeral, Validate: ValidateEphemeral},
		},
		Delete:  p.remove,
		MayRead: mayRead,
		Fields:  fields(),
		Indexes: []string{"spec.nodeName"},
		Table:   Table{},
		Share:   share,
	}.Strategy()
}

// validate checks a new pod. Pods of one template share their spec, which is checked once.
func (p *Pods) validate(o *corev1.Pod) []apierrors.Cause {
	spec := o.GetSpec()
	if spec != nil && p.valid.has(spec) {
		return ValidateWithSpec(o)
	}
	causes := Validate(o)
	if spec != nil && len(causes) == 0 {
		p.valid.add(spec)
	}
	return causes
}

// admit readies a new pod: nothing has happened to it yet.
func (p *Pods) admit(ctx context.Context, o *corev1.Pod) error {
	if err := p.admitMirror(ctx, o); err != nil {
		return err
	}
	if err := p.account(ctx, o); err != nil {
		return err
	}
	node, err := p.machine(ctx, o.Spec.NodeName)
	if err != nil {
		return err
	}
	place(o.Metadata, node)
	if err := p.prioritize(ctx, o); err != nil {
		return err
	}
	if err := p.class(ctx, o); err != nil {
		return err
	}
	for _, c := range o.Status.Conditions { // SchedulingGated
		c.LastTransitionTime, c.ObservedGeneration = o.Metadata.CreationTimestamp, o.Metadata.Generation
	}
	return nil
}

// machine returns the metadata of a node, for a pod that is created bound; nil where there is no such node.
func (p *Pods) machine(ctx context.Context, node string) (*metav1.ObjectMeta, error) {
	if node == "" {
		return nil, nil
	}
	n, err := p.deps.Store.Get(ctx, nodeKeyOf(node), "")
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return n.GetMetadata(), nil
}

// sameMachine sees to it that a pod that is created bound has the key of the machine whose node it is (NODE-7): the
// node is as it was when the key was compared.
func (p *Pods) sameMachine(ctx context.Context, o *corev1.Pod) ([]store.Guard, error) {
	name := o.GetSpec().GetNodeName()
	if name == "" {
		return nil, nil
	}
	guard, machine := store.Guard{Key: nodeKeyOf(name), Condition: store.Absent}, ""
	n, err := p.deps.Store.Get(ctx, guard.Key, "")
	switch {
	case err == nil:
		machine, guard.Condition = nodekey.Of(n.GetMetadata()), store.AtRevision
		if guard.Revision, err = strconv.ParseInt(n.GetMetadata().GetResourceVersion(), 10, 64); err != nil {
			return nil, err
		}
	case !apierrors.Is(err, apierrors.NotFound):
		return nil, err
	}
	if machine != nodekey.Of(o.Metadata) {
		return nil, apierrors.NewConflict(corev1.PodKind, o.Metadata.GetName(),
			"node %q has just come to another machine; please try again", name)
	}
	return []store.Guard{guard}, nil
}

func nodeKeyOf(node string) store.Key { return store.Key{Kind: corev1.NodeKind, Name: node} }

// applyMain: writes to the pod never change its status (OBJ-5).
func applyMain(asked, live *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
	Default(next)
	tolerateAbsence(next.Spec)
	priority.Keep(next, live)
	keepAccess(next.Spec, live.Spec)
	next.Status = live.Status
	return next
}

// authorizeMain overrules changes of what only the server writes.
func authorizeMain(_ context.Context, _ *registry.Update, next, live *corev1.Pod) error {
	nodekey.Keep(next.Metadata, live.Metadata)
	return nil
}

// mayRead shows an agent the pods of its own node only.
func mayRead(ctx context.Context, o *corev1.Pod) error {
	return auth.OwnNode(auth.From(ctx), o.GetSpec().GetNodeName(), `pods "`+o.GetMetadata().GetName()+`"`)
}

func condition(o *corev1.Pod, name string) *corev1.PodCondition {
	for _, c := range o.GetStatus().GetConditions() {
		if c.GetType() == name {
			return c
		}
	}
	return nil
}

// now is the time as objects carry it.
func (p *Pods) now() *metav1.Time { return value.Time(p.deps.Clock.Now()) }
