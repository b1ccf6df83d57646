package namespace

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// Content is a kind of object that lives in namespaces.
type Content struct {
	kind *object.Kind
	list func(ctx context.Context, namespace string) (object.List, error)
	// begin begins the graceful deletion of all objects in a namespace.
	begin func(ctx context.Context, namespace string) error
}

// of makes a Content of a kind's service.
func of(s *service.Service, conn grpc.ClientConnInterface) Content {
	method := func(name string) string { return "/" + s.Desc.ServiceName + "/" + name }
	return Content{
		kind: s.Kind,
		list: func(ctx context.Context, namespace string) (object.List, error) {
			found := s.Kind.NewList(nil, nil)
			return found, conn.Invoke(ctx, method("List"), &metav1.ListRequest{Namespace: namespace}, found)
		},
		begin: func(ctx context.Context, namespace string) error {
			req := &metav1.DeleteCollectionRequest{Namespace: namespace}
			return conn.Invoke(ctx, method("DeleteCollection"), req, s.Kind.NewList(nil, nil))
		},
	}
}

// DefaultContent is every namespaced kind that the server keeps objects of. Pods come first and are gone before the
// others are begun with: programs may need their configuration until they have stopped. Events come last: there may
// be new ones about the rest.
func DefaultContent(c *client.Client) []Content {
	var all []Content
	for _, s := range services.All() {
		if s.Kind.Namespaced && s.Stores() {
			all = append(all, of(s, c.Conn()))
		}
	}
	place := map[*object.Kind]int{corev1.PodKind: -1, corev1.EventKind: 1}
	slices.SortStableFunc(all, func(a, b Content) int { return place[a.kind] - place[b.kind] })
	return all
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
