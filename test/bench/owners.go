package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/controllers/garbagecollector/graph"
	"monoplane.dev/object"
)

// benchOwners measures how long the dependents of a deleted owner take to be gone, beside as many clients as the
// collector has workers that delete as many objects of nobody; and what the collector holds of an object.
func benchOwners(ctx context.Context, e *env) (err error) {
	cluster, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop(context.WithoutCancel(ctx))) }()
	c := cluster.Client()
	const clients = 20
	n := e.size(10000)
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		if err := createMaps(ctx, c, "free", n, nil); err != nil {
			return err
		}
		limit, err := drive(ctx, clients, n, func(ctx context.Context, _, i int) error {
			_, err := c.ConfigMaps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: podName("free", i)})
			return err
		})
		if err != nil {
			return err
		}
		took, err := ownerDeleted(ctx, c, policy, n)
		if err != nil {
			return err
		}
		got := float64(n) / took.Seconds()
		e.print(row{name: fmt.Sprintf("owner deleted, %d dependents %s", n, whatBecomes[policy]),
			measured: fmt.Sprintf("%.1f s", took.Seconds()),
			limit:    fmt.Sprintf("%d clients, deleting %.1f s", clients, float64(n)/limit), ratio: got / limit})
	}
	each := graphBytes(n)
	e.print(row{name: fmt.Sprintf("memory of an object with an owner, of %d", n),
		measured: fmt.Sprintf("%.0f B", each), target: "<= 300 B", met: each <= 300})
	return theirCollector(ctx, e, n)
}

// whatBecomes says what a deletion does with the dependents.
var whatBecomes = map[string]string{
	"Background": "gone", "Foreground": "gone, and then it", "Orphan": "orphaned, and it gone",
}

// theirCollector measures the same beside Kubernetes' own collector, each as processes that know nothing of this one.
func theirCollector(ctx context.Context, e *env, n int) error {
	if e.kubecontrollers == "" {
		return nil
	}
	return e.beside(ctx, []string{"garbage-collector"}, []string{"--runtime", "fake", "--log-level", "error"},
		func(ctx context.Context, s *side, note report) error {
			c, err := s.client(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			// The first shows that the collector works.
			if _, err := ownerDeleted(ctx, c, "Background", 1); err != nil {
				return err
			}
			for _, policy := range []string{"Background", "Foreground", "Orphan"} {
				used, err := s.cpu()
				if err != nil {
					return err
				}
				took, err := ownerDeleted(ctx, c, policy, n)
				if err != nil {
					return err
				}
				after, err := s.cpu()
				if err != nil {
					return err
				}
				note("  the same as a process, "+whatBecomes[policy], timing{took: took, cpu: after - used,
					text: fmt.Sprintf("%.1f s", took.Seconds())})
				if err := deleteMaps(ctx, c, "owned", n); err != nil {
					return err
				}
			}
			return nil
		})
}

// ownerDeleted makes an owner of n objects, deletes it, and returns how long collecting takes.
func ownerDeleted(ctx context.Context, c *client.Client, policy string, n int) (time.Duration, error) {
	owner, err := c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Namespace: "default",
		Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "owner"}}})
	if err != nil {
		return 0, err
	}
	ref := &metav1.OwnerReference{ApiVersion: "v1", Kind: "ConfigMap", Name: "owner", Uid: owner.GetMetadata().GetUid(),
		Controller: proto.Bool(true), BlockOwnerDeletion: proto.Bool(true)}
	if err := createMaps(ctx, c, "owned", n, []*metav1.OwnerReference{ref}); err != nil {
		return 0, err
	}
	return collect(ctx, c, policy, n)
}

// deleteMaps deletes what createMaps made, as far as it is there.
func deleteMaps(ctx context.Context, c *client.Client, prefix string, n int) error {
	_, err := drive(ctx, 32, n, func(ctx context.Context, _, i int) error {
		_, err := c.ConfigMaps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: podName(prefix, i)})
		if apierrors.Is(err, apierrors.NotFound) {
			return nil
		}
		return err
	})
	return err
}

func createMaps(ctx context.Context, c *client.Client, prefix string, n int, owners []*metav1.OwnerReference) error {
	_, err := drive(ctx, 32, n, func(ctx context.Context, _, i int) error {
		_, err := c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Namespace: "default",
			Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: podName(prefix, i), OwnerReferences: owners}}})
		return err
	})
	return err
}

// collect deletes the owner and returns how long it takes until it is gone and n dependents are, or name it no more.
func collect(ctx context.Context, c *client.Client, policy string, n int) (time.Duration, error) {
	yes := true
	w, err := c.ConfigMaps.Watch(ctx, &metav1.WatchRequest{Namespace: "default", SendInitialEvents: &yes,
		ResourceVersionMatch: "NotOlderThan"})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if _, err := c.ConfigMaps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: "owner",
		PropagationPolicy: &policy}); err != nil {
		return 0, err
	}
	for left, gone := n, false; left > 0 || !gone; {
		batch, err := w.Recv()
		if err != nil {
			return 0, fmt.Errorf("%d of %d dependents are left: %w", left, n, err)
		}
		for _, ev := range batch.GetEvents() {
			m := ev.GetObject().GetMetadata()
			switch kind := object.EventType(ev.GetType()); {
			case kind == object.Deleted && m.GetName() == "owner":
				gone = true
			case kind == object.Deleted, kind == object.Modified && len(m.GetOwnerReferences()) == 0 && m.GetName() != "owner":
				left--
			}
		}
	}
	return time.Since(begin), nil
}

// graphBytes returns what the collector's graph takes for each of n objects with one owner.
func graphBytes(n int) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	g := graph.New()
	for i := range n {
		g.Set(corev1.PodKind, &metav1.ObjectMeta{Namespace: "default", Name: podName("deployment-7d4b9c6f5", i),
			Uid: podName("uid", i), OwnerReferences: []*metav1.OwnerReference{{ApiVersion: "apps/v1", Kind: "ReplicaSet",
				Name: "deployment-7d4b9c6f5", Uid: "owner"}}})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n)
	runtime.KeepAlive(g)
	return each
}
