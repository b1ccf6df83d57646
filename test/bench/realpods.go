package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
)

// benchRun measures the way from create to Running with real processes.
func benchRun(ctx context.Context, e *env) error {
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	p, err := startProcess(ctx, e, dir)
	if err != nil {
		return err
	}
	err = realPods(ctx, e, p)
	return errors.Join(err, p.stop())
}

func realPods(ctx context.Context, e *env, p *process) (err error) {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c)) }()
	watch, err := newRunWatch(ctx, c)
	if err != nil {
		return err
	}
	var times, forks []float64
	for i := range e.size(100) {
		begin := time.Now()
		cmd := exec.CommandContext(ctx, "/bin/true")
		if err := cmd.Run(); err != nil {
			return err
		}
		forks = append(forks, time.Since(begin).Seconds()*1e3)
		begin = time.Now()
		if err := createReal(ctx, c, podName("one", i)); err != nil {
			return err
		}
		if err := watch.until(i + 1); err != nil {
			return err
		}
		times = append(times, time.Since(begin).Seconds()*1e3)
	}
	slices.Sort(times)
	p50, p99 := times[len(times)/2], times[len(times)*99/100]
	limit := fmt.Sprintf("fork+exec %.1f ms", median(forks))
	e.print(row{name: "pod create to Running, one at a time, p50", measured: fmt.Sprintf("%.1f ms", p50), limit: limit,
		target: "<= 20 ms", met: p50 <= 20})
	e.print(row{name: "pod create to Running, one at a time, p99", measured: fmt.Sprintf("%.1f ms", p99), limit: limit,
		target: "<= 80 ms", met: p99 <= 80})

	// A node takes 110 pods.
	if err := removeAll(ctx, c); err != nil {
		return err
	}
	n := e.size(100)
	begin := time.Now()
	for i := range n {
		if err := createReal(ctx, c, podName("many", i)); err != nil {
			return err
		}
	}
	if err := watch.until(len(times) + n); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	e.print(row{name: fmt.Sprintf("%d pods create to Running, together", n), measured: fmt.Sprintf("%.2f s", took),
		target: "<= 3 s", met: took <= 3})
	return nil
}

func createReal(ctx context.Context, c *client.Client, name string) error {
	o := pod(name, "")
	o.Spec.Containers[0].Resources = nil
	_, err := c.Pods.Create(ctx, &corev1.CreatePodRequest{Namespace: "default", Object: o})
	return err
}

// runWatch counts the pods that have been seen running.
type runWatch struct {
	stream  corev1.Pods_WatchClient
	running map[string]bool
}

func newRunWatch(ctx context.Context, c *client.Client) (*runWatch, error) {
	stream, err := c.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default"})
	return &runWatch{stream, map[string]bool{}}, err
}

func (w *runWatch) until(n int) error {
	for len(w.running) < n {
		batch, err := w.stream.Recv()
		if err != nil {
			return fmt.Errorf("%d of %d pods run: %w", len(w.running), n, err)
		}
		for _, ev := range batch.GetEvents() {
			if ev.GetObject().GetStatus().GetPhase() == "Running" {
				w.running[ev.GetObject().GetMetadata().GetName()] = true
			}
		}
	}
	return nil
}

// removeAll deletes the pods of this benchmark and waits until they are gone, so that no process stays.
func removeAll(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	grace := int64(1)
	if _, err := c.Pods.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default",
		GracePeriodSeconds: &grace}); err != nil {
		return err
	}
	list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
	if err != nil || len(list.GetItems()) == 0 {
		return err
	}
	left := map[string]bool{}
	for _, p := range list.GetItems() {
		left[p.GetMetadata().GetUid()] = true
	}
	stream, err := c.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default",
		ResourceVersion: list.GetMetadata().GetResourceVersion()})
	if err != nil {
		return err
	}
	for len(left) > 0 {
		batch, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, ev := range batch.GetEvents() {
			if ev.GetType() == "DELETED" {
				delete(left, ev.GetObject().GetMetadata().GetUid())
			}
		}
	}
	return nil
}
