package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// conditions says what a namespace waits for, in the words of Kubernetes.
func conditions(r *remains) []*corev1.NamespaceCondition {
	discovery := &corev1.NamespaceCondition{
		Type: "NamespaceDeletionDiscoveryFailure", Status: "False",
		Reason: "ResourcesDiscovered", Message: "All resources successfully discovered",
	}
	parsing := &corev1.NamespaceCondition{
		Type: "NamespaceDeletionGroupVersionParsingFailure", Status: "False",
		Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed",
	}
	failure := &corev1.NamespaceCondition{
		Type: "NamespaceDeletionContentFailure", Status: "False",
		Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization",
	}
	if len(r.errs) > 0 {
		var texts []string
		for _, err := range r.errs {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		failure.Status, failure.Reason = "True", "ContentDeletionFailed"
		failure.Message = fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(texts),
			strings.Join(texts, ", "))
	}
	content := &corev1.NamespaceCondition{
		Type: "NamespaceContentRemaining", Status: "False",
		Reason: "ContentRemoved", Message: "All content successfully removed",
	}
	if len(r.byKind) > 0 {
		var texts []string
		for _, k := range r.byKind {
			// The dot after a resource of the core group is upstream's.
			texts = append(texts, fmt.Sprintf("%s.%s has %d resource instances", k.kind.Plural, k.kind.Group, k.count))
		}
		slices.Sort(texts)
		content.Status, content.Reason = "True", "SomeResourcesRemain"
		content.Message = "Some resources are remaining: " + strings.Join(texts, ", ")
	}
	finalizers := &corev1.NamespaceCondition{
		Type: "NamespaceFinalizersRemaining", Status: "False",
		Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished",
	}
	if len(r.byFinalizer) > 0 {
		var texts []string
		for f, n := range r.byFinalizer {
			texts = append(texts, fmt.Sprintf("%s in %d resource instances", f, n))
		}
		slices.Sort(texts)
		finalizers.Status, finalizers.Reason = "True", "SomeFinalizersRemain"
		finalizers.Message = "Some content in the namespace has finalizers remaining: " + strings.Join(texts, ", ")
	}
	return []*corev1.NamespaceCondition{discovery, parsing, failure, content, finalizers}
}

// report writes the conditions when they have changed, and returns the namespace as it is then; nil when it is gone.
// A namespace that was empty at once is not worth a write.
func (c *Controller) report(ctx context.Context, ns *corev1.Namespace, r *remains) (*corev1.Namespace, error) {
	if len(ns.GetStatus().GetConditions()) == 0 && r.total() == 0 && len(r.errs) == 0 {
		return ns, nil
	}
	n := object.Clone(ns)
	if n.Status == nil {
		n.Status = &corev1.NamespaceStatus{}
	}
	changed := false
	for _, want := range conditions(r) {
		want.LastTransitionTime = value.Time(time.Now())
		i := slices.IndexFunc(n.Status.Conditions, func(h *corev1.NamespaceCondition) bool {
			return h.GetType() ==
				want.GetType()
		})
		if i < 0 {
			n.Status.Conditions = append(n.Status.Conditions, want)
			changed = true
			continue
		}
		have := n.Status.Conditions[i]
		if have.GetStatus() == want.GetStatus() && have.GetReason() == want.GetReason() &&
			have.GetMessage() == want.GetMessage() {
			continue
		}
		if have.GetStatus() == want.GetStatus() {
			want.LastTransitionTime = have.GetLastTransitionTime()
		}
		n.Status.Conditions[i] = want
		changed = true
	}
	if !changed {
		return ns, nil
	}
	out, err := c.cfg.Client.Namespaces.UpdateStatus(ctx, &corev1rpc.UpdateNamespaceRequest{
		Name: ns.GetMetadata().GetName(), Object: n, FieldManager: fieldManager,
	})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	return out, err
}
