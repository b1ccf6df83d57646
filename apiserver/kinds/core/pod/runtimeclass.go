package pod

import (
	"context"
	"maps"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/wire"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	nodev1 "monoplane.dev/api/node/v1"
)

// class gives a new pod what its runtime class says: the overhead, and where it can run. Classes are looked up in the
// cache, as creating pods is the most frequent thing that a server does: what writes classes waits until the cache has
// them.
func (p *Pods) class(ctx context.Context, o *corev1.Pod) error {
	if o.Spec.RuntimeClassName == nil {
		return ApplyRuntimeClass(o, nil)
	}
	name := o.Spec.GetRuntimeClassName()
	key := store.Key{Kind: nodev1.RuntimeClassKind, Name: name}
	class, err := p.deps.Store.Get(ctx, key, "0")
	if apierrors.Is(err, apierrors.NotFound) {
		// Another server of the same etcd may have created it.
		class, err = p.deps.Store.Get(ctx, key, "")
	}
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		return refusedByClass(o, "there is no runtime class %q", name)
	case err != nil:
		return err
	}
	return ApplyRuntimeClass(o, class.(*nodev1.RuntimeClass))
}

// ApplyRuntimeClass carries a class over to a pod; nil for a pod that names none. It refuses a pod that states another
// overhead, or that must not run where the class must.
func ApplyRuntimeClass(o *corev1.Pod, class *nodev1.RuntimeClass) error {
	s := o.Spec
	if class.GetOverhead() == nil {
		if len(s.Overhead) > 0 {
			return refusedByClass(o, "spec.overhead must not be set: no runtime class gives it to the pod")
		}
	} else {
		given := object.Clone(class.Overhead)
		if len(s.Overhead) > 0 && !validation.Equal(given, &nodev1.Overhead{PodFixed: s.Overhead}) {
			return refusedByClass(o, "spec.overhead must not be set to anything but the overhead of runtime class %q",
				class.Metadata.Name)
		}
		s.Overhead = given.PodFixed
	}
	for key, value := range class.GetScheduling().GetNodeSelector() {
		if have, ok := s.NodeSelector[key]; ok && have != value {
			return refusedByClass(o, "spec.nodeSelector[%s] is %q, but pods of runtime class %q run on nodes with %q",
				key, have, class.Metadata.Name, value)
		}
	}
	if s.NodeSelector == nil {
		s.NodeSelector = maps.Clone(class.GetScheduling().GetNodeSelector())
	} else {
		maps.Copy(s.NodeSelector, class.GetScheduling().GetNodeSelector())
	}
	if class.GetScheduling() != nil {
		s.Tolerations = mergeTolerations(s.Tolerations, class.Scheduling.Tolerations)
	}
	return nil
}

func refusedByClass(o *corev1.Pod, format string, args ...any) error {
	return apierrors.NewForbidden(corev1.PodKind, o.GetMetadata().GetName(), "pod rejected: "+format, args...)
}

// mergeTolerations returns the tolerations of both lists, in order, without those that another one covers. Of equal
// ones the first stays. What is taken from more is copied.
func mergeTolerations(own, more []*corev1.Toleration) []*corev1.Toleration {
	all := append([]*corev1.Toleration(nil), own...)
	for _, t := range more {
		all = append(all, object.Clone(t))
	}
	var merged []*corev1.Toleration
next:
	for i, t := range all {
		for _, other := range merged {
			if covers(other, t) {
				continue next
			}
		}
		for _, other := range all[i+1:] {
			if !wire.Equal(t, other) && covers(other, t) {
				continue next
			}
		}
		merged = append(merged, t)
	}
	return merged
}

// covers says whether every taint that b tolerates is tolerated by a, and at least as long.
func covers(a, b *corev1.Toleration) bool {
	if wire.Equal(a, b) {
		return true
	}
	exists := a.GetOperator() == validation.OpExists
	switch {
	case a.GetKey() != b.GetKey() && (a.GetKey() != "" || !exists):
		return false
	case a.GetEffect() != b.GetEffect() && a.GetEffect() != "":
		return false
	case a.GetEffect() == "NoExecute" && a.TolerationSeconds != nil &&
		(b.TolerationSeconds == nil || b.GetTolerationSeconds() > a.GetTolerationSeconds()):
		return false
	}
	equal := a.GetOperator() == "" || a.GetOperator() == "Equal"
	return exists || equal && b.GetOperator() == "Equal" && a.GetValue() == b.GetValue()
}
