package apiserver_test

import (
	"testing"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// What the server makes for itself nobody may delete: one by one, as a collection, or as a dry run, with whatever
// options. spec: OBJ-14, PRIO-1
func TestSystemObjectsCannotBeDeleted(t *testing.T) {
	c := start(t)
	admin := c.admin()
	type deleter struct {
		delete     func(*metav1.DeleteRequest) error
		collection func(*metav1.DeleteCollectionRequest) error
	}
	namespaces := deleter{
		func(r *metav1.DeleteRequest) error { return second(admin.Namespaces.Delete(ctx(t), r)) },
		func(r *metav1.DeleteCollectionRequest) error {
			return second(admin.Namespaces.DeleteCollection(ctx(t), r))
		},
	}
	classes := deleter{
		func(r *metav1.DeleteRequest) error { return second(admin.PriorityClasses.Delete(ctx(t), r)) },
		func(r *metav1.DeleteCollectionRequest) error {
			return second(admin.PriorityClasses.DeleteCollection(ctx(t), r))
		},
	}
	for _, x := range []struct {
		by          deleter
		what, text  string
		names       []string
		createOther func(name string) error
		getOther    func(name string) error
	}{
		{
			namespaces, "namespaces", "this namespace may not be deleted",
			[]string{"default", "kube-system", "kube-public", "kube-node-lease"},
			func(name string) error {
				return second(admin.Namespaces.Create(ctx(t), &corev1rpc.CreateNamespaceRequest{
					Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name}}}))
			},
			func(name string) error {
				ns, err := admin.Namespaces.Get(ctx(t), &metav1.GetRequest{Name: name})
				if err == nil && ns.Metadata.DeletionTimestamp != nil {
					t.Errorf("the deletion of namespace %s has begun", name)
				}
				return err
			},
		},
		{
			classes, "priorityclasses.scheduling.k8s.io", "this is a system priority class and cannot be deleted",
			[]string{"system-node-critical", "system-cluster-critical"},
			func(name string) error { return second(createClass(t, admin, newClass(name, 1))) },
			func(name string) error {
				return second(admin.PriorityClasses.Get(ctx(t), &metav1.GetRequest{Name: name}))
			},
		},
	} {
		for _, name := range x.names {
			text := x.what + ` "` + name + `" is forbidden: ` + x.text
			for _, req := range []*metav1.DeleteRequest{
				{Name: name},
				{Name: name, DryRun: []string{"All"}},
				{Name: name, GracePeriodSeconds: ptr(int64(0))},
				{Name: name, PropagationPolicy: ptr("Background")},
				{Name: name, Options: &metav1.DeleteOptions{DryRun: []string{"All"}}},
				{Name: name, Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: ptr("another")}}},
			} {
				refused(t, x.by.delete(req), apierrors.Forbidden, text)
			}
			refused(t, x.by.collection(&metav1.DeleteCollectionRequest{FieldSelector: "metadata.name=" + name}),
				apierrors.Forbidden, text)
		}
		// A collection is refused before anything of it is deleted.
		refused(t, x.createOther("a-user"), "", "")
		for _, dry := range [][]string{nil, {"All"}} {
			refused(t, x.by.collection(&metav1.DeleteCollectionRequest{DryRun: dry}), apierrors.Forbidden, x.text)
		}
		for _, name := range append(x.names, "a-user") {
			refused(t, x.getOther(name), "", "")
		}
		refused(t, x.by.collection(&metav1.DeleteCollectionRequest{FieldSelector: "metadata.name=a-user"}), "", "")
	}
}
