package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
	"monoplane.dev/client"
	"monoplane.dev/codec"
)

// benchEvictions measures evictions by 64 clients that one budget counts, while its controller counts it anew. They
// pass one after another, because each takes from what the one before it left; so does their limit, transactions that
// write a pod and the budget.
func benchEvictions(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	if err := fill(ctx, c, "sample", 1); err != nil {
		return err
	}
	answer, err := fetch(ctx, c.http, c.podsURL()+"/"+podName("sample", 0))
	if err != nil {
		return err
	}
	value, err := storedValue(answer)
	if err != nil {
		return err
	}
	raw, err := newRawEtcd(ctx, e, value)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.etcd.Close()) }()

	const clients = 64
	n := e.size(1000)
	limit := func(budget *policyv1.PodDisruptionBudget) (float64, error) {
		stored, err := proto.Marshal(budget)
		if err != nil {
			return 0, err
		}
		prefix := fmt.Sprintf("/evicted/%d/", time.Now().UnixNano())
		return drive(ctx, 1, n, func(ctx context.Context, _, i int) error {
			return raw.put(ctx, fmt.Sprint(prefix, i), putOp([]byte("/budget"), stored))
		})
	}
	for _, way := range []struct {
		name  string
		evict func(ctx context.Context, pod string) error
	}{
		{"gRPC in-process", evictions(c.Client())},
		{"gRPC over TLS", evictions(c.grpc)},
		{"REST", func(ctx context.Context, pod string) error {
			_, err := call(ctx, c.http, http.MethodPost, c.podsURL()+"/"+pod+"/eviction",
				codec.AppendObject(nil, eviction(pod)), http.StatusCreated)
			return err
		}},
	} {
		var budget *policyv1.PodDisruptionBudget
		p, err := paired(5, func(int) (float64, error) {
			b, err := evictable(ctx, c.Client(), n)
			if err != nil {
				return 0, err
			}
			budget = b
			rate, err := drive(ctx, clients, n, func(ctx context.Context, _, i int) error {
				return way.evict(ctx, podName("evicted", i))
			})
			if err != nil {
				return 0, err
			}
			_, err = c.Client().PodDisruptionBudgets.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: "bench"})
			return rate, err
		}, func(int) (float64, error) { return limit(budget) })
		if err != nil {
			return err
		}
		p.cpu = 0 // the pods were made in it, too
		e.atLeast(fmt.Sprintf("evict %d, one budget, %d clients, %s", n, clients, way.name), p, "raw, in turn", 0)
	}
	return nil
}

func eviction(pod string) *policyv1.Eviction {
	return &policyv1.Eviction{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: pod}}
}

func evictions(by *client.Client) func(ctx context.Context, pod string) error {
	return func(ctx context.Context, pod string) error {
		_, err := by.Pods.Evict(ctx, &corev1rpc.EvictPodRequest{Namespace: "default", Name: pod, Object: eviction(pod)})
		return err
	}
}

// evictable makes n pods that count as ready, and a budget that allows the eviction of all of them once it is counted.
// The pods are on no node: they are gone with their eviction, and no agent writes meanwhile.
func evictable(ctx context.Context, c *client.Client, n int) (*policyv1.PodDisruptionBudget, error) {
	_, err := drive(ctx, 64, n, func(ctx context.Context, _, i int) error {
		p := pod(podName("evicted", i), "none")
		p.Metadata.Labels = map[string]string{"app": "evicted"}
		p, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: p})
		if err != nil {
			return err
		}
		p = proto.CloneOf(p)
		p.Status.Phase = "Running"
		p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: "True"}}
		_, err = c.Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Object: p})
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b, err := c.PodDisruptionBudgets.Create(ctx, &policyv1rpc.CreatePodDisruptionBudgetRequest{
		Object: &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "bench"},
			Spec: &policyv1.PodDisruptionBudgetSpec{MinAvailable: &metav1.IntOrString{},
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "evicted"}}},
		},
	})
	if err != nil {
		return nil, err
	}
	w, err := c.PodDisruptionBudgets.Watch(ctx, &metav1.WatchRequest{Namespace: "default",
		ResourceVersion: b.GetMetadata().GetResourceVersion()})
	if err != nil {
		return nil, err
	}
	for {
		batch, err := w.Recv()
		if err != nil {
			return nil, fmt.Errorf("the budget is not counted: %w", err)
		}
		for _, event := range batch.GetEvents() {
			if b := event.GetObject(); b.GetStatus().GetDisruptionsAllowed() == int32(n) {
				return b, nil
			}
		}
	}
}
