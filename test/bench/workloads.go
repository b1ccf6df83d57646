package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/rules/jobs"
)

// workloadControllers are those that do what is measured here.
var workloadControllers = []string{
	"deployment", "replicaset", "job", "endpoint", "endpointslice", "endpointslicemirroring",
}

// benchWorkloads measures how long what keeps pods takes, on 100 simulated nodes.
func benchWorkloads(ctx context.Context, e *env) error {
	// Events of pods that end are still being written when it stops.
	args := []string{"--runtime", "fake", "--nodes", "100", "--zones", "3", "--log-level", "error"}
	return e.beside(ctx, workloadControllers, args, func(ctx context.Context, s *side, note report) error {
		c, err := s.client(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		silent := func(string, timing) {}
		return errors.Join(
			// The first few show that all controllers work.
			endpoints(ctx, s, c, "first", 1, silent), deployments(ctx, s, c, "first", 1, silent),
			indexedJob(ctx, s, c, "first", 1, 1, silent),
			endpoints(ctx, s, c, "endpoint", e.size(100), note),
			deployments(ctx, s, c, "bench", int32(e.size(1000)), note),
			indexedJob(ctx, s, c, "bench", int32(e.size(10_000)), int32(e.size(500)), note))
	})
}

// deployments measures a Deployment of n replicas until all are ready, its rolling update and its end.
func deployments(ctx context.Context, s *side, c *client.Client, name string, n int32, note report) error {
	set := map[string]string{"app": name}
	d := &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Labels: set},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
			},
		},
	}
	patch := func(text string) error {
		_, err := c.Deployments.Patch(ctx, &metav1.PatchRequest{Namespace: "default", Name: name,
			Patch: []byte(text), PatchType: "application/strategic-merge-patch+json"})
		return err
	}
	for _, step := range []struct {
		name   string
		do     func() error
		wanted int32
	}{
		{"to Ready", func() error {
			_, err := c.Deployments.Create(ctx, &appsv1rpc.CreateDeploymentRequest{Object: d})
			return err
		}, n},
		{"rolling update, 25% at a time", func() error {
			return patch(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"image:2"}]}}}}`)
		}, n},
		{"scaled to 0, all pods gone", func() error { return patch(`{"spec":{"replicas":0}}`) }, 0},
	} {
		t, err := s.measure(func() error {
			if err := step.do(); err != nil {
				return err
			}
			return settled(ctx, c, name, step.wanted)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		note(fmt.Sprintf("Deployment of %d replicas %s", n, step.name), t)
	}
	return nil
}

// indexedJob measures a Job of n indexes, some at a time, whose pods end at once, until it is Complete.
func indexedJob(
	ctx context.Context, s *side, c *client.Client, name string, n, parallel int32, note report,
) error {
	mode := "Indexed"
	job := &batchv1.Job{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &batchv1.JobSpec{
			CompletionMode: &mode, Completions: &n, Parallelism: &parallel,
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"fake.monoplane.dev/exit-after": "100ms"}},
				Spec: &corev1.PodSpec{RestartPolicy: "Never",
					Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
			},
		},
	}
	t, err := s.measure(func() error {
		if _, err := c.Jobs.Create(ctx, &batchv1rpc.CreateJobRequest{Object: job}); err != nil {
			return err
		}
		return completed(ctx, c, name)
	})
	if err != nil {
		return fmt.Errorf("job %s: %w", name, err)
	}
	note(fmt.Sprintf("Job of %d indexes, %d at a time, to Complete", n, parallel), t)
	return nil
}

// completed waits until a Job has ended well.
func completed(ctx context.Context, c *client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	w, err := c.Jobs.Watch(ctx, &metav1.WatchRequest{Namespace: "default", FieldSelector: "metadata.name=" + name})
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

// settled waits until a Deployment has as many pods as are wanted, all new and available, and none that goes.
func settled(ctx context.Context, c *client.Client, name string, wanted int32) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w, err := c.Deployments.Watch(ctx, &metav1.WatchRequest{Namespace: "default",
		FieldSelector: "metadata.name=" + name})
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
