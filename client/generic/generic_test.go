package generic_test

import (
	"testing"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/generic"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every kind that is stored can be had without its type.
func TestEveryKind(t *testing.T) {
	server := apitest.Start(t)
	conn, n := server.Admin().Conn(), 0
	for _, s := range services.All() {
		if !s.Stores() {
			if _, err := generic.New(s, conn); err == nil && !s.Kind.View {
				t.Errorf("%s is not stored, and has a client", s.Kind.Resource())
			}
			continue
		}
		n++
		c, err := generic.New(s, conn)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.List(t.Context(), &metav1.ListRequest{})
		if err != nil || c.Kind() != s.Kind {
			t.Errorf("%s: %v", s.Kind.Resource(), err)
			continue
		}
		namespace := ""
		if s.Kind.Namespaced {
			namespace = "default"
		}
		if _, err := c.Get(t.Context(), namespace, "none"); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("%s: %v", s.Kind.Resource(), err)
		}
		if err := c.Delete(t.Context(), namespace, "none", nil); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("%s: %v", s.Kind.Resource(), err)
		}
		yes := true
		next, err := c.Watch(t.Context(), &metav1.WatchRequest{SendInitialEvents: &yes,
			ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true})
		if err != nil {
			t.Errorf("%s: %v", s.Kind.Resource(), err)
			continue
		}
		for seen := 0; ; {
			events, err := next()
			if err != nil {
				t.Fatalf("%s: %v", s.Kind.Resource(), err)
			}
			seen += len(events)
			if last := events[len(events)-1]; last.Type == object.Bookmark {
				if seen-1 != l.Len() {
					t.Errorf("%s: watched %d objects of %d", s.Kind.Resource(), seen-1, l.Len())
				}
				break
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d kinds", n)
	}
}

func TestWrites(t *testing.T) {
	server := apitest.Start(t)
	for _, s := range services.All() {
		if s.Kind != corev1.ConfigMapKind {
			continue
		}
		c, err := generic.New(s, server.Admin().Conn())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Admin().ConfigMaps.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{
			Namespace: "default", Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "a"}}}); err != nil {
			t.Fatal(err)
		}
		o, err := c.Patch(t.Context(), &metav1.PatchRequest{Namespace: "default", Name: "a",
			PatchType: "application/merge-patch+json", Patch: []byte(`{"data":{"k":"v"}}`)})
		if err != nil || o.(*corev1.ConfigMap).Data["k"] != "v" {
			t.Errorf("patched: %v, %v", o, err)
		}
		other := "other"
		if err := c.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{Uid: &other}}); !apierrors.Is(err, apierrors.Conflict) {
			t.Errorf("another's uid: %v", err)
		}
		if err := c.Delete(t.Context(), "default", "a", nil); err != nil {
			t.Error(err)
		}
	}
}
