package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/resourcequota"
	"monoplane.dev/rules/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*testing.T
	server *apitest.Server
	admin  *client.Client
	stop   func()
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, server: apitest.Start(t)}
	w.admin = w.server.Admin()
	ctl, err := resourcequota.New(resourcequota.Config{Client: w.server.Controller(resourcequota.Declare().Name)})
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ctl.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	w.settle()
	w.must(ctl.Ready())
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// settle waits until everything has had its effect.
func (w *world) settle() { time.Sleep(time.Second) }

func (w *world) quota(name string, hard map[string]string, scopes ...string) {
	w.Helper()
	q := &corev1.ResourceQuota{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.ResourceQuotaSpec{Hard: map[string]*metav1.Quantity{}, Scopes: scopes}}
	for name, most := range hard {
		q.Spec.Hard[name] = &metav1.Quantity{String_: most}
	}
	_, err := w.admin.ResourceQuotas.Create(w.Context(), &corev1rpc.CreateResourceQuotaRequest{Object: q})
	w.must(err)
}

// used expects what is used of a quota, once everything has had its effect.
func (w *world) used(name, want string) string {
	w.Helper()
	w.settle()
	q, err := w.admin.ResourceQuotas.Get(w.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
	w.must(err)
	used, hard := quota.UsageOf(q.GetStatus().GetUsed()), quota.UsageOf(q.GetStatus().GetHard())
	if got := used.Named(used.Names()); got != want || !hard.Equal(quota.UsageOf(q.GetSpec().GetHard())) {
		w.Errorf("used of %s: %s, want %s; of %v", name, got, want, q.GetStatus().GetHard())
	}
	return q.GetMetadata().GetResourceVersion()
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	p, err := w.admin.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.PodSpec{NodeName: "n1", Containers: []*corev1.Container{{
			Name: "main", Image: "host", Command: []string{"x"}, Resources: &corev1.ResourceRequirements{
				Requests: map[string]*metav1.Quantity{"cpu": {String_: "100m"}},
			},
		}}},
	}})
	w.must(err)
	return p
}

func (w *world) phase(p *corev1.Pod, phase string) {
	w.Helper()
	m := p.GetMetadata()
	_, err := w.server.Agent("n1").Pods.UpdateStatus(w.Context(), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Uid: m.Uid},
		Status:   &corev1.PodStatus{Phase: phase},
	}})
	w.must(err)
}

// The status says what is used, whatever happens to objects and quotas, and is written only when it changes.
// spec: OBJ-2
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		first := w.pod("a")
		w.quota("q", map[string]string{"pods": "5", "count/pods": "9", "requests.cpu": "2", "secrets": "3",
			"count/deployments.apps": "1"})
		w.quota("best", map[string]string{"pods": "1"}, "BestEffort")
		none := "count/deployments.apps=0,count/pods=%d,pods=%d,requests.cpu=%s,secrets=%d"
		w.used("q", fmt.Sprintf(none, 1, 1, "100m", 0))
		second := w.pod("b")
		w.used("q", fmt.Sprintf(none, 2, 2, "200m", 0))
		w.used("best", "pods=0")
		_, err := w.admin.Secrets.Create(t.Context(), &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{
			Metadata: &metav1.ObjectMeta{Name: "s", Namespace: "default"}}})
		w.must(err)
		w.used("q", fmt.Sprintf(none, 2, 2, "200m", 1))

		// What has ended is there, and takes nothing.
		w.phase(first, "Running")
		w.phase(first, "Succeeded")
		w.used("q", fmt.Sprintf(none, 2, 1, "100m", 1))

		// Nor does what should be gone by now.
		_, err = w.admin.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "b",
			GracePeriodSeconds: proto.Int64(30)})
		w.must(err)
		w.used("q", fmt.Sprintf(none, 2, 1, "100m", 1))
		time.Sleep(2*time.Minute + 20*time.Second)
		revision := w.used("q", fmt.Sprintf(none, 2, 0, "0", 1))
		time.Sleep(time.Hour)
		if now := w.used("q", fmt.Sprintf(none, 2, 0, "0", 1)); now != revision {
			t.Errorf("the status was written again, from %s to %s, for nothing new", revision, now)
		}
		w.phase(second, "Failed")
		_, err = w.server.Agent("n1").Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "b",
			GracePeriodSeconds: proto.Int64(0), Options: &metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{Uid: &second.Metadata.Uid}}})
		w.must(err)
		w.used("q", fmt.Sprintf(none, 1, 0, "0", 1))

		// Another limit, another count.
		q, err := w.admin.ResourceQuotas.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "q"})
		w.must(err)
		q = proto.CloneOf(q)
		q.Spec.Hard = map[string]*metav1.Quantity{"count/pods": {String_: "1"}, "configmaps": {String_: "1"}}
		_, err = w.admin.ResourceQuotas.Update(t.Context(), &corev1rpc.UpdateResourceQuotaRequest{Object: q})
		w.must(err)
		w.used("q", "configmaps=0,count/pods=1")
		// A kind is watched from when a quota counts it.
		_, err = w.admin.ConfigMaps.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Name: "c", Namespace: "default"}}})
		w.must(err)
		w.used("q", "configmaps=1,count/pods=1")
		// And the watch of a kind that none counts any more has ended.
		before := w.server.Calls("/monoplane.core.v1.Secrets/List")
		_, err = w.admin.Secrets.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "s"})
		w.must(err)
		w.settle()
		if n := w.server.Calls("/monoplane.core.v1.Secrets/List"); n != before {
			t.Errorf("the secrets were listed %d times for nobody", n-before)
		}
		w.stop()
	})
}
