package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// benchSchedule measures the way from create to bound, through the whole API, on simulated nodes.
func benchSchedule(ctx context.Context, e *env) (err error) {
	nodes, pods := e.size(1000), e.size(3000)
	c, err := startCluster(ctx, e, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	list, err := c.Client().Pods.List(ctx, &metav1.ListRequest{Limit: 1})
	if err != nil {
		return err
	}
	stream, err := c.SharedClient().Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", ResourceVersion: list.GetMetadata().GetResourceVersion()})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	g.Go(func() error {
		_, err := drive(gctx, 16, pods, func(ctx context.Context, _, i int) error {
			_, err := call(ctx, c.http, "POST", c.podsURL(), podJSON(podName("s", i), ""), 201)
			return err
		})
		return err
	})
	var took time.Duration
	g.Go(func() error {
		bound := map[string]bool{}
		for len(bound) < pods {
			batch, err := stream.Recv()
			if err != nil {
				return err
			}
			for _, ev := range batch.GetEvents() {
				bind(bound, ev)
			}
		}
		took = time.Since(begin)
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	rate := float64(pods) / took.Seconds()
	e.print(row{
		name: fmt.Sprintf("create (REST) to bound, %d nodes, %d plain pods", nodes, pods), measured: perSecond(rate),
		target: ">= 2000/s", met: rate >= 2000,
	})
	return nil
}

func bind(bound map[string]bool, ev *corev1.PodEvent) {
	if ev.GetObject().GetSpec().GetNodeName() != "" {
		bound[ev.GetObject().GetMetadata().GetName()] = true
	}
}
