package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/nodeagent/runtime/ocinode"
)

// benchStart measures the way from exec to ready, cold and with 10 000 pods.
func benchStart(ctx context.Context, e *env) error {
	for _, kind := range []struct {
		name    string
		runtime []string
	}{
		{"cold start to ready", nil},
		{"  with images and the pod network", []string{"--runtime", "oci"}},
	} {
		if err := coldStart(ctx, e, kind.name, kind.runtime); err != nil {
			return err
		}
	}
	if err := binarySize(e); err != nil {
		return err
	}
	return benchRestart(ctx, e)
}

// binarySize prints what a user has to download.
func binarySize(e *env) error {
	info, err := os.Stat(e.binary)
	if err != nil {
		return err
	}
	const most = 75
	mb := float64(info.Size()) / 1e6
	e.print(row{name: "the binary", measured: fmt.Sprintf("%.1f MB", mb), target: fmt.Sprintf("<= %d MB", most),
		met: mb <= most})
	return nil
}

func coldStart(ctx context.Context, e *env, name string, runtime []string) error {
	if err := ocinode.Check(); runtime != nil && err != nil {
		fmt.Printf("%s: skipped, %v\n", name, err)
		return nil
	}
	var times, execs []float64
	for range e.size(20) {
		dir, err := e.tempDir()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := exec.CommandContext(ctx, e.binary, "version").Run(); err != nil {
			return err
		}
		execs = append(execs, time.Since(begin).Seconds()*1e3)
		p, err := startProcess(ctx, e, dir, append(runtime, "--image-dir", filepath.Join(dir, "images"))...)
		if err != nil {
			return err
		}
		times = append(times, p.ready.Seconds()*1e3)
		if err := p.down(); err != nil {
			return err
		}
	}
	got := median(times)
	e.print(row{
		name: fmt.Sprintf("%s, median of %d", name, len(times)), measured: fmt.Sprintf("%.0f ms", got),
		limit: fmt.Sprintf("exec %.0f ms", median(execs)), target: "<= 250 ms", met: got <= 250,
	})
	return nil
}

func benchRestart(ctx context.Context, e *env) (err error) {
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	p, err := startProcess(ctx, e, dir, "--runtime", "fake")
	if err != nil {
		return err
	}
	pods := e.size(10000)
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	_, err = drive(ctx, 64, pods, func(ctx context.Context, _, i int) error {
		_, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: pod(podName("p", i), "none")})
		return err
	})
	if err = errors.Join(err, c.Close(), p.stop()); err != nil {
		return err
	}
	var times []float64
	for range 5 {
		p, err := startProcess(ctx, e, dir, "--runtime", "fake")
		if err != nil {
			return err
		}
		times = append(times, p.ready.Seconds()*1e3)
		if err := p.stop(); err != nil {
			return err
		}
	}
	got := median(times)
	e.print(row{
		name: fmt.Sprintf("restart with %d pods, median of 5", pods), measured: fmt.Sprintf("%.0f ms", got),
		target: "<= 700 ms", met: got <= 700,
	})
	return nil
}
