package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// benchStart measures the way from exec to ready, cold and with 10 000 pods.
func benchStart(ctx context.Context, e *env) error {
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
		p, err := startProcess(ctx, e, dir)
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
		name: fmt.Sprintf("cold start to ready, median of %d", len(times)), measured: fmt.Sprintf("%.0f ms", got),
		limit: fmt.Sprintf("exec %.0f ms", median(execs)), target: "<= 250 ms", met: got <= 250,
	})
	return benchRestart(ctx, e)
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
		_, err := c.Pods.Create(ctx, &corev1.CreatePodRequest{Namespace: "default", Object: pod(podName("p", i), "none")})
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
