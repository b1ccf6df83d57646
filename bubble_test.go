package monoplane_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

// start starts a cluster without listeners on simulated nodes. The end of the test stops it, and fails if anybody has
// changed an object of the store in place.
func start(t *testing.T, cfg monoplane.Config) *monoplane.Cluster {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	if cfg.Runtime == nil {
		cfg.Runtime = monoplane.FakeRuntime()
	}
	cfg.NodeName = "node"
	c, err := monoplane.Start(t.Context(), cfg.OnMutation(func(err error) { t.Error(err) }))
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

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Name: "main", Image: "host", Command: []string{"sleep", "1000000"},
		}}},
	}
}

func create(t *testing.T, c *client.Client, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "default", Object: p})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// waitFor watches one pod until done says so. A nil pod means that it is gone.
func waitFor(ctx context.Context, c *client.Client, name string, done func(*corev1.Pod) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	if _, err := stream.Header(); err != nil { // the watch begins with the state as it is when it is accepted
		return err
	}
	if _, err := c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: name}); apierrors.Is(err,
		apierrors.NotFound) && done(nil) {
		return nil
	}
	for {
		batch, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, ev := range batch.GetEvents() {
			p := ev.GetObject()
			if ev.GetType() == "DELETED" {
				p = nil
			}
			if done(p) {
				return nil
			}
		}
	}
}

func running(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Running" }

func gone(p *corev1.Pod) bool { return p == nil }

func remove(t *testing.T, c *client.Client, name string, grace *int64) *corev1.Pod {
	t.Helper()
	p, err := c.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: name,
		GracePeriodSeconds: grace})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A whole cluster, real etcd and an agent included, lives in virtual time: a pod is created, runs, ignores the stop
// signal for its grace of 30 s and is gone; another one, whose node was deleted, is failed and removed by PodGC after
// its quarantine and not before; a third one runs on through all of it.
//
// spec: DEL-1, DEL-7, GC-1, LIFE-1, NODE-4
func TestClusterInVirtualTime(t *testing.T) {
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{})
		api := c.Client()

		stubborn := newPod("stubborn")
		stubborn.Metadata.Annotations = map[string]string{"fake.monoplane.dev/ignore-term": "true"}
		create(t, api, stubborn)
		calm := create(t, api, newPod("calm"))
		for _, name := range []string{"stubborn", "calm"} {
			if err := waitFor(t.Context(), api, name, running); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		p := remove(t, api, "stubborn", nil)
		if got := p.GetMetadata().GetDeletionGracePeriodSeconds(); got != 30 {
			t.Errorf("deletionGracePeriodSeconds = %d, want 30", got)
		}
		if err := waitFor(t.Context(), api, "stubborn", gone); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 30*time.Second || took > 33*time.Second {
			t.Errorf("the deletion took %v of virtual time, want 30 s", took)
		}

		orphan(t, api)

		p, err := api.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "calm"})
		if err != nil {
			t.Fatal(err)
		}
		if p.GetMetadata().GetUid() != calm.GetMetadata().GetUid() || !running(p) ||
			p.GetMetadata().GetDeletionTimestamp() != nil {
			t.Errorf("the pod that nobody deleted is %v", p)
		}
	})
	t.Logf("took %v of real time", time.Since(real))
}

// orphan binds a pod to a node, deletes the node and waits until PodGC has removed the pod.
func orphan(t *testing.T, c *client.Client) {
	t.Helper()
	_, err := c.Nodes.Create(t.Context(),
		&corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "lost"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := newPod("orphan")
	p.Spec.NodeName = "lost"
	create(t, c, p)
	if _, err := c.Nodes.Delete(t.Context(), &metav1.DeleteRequest{Name: "lost"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	failed := false
	err = waitFor(t.Context(), c, "orphan", func(p *corev1.Pod) bool {
		for _, cond := range p.GetStatus().GetConditions() {
			failed = failed || p.GetStatus().GetPhase() == "Failed" && cond.GetType() == "DisruptionTarget" &&
				cond.GetReason() == "DeletionByPodGC"
		}
		return gone(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 40*time.Second || took > 65*time.Second {
		t.Errorf("PodGC took %v of virtual time, want the quarantine of 40 s and at most a period of 20 s", took)
	}
	if !failed {
		t.Error("the orphan was not failed by PodGC before it was removed")
	}
}

// Fifty clusters live in one process without touching each other.
func TestFiftyClusters(t *testing.T) {
	clusters := 50
	if testing.Short() { // more than run at once
		clusters = 10
	}
	var g errgroup.Group
	g.SetLimit(8)
	for i := range clusters {
		dir := t.TempDir()
		g.Go(func() error {
			c, err := monoplane.Start(t.Context(), monoplane.Config{
				DataDir: dir, Runtime: monoplane.FakeRuntime(), NodeName: "node", UnsafeNoFsync: true,
			}.OnMutation(func(err error) { t.Error(err) }))
			if err != nil {
				return err
			}
			t.Cleanup(func() {
				if err := c.Stop(context.Background()); err != nil {
					t.Errorf("stop: %v", err)
				}
			})
			if err := c.WaitReady(t.Context()); err != nil {
				return err
			}
			name := fmt.Sprintf("pod-%d", i)
			if _, err := c.Client().Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "default",
				Object: newPod(name)}); err != nil {
				return err
			}
			if err := waitFor(t.Context(), c.Client(), name, running); err != nil {
				return err
			}
			list, err := c.Client().Pods.List(t.Context(), &metav1.ListRequest{})
			if err == nil && len(list.GetItems()) != 1 {
				err = fmt.Errorf("cluster %d has %d pods, want its own only", i, len(list.GetItems()))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
