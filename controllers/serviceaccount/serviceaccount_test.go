package serviceaccount_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/serviceaccount"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who waits for the controller to be ready finds the account of the namespace that every cluster has.
func TestReadyWithAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.StartWith(t, apitest.Config{NoAccounts: true})
		ctl, err := serviceaccount.New(serviceaccount.Config{Client: server.Controller("serviceaccount")})
		if err != nil {
			t.Fatal(err)
		}
		var up atomic.Bool
		server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.ServiceAccounts_Create_FullMethodName && !up.Load() {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ctl.Run(ctx) }()
		time.Sleep(time.Minute)
		if ctl.Ready() == nil {
			t.Error("ready without the account of namespace default")
		}
		up.Store(true)
		time.Sleep(time.Hour)
		if err := ctl.Ready(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestDefaultAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.StartWith(t, apitest.Config{NoAccounts: true})
		c := server.Admin()
		has := func(name string) bool {
			time.Sleep(time.Minute)
			_, err := c.ServiceAccounts.Get(t.Context(), &metav1.GetRequest{Namespace: name, Name: "default"})
			if err != nil && !apierrors.Is(err, apierrors.NotFound) {
				t.Fatal(err)
			}
			return err == nil
		}
		server.Namespaces(t, "before")
		ctl, err := serviceaccount.New(serviceaccount.Config{Client: server.Controller("serviceaccount")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ctl.Run(ctx) }()
		if !has("before") {
			t.Error("a namespace that was there has none")
		}
		fails := 2
		server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.ServiceAccounts_Create_FullMethodName && fails > 0 {
				fails--
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		server.Namespaces(t, "after")
		if !has("after") || ctl.Ready() != nil {
			t.Error("a new namespace has none")
		}
		remove := func() {
			if _, err := c.ServiceAccounts.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "after",
				Name: "default"}); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		if !has("after") {
			t.Error("a deleted one did not come back")
		}
		if _, err := c.Namespaces.Delete(t.Context(), &metav1.DeleteRequest{Name: "after"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		remove()
		if has("after") {
			t.Error("made one in a terminating namespace")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
