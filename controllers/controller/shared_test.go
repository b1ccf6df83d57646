package controller_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/controller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All who ask for a kind get one cache, with the indexes that any of them named; what nobody asked for is not read.
func TestSharedCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		server.Namespaces(t, "ns")
		var watched []string
		server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_Watch_FullMethodName || method == corev1rpc.Nodes_Watch_FullMethodName {
				watched = append(watched, method)
			}
			return nil
		})
		for name, owners := range map[string][]*metav1.OwnerReference{
			"managed": {
				{ApiVersion: "v1", Kind: "ConfigMap", Name: "o", Uid: "owner"},
				{ApiVersion: "v1", Kind: "ConfigMap", Name: "m", Uid: "manager", Controller: proto.Bool(true)},
			},
			"free": nil,
		} {
			_, err := server.Admin().Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		api := server.Controller(controller.SharedRole().Name)
		shared, fresh := controller.NewShared(api, nil), controller.NewShared(api, nil)
		pods := controller.Of[*corev1.Pod](shared, controller.ByController, controller.ByNode)
		if controller.Of[*corev1.Pod](shared, controller.ByNamespace, controller.ByNode) != pods {
			t.Error("who asks again gets another cache")
		}
		if err := shared.Ready(); err == nil {
			t.Error("ready before it ran")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- shared.Run(ctx) }()
		if err := controller.WaitForSync(ctx, pods); err != nil || shared.Ready() != nil {
			t.Errorf("synced: %v, ready: %v", err, shared.Ready())
		}
		for _, x := range []struct {
			index, value string
			want         int
		}{
			{controller.ByController, "manager", 1}, {controller.ByController, "owner", 0},
			{controller.ByController, "", 0}, {controller.ByNamespace, "ns", 2}, {controller.ByNode, "", 0},
		} {
			if got := pods.ByIndex(x.index, x.value); len(got) != x.want {
				t.Errorf("%d pods by %s %q, want %d", len(got), x.index, x.value, x.want)
			}
		}
		if len(watched) != 1 || watched[0] != corev1rpc.Pods_Watch_FullMethodName {
			t.Errorf("watched %v", watched)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for what, ask := range map[string]func(){
			"a cache that nobody will feed was handed out":    func() { controller.Of[*corev1.Node](shared) },
			"pods were found by services":                     func() { controller.Of[*corev1.Pod](shared, controller.ByService) },
			"an index that nobody asked for found nothing":    func() { pods.ByIndex(controller.ByClaim, "ns/c") },
			"a kind that the identity may not read is shared": func() { controller.Of[*corev1.Secret](fresh) },
		} {
			if !panics(ask) {
				t.Error(what)
			}
		}
	})
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// The identity of the shared caches may read, and nothing else.
func TestSharedCachesOnlyRead(t *testing.T) {
	server := apitest.Start(t)
	api := server.Controller(controller.SharedRole().Name)
	_, err := api.Events.Create(t.Context(), &corev1rpc.CreateEventRequest{Namespace: "default", Object: &corev1.Event{}})
	if !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("it may write events: %v", err)
	}
	if _, err := api.Pods.List(t.Context(), &metav1.ListRequest{}); err != nil {
		t.Error(err)
	}
}
