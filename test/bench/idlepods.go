package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"monoplane.dev"
	"monoplane.dev/client"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// probed is how long idle pods are let alone before they are measured: each has been probed a few times by then.
const probed = 30 * time.Second

// benchIdle measures what idle pods with a token, a ConfigMap and a probe hold on `host`: heap and stacks of the
// server, which is this process, and the memory that a shim shares with nobody.
func benchIdle(ctx context.Context, e *env) error {
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	c, err := monoplane.Start(ctx, monoplane.Config{DataDir: dir, Listen: "127.0.0.1:0", NodeName: "node"})
	if err != nil {
		return err
	}
	if err = c.WaitReady(ctx); err == nil {
		err = idlePods(ctx, e, c.Client())
	}
	return errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
}

func idlePods(ctx context.Context, e *env, c *client.Client) (err error) {
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c)) }()
	if _, err := c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Namespace: "default",
		Object: settings()}); err != nil {
		return err
	}
	watch, err := newRunWatch(ctx, c)
	if err != nil {
		return err
	}
	// The first pod brings what all share, such as the watch of the ConfigMap.
	if err := createReal(ctx, c, fullPod(podName("first", 0))); err != nil {
		return err
	}
	if err := watch.until(1); err != nil {
		return err
	}
	before, n := held(), e.size(100)
	for i := range n {
		if err := createReal(ctx, c, fullPod(podName("idle", i))); err != nil {
			return err
		}
	}
	if err := watch.until(1 + n); err != nil {
		return err
	}
	select {
	case <-time.After(probed):
	case <-ctx.Done():
		return ctx.Err()
	}
	each := float64(held()-before) / float64(n) / 1e3
	name := fmt.Sprintf("memory of the server for each of %d idle pods", n)
	e.print(row{name: name, measured: fmt.Sprintf("%.0f KB", each), target: "<= 200 KB",
		met: each <= 200})
	shims, err := privateOfChildren("self")
	if err != nil {
		return err
	}
	if len(shims) == 0 {
		return errors.New("no shim runs")
	}
	largest := slices.Max(shims)
	e.print(row{name: "  private memory of a shim, median", measured: fmt.Sprintf("%.2f MB", median(shims))})
	e.print(row{name: "  private memory of a shim, the largest", measured: fmt.Sprintf("%.2f MB", largest),
		target: "<= 2 MB", met: largest <= 2})
	return nil
}

// held returns the live heap and the stacks of this process.
func held() int64 {
	// What a finalizer or a pool lets go is found by the second collection.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// privateOfChildren returns the memory in MB that each child of a process shares with no other process. A server keeps
// no other children than shims, and what holds the network of pods.
func privateOfChildren(pid string) ([]float64, error) {
	files, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		return nil, err
	}
	var all []float64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			mb, err := private(field)
			if err != nil {
				return nil, err
			}
			all = append(all, mb)
		}
	}
	return all, nil
}

// private returns the memory in MB that a process shares with no other.
func private(pid string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	kb := 0
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || !bytes.HasPrefix(line, []byte("Private_")) {
			continue
		}
		n, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			return 0, fmt.Errorf("process %s: %w", pid, err)
		}
		kb += n
	}
	return float64(kb) / 1024, nil
}
