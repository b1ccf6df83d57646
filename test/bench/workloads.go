package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
)

// benchWorkloads measures how long what keeps pods takes, on 100 simulated nodes.
func benchWorkloads(ctx context.Context, e *env) error {
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	p, err := startProcess(ctx, e, dir, "--runtime", "fake", "--nodes", "100", "--zones", "3",
		"--log-level", "error") // events of pods that end are still being written when it stops
	if err != nil {
		return err
	}
	return errors.Join(endpoints(ctx, e, p), deployments(ctx, e, p), p.stop())
}

// deployments measures a Deployment of 1 000 replicas until all are ready, its rolling update and its end.
func deployments(ctx context.Context, e *env, p *process) (err error) {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	n := int32(e.size(1000))
	set := map[string]string{"app": "bench"}
	d := &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "bench"},
		Spec: &appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Labels: set},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
			},
		},
	}
	patch := func(text string) error {
		_, err := c.Deployments.Patch(ctx, &metav1.PatchRequest{Namespace: "default", Name: "bench",
			Patch: []byte(text), PatchType: "application/strategic-merge-patch+json"})
		return err
	}
	for _, step := range []struct {
		name   string
		do     func() error
		wanted int32
	}{
		{"to Ready", func() error {
			_, err := c.Deployments.Create(ctx, &appsv1.CreateDeploymentRequest{Object: d})
			return err
		}, n},
		{"rolling update, 25% at a time", func() error {
			return patch(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"image:2"}]}}}}`)
		}, n},
		{"scaled to 0, all pods gone", func() error { return patch(`{"spec":{"replicas":0}}`) }, 0},
	} {
		used, err := p.cpu()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := step.do(); err != nil {
			return err
		}
		if err := settled(ctx, c, step.wanted); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		took := time.Since(begin)
		after, err := p.cpu()
		if err != nil {
			return err
		}
		e.print(row{name: fmt.Sprintf("Deployment of %d replicas %s", n, step.name),
			measured: fmt.Sprintf("%.2f s", took.Seconds()),
			limit:    fmt.Sprintf("%.1f s of processor time", (after - used).Seconds())})
	}
	return nil
}

// settled waits until the Deployment has as many pods as are wanted, all new and available, and none that goes.
func settled(ctx context.Context, c *client.Client, wanted int32) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w, err := c.Deployments.Watch(ctx, &metav1.WatchRequest{Namespace: "default"})
	if err != nil {
		return err
	}
	for {
		batch, err := w.Recv()
		if err != nil {
			return err
		}
		for _, event := range batch.GetEvents() {
			d := event.GetObject()
			s := d.GetStatus()
			if s.GetObservedGeneration() == d.GetMetadata().GetGeneration() && s.GetReplicas() == wanted &&
				s.GetUpdatedReplicas() == wanted && s.GetAvailableReplicas() == wanted && s.GetTerminatingReplicas() == 0 {
				return nil
			}
		}
	}
}
