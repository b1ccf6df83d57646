package writes_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/internal/writes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who waits sees what was written and removed. A cache that does not follow is an error, and nothing is forgotten by
// that.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		s.Namespaces(t, "ns")
		c := s.Admin()
		seen := cache.New(cache.Config[*corev1.ConfigMap]{Source: cache.Watch(c.ConfigMaps.Watch)})
		m := writes.New(seen)
		create := func(name string) *corev1.ConfigMap {
			t.Helper()
			o, err := c.ConfigMaps.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name}}})
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		remove := func(name string) {
			t.Helper()
			if _, err := c.ConfigMaps.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		first := create("first")
		if err := m.Settle(t.Context(), "owner"); err != nil {
			t.Errorf("of an owner for which nothing was written: %v", err)
		}
		m.Wrote("owner", first)
		m.Wrote("other", first)
		m.Forget("other")
		if err := m.Settle(t.Context(), "other"); err != nil {
			t.Errorf("of an owner that was forgotten: %v", err)
		}
		for range 2 {
			err := m.Settle(t.Context(), "owner")
			if err == nil || !strings.Contains(err.Error(), "configmaps") {
				t.Errorf("with a cache that does not follow: %v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- seen.Run(ctx) }()
		if err := m.Settle(t.Context(), "owner"); err != nil {
			t.Error(err)
		}
		if _, ok := seen.Get("ns", "first"); !ok {
			t.Error("what was written is not in the cache")
		}
		remove("first")
		m.Gone("owner", first)
		second := create("second")
		m.Wrote("owner", second)
		if err := m.Settle(t.Context(), "owner"); err != nil {
			t.Error(err)
		}
		_, there := seen.Get("ns", "first")
		if _, ok := seen.Get("ns", "second"); there || !ok {
			t.Errorf("in the cache: first %t, second %t", there, ok)
		}
		began := time.Now()
		if err := m.Settle(t.Context(), "owner"); err != nil || time.Since(began) > 0 {
			t.Errorf("what has settled is waited for again: %v", err)
		}
		cancel()
		<-done
	})
}
