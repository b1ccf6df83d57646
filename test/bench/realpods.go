package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
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
	err = realPods(ctx, e, p, dir)
	return errors.Join(err, p.stop())
}

func realPods(ctx context.Context, e *env, p *process, dir string) (err error) {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c)) }()
	if _, err := c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Namespace: "default",
		Object: settings()}); err != nil {
		return err
	}
	watch, err := newRunWatch(ctx, c)
	if err != nil {
		return err
	}
	seen := 0
	for _, kind := range []struct {
		name, prefix string
		make         func(name string) *corev1.Pod
	}{
		{"pod create to Running, one at a time", "one", realPod},
		{"  with a ConfigMap volume and an exec probe", "full", fullPod},
	} {
		n, err := oneAtATime(ctx, e, c, watch, seen, targets{kind.name, 20, 80}, func(i int) *corev1.Pod {
			return kind.make(podName(kind.prefix, i))
		})
		if seen += n; err != nil {
			return err
		}
		// A node takes 110 pods.
		if err := removeAll(ctx, c); err != nil {
			return err
		}
	}
	n, err := together(ctx, e, c, watch, seen, "pods", 3, realPod)
	if seen += n; err != nil {
		return err
	}
	if err := removeAll(ctx, c); err != nil {
		return err
	}
	return mountedChange(ctx, e, c, watch, seen, dir)
}

// targets are what a row of pods, made one at a time, is to reach, in milliseconds.
type targets struct {
	name     string
	p50, p99 float64
}

// oneAtATime prints how long pods take from create to Running, one after the other, and returns their number; seen is
// how many have been seen running before.
func oneAtATime(
	ctx context.Context, e *env, c *client.Client, watch *runWatch, seen int, to targets, pod func(i int) *corev1.Pod,
) (int, error) {
	var times, forks []float64
	for i := range e.size(100) {
		begin := time.Now()
		if err := exec.CommandContext(ctx, "/bin/true").Run(); err != nil {
			return i, err
		}
		forks = append(forks, time.Since(begin).Seconds()*1e3)
		p := pod(i)
		begin = time.Now()
		if err := createReal(ctx, c, p); err != nil {
			return i, err
		}
		if err := watch.until(seen + i + 1); err != nil {
			return i, err
		}
		times = append(times, time.Since(begin).Seconds()*1e3)
	}
	slices.Sort(times)
	p50, p99 := times[len(times)/2], times[len(times)*99/100]
	limit := fmt.Sprintf("fork+exec %.1f ms", median(forks))
	e.print(row{name: to.name + ", p50", measured: fmt.Sprintf("%.1f ms", p50), limit: limit,
		target: fmt.Sprintf("<= %.0f ms", to.p50), met: p50 <= to.p50})
	e.print(row{name: to.name + ", p99", measured: fmt.Sprintf("%.1f ms", p99), limit: limit,
		target: fmt.Sprintf("<= %.0f ms", to.p99), met: p99 <= to.p99})
	return len(times), nil
}

// together prints how long pods take that are created at once, until the last one runs, and returns their number. No
// more than most seconds are wanted.
func together(
	ctx context.Context, e *env, c *client.Client, watch *runWatch, seen int, what string, most float64,
	pod func(name string) *corev1.Pod,
) (int, error) {
	n := e.size(100)
	begin := time.Now()
	for i := range n {
		if err := createReal(ctx, c, pod(podName("many", i))); err != nil {
			return i, err
		}
	}
	if err := watch.until(seen + n); err != nil {
		return n, err
	}
	took := time.Since(begin).Seconds()
	e.print(row{name: fmt.Sprintf("%d %s create to Running, together", n, what), measured: fmt.Sprintf("%.2f s", took),
		target: fmt.Sprintf("<= %.0f s", most), met: took <= most})
	return n, nil
}

// mountedChange prints how long a change of a ConfigMap takes to all pods that have it mounted; dir is the cluster's.
func mountedChange(ctx context.Context, e *env, c *client.Client, watch *runWatch, seen int, dir string) error {
	n := e.size(100)
	for i := range n {
		if err := createReal(ctx, c, fullPod(podName("mounted", i))); err != nil {
			return err
		}
	}
	if err := watch.until(seen + n); err != nil {
		return err
	}
	changed := settings()
	changed.Data["mode"] = "changed"
	begin := time.Now()
	_, err := c.ConfigMaps.Update(ctx,
		&corev1rpc.UpdateConfigMapRequest{Namespace: "default", Name: changed.Metadata.Name,
			Object: changed})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "nodes/*/pods-data/*/volumes/kubernetes.io~configmap/settings/mode"))
	if err != nil || len(files) != n {
		return fmt.Errorf("%d files of %d pods, %w", len(files), n, err)
	}
	for _, file := range files {
		for text := []byte{}; string(text) != "changed"; {
			if text, err = os.ReadFile(file); err != nil {
				return err
			}
			if time.Since(begin) > time.Minute {
				return fmt.Errorf("%s holds %q", file, text)
			}
		}
	}
	took := time.Since(begin).Seconds()
	e.print(row{name: fmt.Sprintf("a change of a ConfigMap in %d pods", n), measured: fmt.Sprintf("%.2f s", took),
		target: "<= 2 s", met: took <= 2})
	return nil
}

func realPod(name string) *corev1.Pod {
	o := pod(name, "")
	o.Spec.Containers[0].Resources = nil
	return o
}

// fullPod mounts a ConfigMap, beside the token that each pod gets, and has a probe that runs a program.
func fullPod(name string) *corev1.Pod {
	o := realPod(name)
	c := o.Spec.Containers[0]
	c.ReadinessProbe = &corev1.Probe{Handler: &corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/etc/settings/mode"}},
	}}
	c.VolumeMounts = []*corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}}
	o.Spec.Volumes = []*corev1.Volume{{Name: "settings", VolumeSource: &corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: &corev1.LocalObjectReference{Name: "settings"}},
	}}}
	return o
}

// settings is the ConfigMap of fullPod.
func settings() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Name: "settings", Namespace: "default"}, Data: map[string]string{"mode": "fast"},
	}
}

func createReal(ctx context.Context, c *client.Client, p *corev1.Pod) error {
	_, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: p})
	return err
}

// runWatch counts the pods that have been seen running.
type runWatch struct {
	stream  corev1rpc.Pods_WatchClient
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
