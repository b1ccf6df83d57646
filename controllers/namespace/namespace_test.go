package namespace_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/namespace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
}

func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t)}
		w.c = w.server.Admin()
		c, err := namespace.New(namespace.Config{Client: w.server.Controller("namespace")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		w.server.Namespaces(t, "ns", "other")
		f(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func (w *world) must(_ any, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) pod(name, node string, finalizers ...string) {
	w.Helper()
	w.must(w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:     &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}}))
}

func (w *world) deleteNamespace() {
	w.Helper()
	w.must(w.c.Namespaces.Delete(w.Context(), &metav1.DeleteRequest{Name: "ns"}))
}

// namespace returns it, nil when it is gone.
func (w *world) namespace() *corev1.Namespace {
	w.Helper()
	synctest.Wait()
	ns, err := w.c.Namespaces.Get(w.Context(), &metav1.GetRequest{Name: "ns"})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	w.must(nil, err)
	return ns
}

func (w *world) condition(kind string) string {
	w.Helper()
	for _, c := range w.namespace().GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c.GetStatus() + " " + c.GetReason() + ": " + c.GetMessage()
		}
	}
	return ""
}

// spec: NS-1
func TestEmptiesInOrderAndGracefully(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("a", "n1")
		w.must(w.c.ConfigMaps.Create(w.Context(),
			&corev1rpc.CreateConfigMapRequest{Namespace: "ns", Object: &corev1.ConfigMap{
				Metadata: &metav1.ObjectMeta{Name: "cm"},
			}}))
		w.must(w.c.ConfigMaps.Create(w.Context(), &corev1rpc.CreateConfigMapRequest{Namespace: "other",
			Object: &corev1.ConfigMap{
				Metadata: &metav1.ObjectMeta{Name: "cm"},
			}}))
		w.deleteNamespace()
		time.Sleep(time.Hour) // the pod's node is out of reach
		p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "a"})
		w.must(nil, err)
		if p.GetMetadata().GetDeletionTimestamp() == nil || p.GetMetadata().GetDeletionGracePeriodSeconds() != 30 {
			w.Errorf("the pod is %v", p.GetMetadata())
		}
		w.must(w.c.ConfigMaps.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "cm"}))
		got := w.condition("NamespaceContentRemaining")
		if got != "True SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances" {
			w.Errorf("condition %q", got)
		}
		// The node's agent finishes the pod; everything else follows within seconds.
		zero := int64(0)
		w.must(w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "a", GracePeriodSeconds: &zero}))
		time.Sleep(6 * time.Second)
		if ns := w.namespace(); ns != nil {
			w.Errorf("still there: %v", ns)
		}
		if _, err := w.c.ConfigMaps.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "cm"}); !apierrors.Is(err,
			apierrors.NotFound) {
			w.Errorf("the config map: %v", err)
		}
		w.must(w.c.ConfigMaps.Get(w.Context(), &metav1.GetRequest{Namespace: "other", Name: "cm"}))
	})
}

// spec: NS-1
func TestNeverForces(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("a", "n1")
		w.pod("held", "", "example.com/hold")
		w.server.React(func(_ context.Context, method string, req any) error {
			switch r := req.(type) {
			case *metav1.DeleteRequest:
				if method != corev1rpc.Namespaces_Delete_FullMethodName {
					w.Errorf("%s %v", method, r)
				}
			case *metav1.DeleteCollectionRequest:
				if r.GracePeriodSeconds != nil || r.GetOptions() != nil {
					w.Errorf("%s %v", method, r)
				}
			}
			return nil
		})
		w.deleteNamespace()
		time.Sleep(10 * time.Minute)
		if w.namespace() == nil {
			w.Fatal("removed with pods in it")
		}
		got := w.condition("NamespaceFinalizersRemaining")
		if got != "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: "+
			"example.com/hold in 1 resource instances" {
			w.Errorf("condition %q", got)
		}
		// It waits without writing the same conditions over and over, and without deleting again.
		writes := w.server.Calls(corev1rpc.Namespaces_UpdateStatus_FullMethodName)
		deletes := w.server.Calls(corev1rpc.Pods_DeleteCollection_FullMethodName)
		time.Sleep(10 * time.Minute)
		if n := w.server.Calls(corev1rpc.Namespaces_UpdateStatus_FullMethodName); n != writes {
			w.Errorf("%d more status writes", n-writes)
		}
		if n := w.server.Calls(corev1rpc.Pods_DeleteCollection_FullMethodName); n != deletes {
			w.Errorf("%d more deletions", n-deletes)
		}
	})
}

// spec: NS-1
func TestFailuresAreReportedAndRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("a", "")
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_DeleteCollection_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "the server is tired")
			}
			return nil
		})
		w.deleteNamespace()
		time.Sleep(time.Minute)
		got := w.condition("NamespaceDeletionContentFailure")
		if !strings.HasPrefix(got, "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: ") ||
			!strings.Contains(got, "tired") {
			w.Errorf("condition %q", got)
		}
		w.server.React(nil)
		time.Sleep(time.Minute)
		if w.namespace() != nil {
			w.Error("still there")
		}
	})
}

func TestLeavesOthersAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("a", "n1")
		time.Sleep(time.Minute)
		if w.server.Calls(corev1rpc.Pods_DeleteCollection_FullMethodName) != 0 {
			w.Error("emptied a namespace that nobody deleted")
		}
	})
}
