package namespace

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/object"
)

// Content is a kind of object that lives in namespaces.
type Content struct {
	kind *object.Kind
	list func(ctx context.Context, namespace string) (object.List, error)
	// begin begins the graceful deletion of all objects in a namespace.
	begin func(ctx context.Context, namespace string) error
}

// Of makes a Content of a kind's generated client methods.
func Of[L object.List](
	kind *object.Kind,
	list func(context.Context, *metav1.ListRequest, ...grpc.CallOption) (L, error),
	deleteCollection func(context.Context, *metav1.DeleteCollectionRequest, ...grpc.CallOption) (L, error),
) Content {
	return Content{
		kind: kind,
		list: func(ctx context.Context, namespace string) (object.List, error) {
			return list(ctx, &metav1.ListRequest{Namespace: namespace})
		},
		begin: func(ctx context.Context, namespace string) error {
			_, err := deleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: namespace})
			return err
		},
	}
}

// DefaultContent is every namespaced kind that the server has. The first is emptied before the others: programs may
// need their configuration until they have stopped.
func DefaultContent(c *client.Client) []Content {
	return []Content{
		Of(corev1.PodKind, c.Pods.List, c.Pods.DeleteCollection),
		Of(corev1.ConfigMapKind, c.ConfigMaps.List, c.ConfigMaps.DeleteCollection),
		Of(corev1.ServiceAccountKind, c.ServiceAccounts.List, c.ServiceAccounts.DeleteCollection),
		Of(corev1.PersistentVolumeClaimKind, c.PersistentVolumeClaims.List, c.PersistentVolumeClaims.DeleteCollection),
		Of(coordinationv1.LeaseKind, c.Leases.List, c.Leases.DeleteCollection),
		Of(corev1.EventKind, c.Events.List, c.Events.DeleteCollection),
	}
}

// remains is what was found in a namespace after the deletions had begun.
type remains struct {
	byKind      []kindCount
	byFinalizer map[string]int
	errs        []error
}

type kindCount struct {
	kind  *object.Kind
	count int
}

func (r *remains) total() int {
	n := 0
	for _, k := range r.byKind {
		n += k.count
	}
	return n
}

// empty begins the deletion of what is in the namespace and returns what is left. Later kinds wait for the first.
func (c *Controller) empty(ctx context.Context, namespace string) *remains {
	r := &remains{byFinalizer: map[string]int{}}
	for i, content := range c.cfg.Content {
		if err := content.empty(ctx, namespace, r); err != nil {
			r.errs = append(r.errs, err)
		}
		if i == 0 && (r.total() > 0 || len(r.errs) > 0) {
			break
		}
	}
	return r
}

func (k Content) empty(ctx context.Context, namespace string, r *remains) error {
	l, err := k.list(ctx, namespace)
	if err != nil {
		return fmt.Errorf("list %s: %w", k.kind.Resource(), err)
	}
	if untouched(l) > 0 {
		beginErr := k.begin(ctx, namespace)
		if l, err = k.list(ctx, namespace); err != nil {
			return fmt.Errorf("list %s: %w", k.kind.Resource(), err)
		}
		if beginErr != nil {
			err = fmt.Errorf("delete %s: %w", k.kind.Resource(), beginErr)
		}
	}
	if n := l.Len(); n > 0 {
		r.byKind = append(r.byKind, kindCount{k.kind, n})
	}
	for i := range l.Len() {
		for _, f := range l.At(i).GetMetadata().GetFinalizers() {
			r.byFinalizer[f]++
		}
	}
	return err
}

// untouched counts the objects whose deletion has not begun.
func untouched(l object.List) int {
	n := 0
	for i := range l.Len() {
		if l.At(i).GetMetadata().GetDeletionTimestamp() == nil {
			n++
		}
	}
	return n
}
