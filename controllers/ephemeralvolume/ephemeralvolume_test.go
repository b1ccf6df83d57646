package ephemeralvolume_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/ephemeralvolume"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spec() *corev1.PersistentVolumeClaimSpec {
	return &corev1.PersistentVolumeClaimSpec{AccessModes: []string{"ReadWriteOnce"},
		Resources: &corev1.VolumeResourceRequirements{
			Requests: map[string]*metav1.Quantity{"storage": {String_: "1Gi"}},
		}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "ns"}, Spec: &corev1.PodSpec{
		Containers: []*corev1.Container{{Name: "c", Image: "host"}},
		Volumes: []*corev1.Volume{{Name: "scratch", VolumeSource: &corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				Metadata: &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: spec(),
			}},
		}}},
	}}
}

// The claims of ephemeral volumes come with their pod and go with it. spec: VOL-1, DEL-11
func TestClaimsComeAndGoWithTheirPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		c := server.Admin()
		server.Namespaces(t, "ns")
		create := func(p *corev1.Pod) *corev1.Pod {
			made, err := c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		claim := func(name string) *corev1.PersistentVolumeClaim {
			time.Sleep(time.Minute)
			got, err := c.PersistentVolumeClaims.Get(t.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
			if err != nil && !apierrors.Is(err, apierrors.NotFound) {
				t.Fatal(err)
			}
			if err != nil {
				return nil
			}
			return got
		}
		remove := func(name string) {
			zero := int64(0)
			if _, err := c.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name,
				Options: &metav1.DeleteOptions{GracePeriodSeconds: &zero}}); err != nil {
				t.Fatal(err)
			}
		}
		// unprotect does what the controller of volumes does for a claim that no pod uses.
		unprotect := func(o *corev1.PersistentVolumeClaim) {
			o = proto.CloneOf(o)
			o.Metadata.Finalizers = nil
			_, err := c.PersistentVolumeClaims.Update(t.Context(), &corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o})
			if err != nil {
				t.Fatal(err)
			}
		}

		before := create(pod("before"))
		shared := controller.NewShared(server.Controller(controller.SharedRole().Name), nil)
		ctl, err := ephemeralvolume.New(ephemeralvolume.Config{
			Client: server.Controller("ephemeral-volume"), Shared: shared,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, shared, ctl) }()

		got := claim("before-scratch")
		if got == nil || storage.PodOf(got).GetUid() != before.Metadata.Uid || got.Metadata.Labels["a"] != "b" ||
			got.Spec.Resources.Requests["storage"].String_ != "1Gi" || ctl.Ready() != nil {
			t.Fatalf("claim %v", got)
		}

		// A successor of the same name waits until the claim of its predecessor is gone.
		remove("before")
		if got = claim("before-scratch"); got.GetMetadata().GetDeletionTimestamp() == nil {
			t.Errorf("the claim of a pod that is gone stays: %v", got)
		}
		after := create(pod("before"))
		unprotect(got)
		if got = claim("before-scratch"); storage.PodOf(got).GetUid() != after.Metadata.Uid {
			t.Errorf("the claim of the successor: %v", got)
		}

		// What was not made for a pod stays, whatever its name.
		_, err = c.PersistentVolumeClaims.Create(t.Context(), &corev1rpc.CreatePersistentVolumeClaimRequest{
			Object: &corev1.PersistentVolumeClaim{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "other-scratch"},
				Spec: spec()}})
		if err != nil {
			t.Fatal(err)
		}
		create(pod("other"))
		if got = claim("other-scratch"); got == nil || storage.PodOf(got) != nil {
			t.Errorf("another's claim: %v", got)
		}
		remove("other")
		if got = claim("other-scratch"); got.GetMetadata().GetDeletionTimestamp() != nil {
			t.Errorf("another's claim was deleted with a pod: %v", got)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
