package monoplane_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev"
	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/test/etcdtest"
	"monoplane.dev/object"
)

// Of servers that share an etcd, the controllers of one work. When it ends, those of another go on, and each server
// keeps itself among the endpoints of the API.
func TestOneServerLeads(t *testing.T) {
	endpoint := etcdtest.Start(t)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	one := func(name string) *monoplane.Cluster {
		c, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: dirs[name], Runtime: monoplane.FakeRuntime(), NodeName: name, EtcdEndpoints: []string{endpoint},
			LeaderElection: monoplane.LeaderElectionConfig{RetryPeriod: 100 * time.Millisecond}, Listen: "127.0.0.1:0",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
		if err := c.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	holder := func(c *monoplane.Cluster) string {
		t.Helper()
		l, err := c.Client().Leases.Get(t.Context(), &metav1.GetRequest{
			Namespace: "kube-system", Name: "monoplane-controllers"})
		if err != nil {
			t.Fatal(err)
		}
		return l.GetSpec().GetHolderIdentity()
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for begin := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("after a minute: %s", what)
			}
		}
	}
	first := one("a")
	leads := holder(first)
	keys, err := os.ReadFile(filepath.Join(dirs["a"], "secrets.key")) // Secrets are read by both
	if err == nil {
		err = os.WriteFile(filepath.Join(dirs["b"], "secrets.key"), keys, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	second := one("b")
	labels := map[string]string{"app": "web"}
	d, err := first.Client().Deployments.Create(t.Context(),
		&appsv1rpc.CreateDeploymentRequest{Object: &appsv1.Deployment{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: &appsv1.DeploymentSpec{
				Replicas: proto.Int32(4), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: &corev1.PodTemplateSpec{
					Metadata: &metav1.ObjectMeta{Labels: labels},
					Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
				},
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	ready := func(c *monoplane.Cluster, want int32) func() bool {
		return func() bool {
			d, err := c.Client().Deployments.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "web"})
			return err == nil && d.GetStatus().GetReadyReplicas() == want &&
				d.GetStatus().GetObservedGeneration() == d.GetMetadata().GetGeneration()
		}
	}
	wait("the Deployment is not ready", ready(second, 4))
	// There were never more pods than that: nobody else makes any.
	list, err := second.Client().ReplicaSets.List(t.Context(), &metav1.ListRequest{Namespace: "default"})
	if err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].GetStatus().GetReplicas() != 4 {
		t.Errorf("the sets are %v, %v", list, err)
	}
	if got := holder(second); got != leads {
		t.Errorf("%s leads, and %s did", got, leads)
	}
	wait("not both servers are endpoints", func() bool {
		l, err := second.Client().EndpointSlices.List(t.Context(), &metav1.ListRequest{
			Namespace: "default", LabelSelector: "kubernetes.io/service-name=kubernetes"})
		if err != nil {
			t.Fatal(err)
		}
		return len(l.GetItems()) == 2 // one for each port
	})

	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := object.Clone(d)
	wait("the Deployment cannot be scaled", func() bool {
		live, err := second.Client().Deployments.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		next = object.Clone(live)
		next.Spec.Replicas = proto.Int32(7)
		_, err = second.Client().Deployments.Update(t.Context(), &appsv1rpc.UpdateDeploymentRequest{Object: next})
		return !apierrors.Is(err, apierrors.Conflict)
	})
	wait("nobody scales the Deployment", func() bool {
		l, err := second.Client().ReplicaSets.List(t.Context(), &metav1.ListRequest{Namespace: "default"})
		return err == nil && len(l.GetItems()) == 1 && l.GetItems()[0].GetStatus().GetReplicas() == 7
	})
	if got := holder(second); got == leads || got == "" {
		t.Errorf("%q leads, and %q did before", got, leads)
	}
	if err := second.Ready(t.Context()); err != nil {
		t.Error(fmt.Errorf("the server that leads now: %w", err))
	}
}
