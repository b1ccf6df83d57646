package apitest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/test/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func settings(name string) *corev1rpc.CreateConfigMapRequest {
	return &corev1rpc.CreateConfigMapRequest{Namespace: "default", Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"},
	}}
}

// Calls fail, wait and lose their answers as the test says, and are counted; those that are not allowed never come so
// far.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		c := s.Admin()
		create := func(name string) error {
			_, err := c.ConfigMaps.Create(t.Context(), settings(name))
			return err
		}
		there := func(name string) bool {
			_, err := c.ConfigMaps.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
			return err == nil
		}
		s.React(func(_ context.Context, method string, req any) error {
			if r, ok := req.(*corev1rpc.CreateConfigMapRequest); ok && method == corev1rpc.ConfigMaps_Create_FullMethodName {
				switch r.GetObject().GetMetadata().GetName() {
				case "refused":
					return apierrors.New(apierrors.ServiceUnavailable, "down")
				case "slow":
					time.Sleep(time.Minute)
				}
			}
			return nil
		})
		if err := create("refused"); !apierrors.Is(err, apierrors.ServiceUnavailable) || there("refused") {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		if err := create("slow"); err != nil || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		s.React(nil)
		s.After(func(_ context.Context, _ string, req, answer any) error {
			if m, ok := answer.(*corev1.ConfigMap); ok && m.GetMetadata().GetUid() != "" {
				return apierrors.New(apierrors.ServiceUnavailable, "the connection broke")
			}
			return nil
		})
		err := create("lost")
		s.After(nil)
		if !apierrors.Is(err, apierrors.ServiceUnavailable) || !there("lost") {
			t.Errorf("got %v", err)
		}
		if _, err := s.Scheduler().ConfigMaps.Create(t.Context(), settings("forbidden")); !apierrors.Is(err,
			apierrors.Forbidden) {
			t.Errorf("the scheduler: %v", err)
		}
		if n := s.Calls(corev1rpc.ConfigMaps_Create_FullMethodName); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
}

func next(t *testing.T, w corev1rpc.ConfigMaps_WatchClient) (string, error) {
	t.Helper()
	batch, err := w.Recv()
	var names []string
	for _, e := range batch.GetEvents() {
		names = append(names, e.GetType()+" "+e.GetObject().GetMetadata().GetName())
	}
	return strings.Join(names, ", "), err
}

// Watches that are cut can be resumed, those that have expired cannot; others that begin afterwards see what is there.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		c := s.Admin()
		m, err := c.ConfigMaps.Create(t.Context(), settings("a"))
		if err != nil {
			t.Fatal(err)
		}
		at := m.GetMetadata().GetResourceVersion()
		watch := func() (string, error) {
			w, err := c.ConfigMaps.Watch(t.Context(), &metav1.WatchRequest{Namespace: "default", ResourceVersion: at})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(time.Second)
				s.Cut()
			}()
			return next(t, w)
		}
		if got, err := watch(); !apierrors.Is(err, apierrors.ServiceUnavailable) {
			t.Errorf("got %q, %v; want the cut", got, err)
		}
		if _, err := c.ConfigMaps.Create(t.Context(), settings("b")); err != nil {
			t.Fatal(err)
		}
		if got, err := watch(); got != "ADDED b" {
			t.Errorf("resumed with %q, %v", got, err)
		}
		s.Expire()
		if got, err := watch(); !apierrors.Is(err, apierrors.Expired) {
			t.Errorf("got %q, %v; want Expired", got, err)
		}
		at = ""
		if got, err := watch(); got != "ADDED a, ADDED b" {
			t.Errorf("begun with %q, %v", got, err)
		}
		time.Sleep(time.Minute) // all cuts are over
	})
}

// tb is a test whose errors can be looked at.
type tb struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (t *tb) Error(args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors = append(t.errors, fmt.Sprint(args...))
}

// Who changes what the server holds fails the test at the next change already.
func TestMutation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := &tb{TB: t}
		s := apitest.Start(looked)
		c := s.As(authn.AdminName, authn.AdminsGroup)
		m, err := c.ConfigMaps.Create(t.Context(), settings("victim"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		m.Data["a"] = "2"
		if _, err := c.ConfigMaps.Create(t.Context(), settings("other")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		looked.mu.Lock()
		defer looked.mu.Unlock()
		if len(looked.errors) != 1 || !strings.Contains(looked.errors[0], "configmaps default/victim") ||
			!strings.HasSuffix(looked.errors[0], "data[a]: 1 became 2") {
			t.Errorf("told %q", looked.errors)
		}
	})
}

// A store that the test has opened outlives the servers on it.
func TestServersOnOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := apitest.Start(t)
		if _, err := first.Admin().ConfigMaps.Create(t.Context(), settings("a")); err != nil {
			t.Fatal(err)
		}
		var cfg apitest.Config
		cfg.API.Store = first.Store
		second := apitest.StartWith(t, cfg)
		get := &metav1.GetRequest{Namespace: "default", Name: "a"}
		if _, err := second.Admin().ConfigMaps.Get(t.Context(), get); err != nil {
			t.Error(err)
		}
		second.Stop()
		if _, err := first.Admin().ConfigMaps.Get(t.Context(), get); err != nil {
			t.Error(err)
		}
		if _, err := first.Store.Get(t.Context(), store.Key{Kind: corev1.ConfigMapKind, Namespace: "default", Name: "a"},
			""); err != nil {
			t.Error(err)
		}
	})
}
