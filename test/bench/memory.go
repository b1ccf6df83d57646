package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/runtime/ocinode"
)

// settle is how long memory and processor time are watched; the garbage collector needs a moment to give
// memory back.
const settle = 30 * time.Second

// benchMemory measures resident memory and idle processor time.
func benchMemory(ctx context.Context, e *env) error {
	for _, kind := range []struct {
		name    string
		runtime []string
	}{
		{"", nil},
		{", with images and the pod network", []string{"--runtime", "oci"}},
	} {
		if err := benchIdleServer(ctx, e, kind.name, kind.runtime); err != nil {
			return err
		}
	}
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	nodes, pods := e.size(1000), e.size(10000)
	args := []string{"--runtime", "fake", "--nodes", fmt.Sprint(nodes)}
	p, err := startProcess(ctx, e, dir, args...)
	if err != nil {
		return err
	}
	var mb, share float64
	if err = runPods(ctx, p, pods); err == nil {
		mb, _, err = idle(ctx, p)
	}
	if err = errors.Join(err, p.stop()); err != nil {
		return err
	}
	e.print(row{name: fmt.Sprintf("memory, %d running pods, %d nodes", pods, nodes), measured: fmt.Sprintf("%.0f MB", mb),
		target: "<= 250 MB", met: mb <= 250})

	if p, err = startProcess(ctx, e, dir, args...); err != nil {
		return err
	}
	mb, share, err = idle(ctx, p)
	if err = errors.Join(err, p.stop()); err != nil {
		return err
	}
	e.print(row{name: "  the same after a restart", measured: fmt.Sprintf("%.0f MB", mb), target: "<= 250 MB",
		met: mb <= 250})
	return idleControllers(ctx, e, dir, args, mb, share)
}

// benchIdleServer measures a server without pods, and the processes that it has.
func benchIdleServer(ctx context.Context, e *env, name string, runtime []string) error {
	if err := ocinode.Check(); runtime != nil && err != nil {
		fmt.Printf("idle%s: skipped, %v\n", name, err)
		return nil
	}
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	p, err := startProcess(ctx, e, dir, append(runtime, "--image-dir", filepath.Join(dir, "images"))...)
	if err != nil {
		return err
	}
	mb, share, err := idle(ctx, p)
	children, childrenErr := privateOfChildren(fmt.Sprint(p.cmd.Process.Pid))
	if err = errors.Join(err, childrenErr, p.down()); err != nil {
		return err
	}
	for _, child := range children {
		mb += child
	}
	e.print(row{name: "memory, idle" + name, measured: fmt.Sprintf("%.0f MB", mb), target: "<= 64 MB", met: mb <= 64})
	e.print(row{name: "idle CPU" + name, measured: fmt.Sprintf("%.1f %%", share*100), target: "<= 0.5 %",
		met: share <= 0.005})
	return nil
}

// idleControllers measures what all controllers hold and use when nothing happens to the pods that are in dir: what a
// server without them lacks of what one with them has, which is given; and the same of Kubernetes' own.
func idleControllers(ctx context.Context, e *env, dir string, args []string, with, share float64) error {
	// One of those that hold next to nothing; none cannot be chosen.
	args = append(slices.Clone(args), "--controllers", "rootca")
	p, err := startProcess(ctx, e, dir, args...)
	if err != nil {
		return err
	}
	without, least, err := idle(ctx, p)
	r := row{name: "  of which all controllers", measured: fmt.Sprintf("%.0f MB, %.1f %%", with-without,
		(share-least)*100)}
	if err == nil && e.kubecontrollers != "" {
		var s *side
		if s, err = besideServer(ctx, e, p, nil); err == nil {
			var mb, used float64
			mb, used, err = idle(ctx, s.theirs)
			err = errors.Join(err, s.theirs.stop())
			r.limit = fmt.Sprintf("Kubernetes' %.0f MB, %.1f %%", mb, used*100)
		}
	}
	if err = errors.Join(err, p.stop()); err != nil {
		return err
	}
	e.print(r)
	return nil
}

// idle returns the memory in MB and the share of one processor after and during a quiet time.
func idle(ctx context.Context, p *process) (mb, share float64, err error) {
	before, err := p.cpu()
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	after, err := p.cpu()
	if err != nil {
		return 0, 0, err
	}
	mb, err = p.resident()
	return mb, (after - before).Seconds() / settle.Seconds(), err
}

// runPods creates pods and waits until all run.
func runPods(ctx context.Context, p *process, n int) error {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = drive(ctx, 32, n, func(ctx context.Context, _, i int) error {
		_, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: pod(podName("p", i), "")})
		return err
	})
	if err != nil {
		return err
	}
	initial := true
	stream, err := c.Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", SendInitialEvents: &initial,
		ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for len(running) < n {
		batch, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%d of %d pods run: %w", len(running), n, err)
		}
		for _, ev := range batch.GetEvents() {
			if ev.GetObject().GetStatus().GetPhase() == "Running" {
				running[ev.GetObject().GetMetadata().GetName()] = true
			}
		}
	}
	return nil
}
