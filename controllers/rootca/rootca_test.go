package rootca_test

import (
	"context"
	"errors"
	"sync/atomic"
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
	"monoplane.dev/controllers/rootca"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// published returns the ConfigMap of a namespace, nil for none, once the controller has had time.
func published(t *testing.T, c *client.Client, namespace string) *corev1.ConfigMap {
	t.Helper()
	time.Sleep(time.Minute)
	m, err := c.ConfigMaps.Get(t.Context(), &metav1.GetRequest{Namespace: namespace, Name: "kube-root-ca.crt"})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		t.Fatal(err)
	}
	return m
}

func TestPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		c := server.Admin()
		server.Namespaces(t, "before")
		var ca atomic.Value
		ca.Store("first")
		ctl, err := rootca.New(rootca.Config{
			Client: server.Controller("rootca"), RootCA: func() []byte { return []byte(ca.Load().(string)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ctl.Run(ctx) }()
		has := func(namespace, want string) {
			t.Helper()
			m := published(t, c, namespace)
			if len(m.GetData()) != 1 || m.GetData()["ca.crt"] != want || len(m.GetBinaryData()) != 0 ||
				m.GetMetadata().GetAnnotations()["kubernetes.io/description"] == "" {
				t.Errorf("namespace %s has %v, expected %q", namespace, m, want)
			}
		}
		change := func(f func(m *corev1.ConfigMap)) {
			t.Helper()
			m := object.Clone(published(t, c, "after"))
			f(m)
			_, err := c.ConfigMaps.Update(t.Context(), &corev1rpc.UpdateConfigMapRequest{
				Namespace: "after", Name: m.Metadata.Name, Object: m,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		has("before", "first")
		server.Namespaces(t, "after")
		has("after", "first")
		if ctl.Ready() != nil {
			t.Error("the controller is not ready")
		}
		change(func(m *corev1.ConfigMap) { m.Data["ca.crt"] = "false" })
		has("after", "first")
		change(func(m *corev1.ConfigMap) {
			m.Data["more"], m.Metadata.Annotations = "x", nil
			m.BinaryData = map[string][]byte{"b": {1}}
		})
		has("after", "first")
		frozen := true
		change(func(m *corev1.ConfigMap) { m.Data["ca.crt"], m.Immutable = "false", &frozen })
		has("after", "first")
		// What others add to the metadata is theirs.
		change(func(m *corev1.ConfigMap) { m.Metadata.Labels = map[string]string{"a": "b"} })
		if published(t, c, "after").GetMetadata().GetLabels()["a"] != "b" {
			t.Error("a label was taken away")
		}
		fails := 2
		server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.ConfigMaps_Create_FullMethodName && fails > 0 {
				fails--
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		remove := func() {
			t.Helper()
			if _, err := c.ConfigMaps.Delete(t.Context(), &metav1.DeleteRequest{
				Namespace: "after", Name: "kube-root-ca.crt",
			}); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		has("after", "first")
		ca.Store("second")
		time.Sleep(time.Hour)
		has("before", "second")
		has("after", "second")
		if _, err := c.Namespaces.Delete(t.Context(), &metav1.DeleteRequest{Name: "after"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		remove()
		if published(t, c, "after") != nil {
			t.Error("made one in a terminating namespace")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Without a certificate the ConfigMap is there all the same: pods wait for it.
func TestWithoutCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		ctl, err := rootca.New(rootca.Config{Client: server.Controller("rootca")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ctl.Run(ctx) }()
		if text, ok := published(t, server.Admin(), "default").GetData()["ca.crt"]; !ok || text != "" {
			t.Errorf("the certificate is %q, found %v", text, ok)
		}
		cancel()
		<-done
	})
}
