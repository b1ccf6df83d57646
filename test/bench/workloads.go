package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/rules/jobs"
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
	return errors.Join(endpoints(ctx, e, p), deployments(ctx, e, p), indexedJob(ctx, e, p), p.stop())
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

// indexedJob measures a Job of 10 000 indexes, 500 at a time, whose pods end at once, until it is Complete.
func indexedJob(ctx context.Context, e *env, p *process) error {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	n, parallel := int32(e.size(10_000)), int32(e.size(500))
	mode := "Indexed"
	job := &batchv1.Job{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "bench"},
		Spec: &batchv1.JobSpec{
			CompletionMode: &mode, Completions: &n, Parallelism: &parallel,
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"fake.monoplane.dev/exit-after": "100ms"}},
				Spec: &corev1.PodSpec{RestartPolicy: "Never",
					Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
			},
		},
	}
	used, err := p.cpu()
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := c.Jobs.Create(ctx, &batchv1.CreateJobRequest{Object: job}); err != nil {
		return err
	}
	if err := completed(ctx, c); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	took := time.Since(begin)
	after, err := p.cpu()
	if err != nil {
		return err
	}
	e.print(row{name: fmt.Sprintf("Job of %d indexes, %d at a time, to Complete", n, parallel),
		measured: fmt.Sprintf("%.2f s", took.Seconds()),
		limit:    fmt.Sprintf("%.1f s of processor time", (after - used).Seconds())})
	return nil
}

// completed waits until the Job has ended well.
func completed(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	w, err := c.Jobs.Watch(ctx, &metav1.WatchRequest{Namespace: "default"})
	if err != nil {
		return err
	}
	for {
		batch, err := w.Recv()
		if err != nil {
			return err
		}
		for _, event := range batch.GetEvents() {
			switch s := event.GetObject().GetStatus(); {
			case jobs.Has(s, jobs.Complete):
				return nil
			case jobs.Has(s, jobs.FailedCondition):
				return fmt.Errorf("it failed: %v", s)
			}
		}
	}
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
