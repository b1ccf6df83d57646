// Package admission is the rules that namespaces have for what is written in them: LimitRanges (package limits),
// standards of security (package security) and ResourceQuotas (package charge). The registry asks it for every write
// of every kind.
//
// It guarantees that a namespace without such rules costs a write a look into a map, and no memory. A rule that was
// created, changed or deleted through this server counts for whatever is written through it after the answer.
package admission

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"

	"monoplane.dev/apiserver/admission/charge"
	"monoplane.dev/apiserver/admission/limits"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// Rules are the rules of all namespaces of a store.
type Rules struct {
	ranges  *byNamespace[*corev1.LimitRange]
	quotas  *byNamespace[*corev1.ResourceQuota]
	charges *charge.Ledger
	// standards are those of the security of pods.
	standards *security.Standards
}

// Config is what New needs.
type Config struct {
	// Store has the rules and the objects. Required.
	Store *store.Store
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Security is what the operator says about the security of pods. Its Pods is the store's.
	Security security.Config
}

var _ registry.Admission = (*Rules)(nil)

// New returns the rules that a store has. It follows them until the store is closed.
func New(cfg Config) (*Rules, error) {
	s, c := cfg.Store, cfg.Clock
	if c == nil {
		c = clock.RealClock{}
	}
	cfg.Security.Pods = func(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
		all, err := s.List(ctx, corev1.PodKind, store.ListOptions{Namespace: namespace})
		if err != nil {
			return nil, err
		}
		pods := make([]*corev1.Pod, 0, len(all.Objects))
		for _, o := range all.Objects {
			if p, ok := o.(*corev1.Pod); ok {
				pods = append(pods, p)
			}
		}
		return pods, nil
	}
	standards, err := security.New(cfg.Security)
	if err != nil {
		return nil, err
	}
	r := &Rules{
		ranges: &byNamespace[*corev1.LimitRange]{
			same: func(a, b *corev1.LimitRange) bool { return equal(a.GetSpec(), b.GetSpec()) },
		},
		quotas: &byNamespace[*corev1.ResourceQuota]{
			same: func(a, b *corev1.ResourceQuota) bool { return equal(a.GetSpec(), b.GetSpec()) },
		},
		charges: charge.NewLedger(s, c), standards: standards,
	}
	if err := s.Follow(corev1.NamespaceKind, standards.Changed); err != nil {
		return nil, fmt.Errorf("follow the namespaces: %w", err)
	}
	if err := s.Follow(corev1.LimitRangeKind, r.ranges.changed); err != nil {
		return nil, fmt.Errorf("follow the limit ranges: %w", err)
	}
	if err := s.Follow(corev1.ResourceQuotaKind, r.quotaChanged); err != nil {
		return nil, fmt.Errorf("follow the resource quotas: %w", err)
	}
	return r, nil
}

// quotaChanged is told of changes of quotas, one at a time. With the last quota of a namespace goes what its charges
// are judged by.
func (r *Rules) quotaChanged(was, is object.Object) {
	r.quotas.changed(was, is)
	if is != nil {
		return
	}
	if namespace := was.GetMetadata().GetNamespace(); len(r.quotas.of(namespace)) == 0 {
		r.charges.Forget(namespace)
	}
}

// Complete gives containers what the ranges of their namespace say that they get.
func (r *Rules) Complete(_ context.Context, w registry.Write) error {
	if pod, ok := w.Next.(*corev1.Pod); ok && limits.Concerned(w) {
		for _, l := range r.ranges.of(pod.GetMetadata().GetNamespace()) {
			limits.Complete(pod, l)
		}
	}
	return nil
}

// Judge refuses what the ranges and the standards of its namespace do not allow.
func (r *Rules) Judge(ctx context.Context, w registry.Write) error {
	if limits.Concerned(w) {
		for _, l := range r.ranges.of(w.Next.GetMetadata().GetNamespace()) {
			if err := limits.Check(w.Next, l); err != nil {
				return err
			}
		}
	}
	return r.standards.Judge(ctx, w)
}

// Charge sets aside what a write takes of the quotas of its namespace.
func (r *Rules) Charge(ctx context.Context, w registry.Write) (registry.Charge, error) {
	quotas := r.quotas.of(w.Next.GetMetadata().GetNamespace())
	if len(quotas) == 0 {
		return registry.Charge{}, nil
	}
	return r.charges.Charge(ctx, w, func() []*corev1.ResourceQuota {
		return r.quotas.of(w.Next.GetMetadata().GetNamespace())
	})
}
