package monoplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev"
	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/object/builtin"
)

// getPod returns a pod, nil when it is gone.
func getPod(t *testing.T, c *client.Client, name string) *corev1.Pod {
	t.Helper()
	p, err := c.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// on returns a pod for one node.
func on(node, name string, tolerations ...*corev1.Toleration) *corev1.Pod {
	p := newPod(name)
	p.Spec.NodeName, p.Spec.Tolerations = node, tolerations
	return p
}

func createRunning(t *testing.T, c *client.Client, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		create(t, c, p)
	}
	for _, p := range pods {
		if err := waitFor(t.Context(), c, p.GetMetadata().GetName(), running); err != nil {
			t.Fatal(err)
		}
	}
}

func restarts(p *corev1.Pod) (n int32) {
	for _, s := range p.GetStatus().GetContainerStatuses() {
		n += s.GetRestartCount()
	}
	return n
}

// The agent of a node that is stopped does nothing any more, and its pods go on; started again it adopts them. Both
// can be asked for twice, and many times.
//
// spec: NODE-1, NODE-2
func TestNodesAreStoppedAndStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 2})
		api := c.Client()
		admin := adminv1rpc.NewAdminClient(api.Conn())
		do := func(stop, want bool) {
			t.Helper()
			var changed bool
			if stop {
				answer, err := admin.StopNode(t.Context(), &adminv1rpc.StopNodeRequest{Name: "node-0"})
				if err != nil {
					t.Fatal(err)
				}
				changed = answer.GetStopped()
			} else {
				answer, err := admin.StartNode(t.Context(), &adminv1rpc.StartNodeRequest{Name: "node-0"})
				if err != nil {
					t.Fatal(err)
				}
				changed = answer.GetStarted()
			}
			if changed != want {
				t.Errorf("stop: %t, changed something: %t", stop, changed)
			}
		}
		renewed := func() time.Time {
			t.Helper()
			l, err := api.Leases.Get(t.Context(), &metav1.GetRequest{Namespace: builtin.NodeLeases, Name: "node-0"})
			if err != nil {
				t.Fatal(err)
			}
			return value.GoMicroTime(l.GetSpec().GetRenewTime())
		}
		createRunning(t, api, on("node-0", "p"))
		uid := getPod(t, api, "p").GetMetadata().GetUid()
		do(false, false)
		for range 3 {
			do(true, true)
			do(true, false)
			silent := renewed()
			create(t, api, on("node-0", "late"))
			time.Sleep(25 * time.Second)
			if !renewed().Equal(silent) {
				t.Error("an agent that was stopped renews its lease")
			}
			if p := getPod(t, api, "late"); p.GetStatus().GetPhase() != "Pending" {
				t.Errorf("an agent that was stopped runs a pod: %v", p.GetStatus())
			}
			do(false, true)
			if err := waitFor(t.Context(), api, "late", running); err != nil {
				t.Fatal(err)
			}
			remove(t, api, "late", nil)
			if err := waitFor(t.Context(), api, "late", gone); err != nil {
				t.Fatal(err)
			}
			if time.Sleep(11 * time.Second); !renewed().After(silent) {
				t.Error("an agent that was started again does not renew its lease")
			}
			if p := getPod(t, api, "p"); p.GetMetadata().GetUid() != uid || restarts(p) != 0 || !running(p) {
				t.Errorf("the pod that was there before is %v", p)
			}
		}
		if _, err := admin.StopNode(t.Context(), &adminv1rpc.StopNodeRequest{Name: "other"}); !apierrors.Is(err,
			apierrors.NotFound) {
			t.Errorf("a node that is not there: %v", err)
		}
		do(true, true)
		if err := c.Ready(t.Context()); err != nil {
			t.Errorf("the cluster is not ready while an agent is stopped: %v", err)
		}
		if err := c.StopPods(context.Background(), nil); err != nil {
			t.Errorf("stop of all pods while an agent is stopped: %v", err)
		}
		if _, err := c.StartNode(t.Context(), "node-0"); !apierrors.Is(err, apierrors.ServiceUnavailable) {
			t.Errorf("a start while the cluster stops: %v", err)
		}
	})
}
