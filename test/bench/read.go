package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// fill creates n pods that nobody schedules.
func fill(ctx context.Context, c *cluster, prefix string, n int) error {
	_, err := drive(ctx, 64, n, func(ctx context.Context, _, i int) error {
		_, err := c.Client().Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default",
			Object: pod(podName(prefix, i), "none")})
		return err
	})
	return err
}

// fetch returns the body at a URL.
func fetch(ctx context.Context, h *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := h.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return io.ReadAll(res.Body)
}

// benchRead measures gets and lists against a handler that only writes the bytes that REST answers.
func benchRead(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	pods := e.size(6400)
	if err := fill(ctx, c, "read", pods); err != nil {
		return err
	}
	one := c.podsURL() + "/" + podName("read", 0)
	if err := readRow(ctx, e, c, one, 16, e.size(3000)); err != nil {
		return err
	}

	list, err := fetch(ctx, c.http, c.podsURL())
	if err != nil {
		return err
	}
	limit, err := newBare(e, static(list))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limit.close()) }()
	took := func(h *http.Client, url string) (float64, error) {
		begin := time.Now()
		_, err := call(ctx, h, http.MethodGet, url, nil, http.StatusOK)
		return time.Since(begin).Seconds(), err
	}
	p, err := paired(25, func(int) (float64, error) { return took(c.http, c.podsURL()) },
		func(int) (float64, error) { return took(limit.client, limit.url) })
	if err != nil {
		return err
	}
	e.print(row{
		name:     fmt.Sprintf("list %d pods (%.1f MB), REST", pods, float64(len(list))/1e6),
		measured: fmt.Sprintf("%.0f ms", p.got*1e3),
		limit:    fmt.Sprintf("static %.0f ms", p.limit*1e3), ratio: p.ratio, cpu: p.cpu, target: "<= 1.80",
		met: p.ratio <= 1.8,
	})
	p, err = paired(25, func(int) (float64, error) {
		begin := time.Now()
		_, err := c.grpc.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
		return time.Since(begin).Seconds(), err
	}, func(int) (float64, error) { return took(limit.client, limit.url) })
	if err != nil {
		return err
	}
	e.print(row{
		name: fmt.Sprintf("list %d pods, gRPC over TLS, decoded", pods), measured: fmt.Sprintf("%.0f ms", p.got*1e3),
		limit: fmt.Sprintf("static %.0f ms", p.limit*1e3), ratio: p.ratio, cpu: p.cpu,
	})
	more := e.size(3600)
	if err := fill(ctx, c, "informed", more); err != nil {
		return err
	}
	return benchInformer(ctx, e, c, pods+more)
}

// readRow measures gets of one URL, n in a round.
func readRow(ctx context.Context, e *env, c *cluster, url string, clients, n int) (err error) {
	body, err := fetch(ctx, c.http, url)
	if err != nil {
		return err
	}
	limit, err := newBare(e, static(body))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limit.close()) }()
	rate := func(h *http.Client, url string) func(int) (float64, error) {
		return func(int) (float64, error) {
			return drive(ctx, clients, n, func(ctx context.Context, _, _ int) error {
				_, err := call(ctx, h, http.MethodGet, url, nil, http.StatusOK)
				return err
			})
		}
	}
	p, err := paired(25, rate(c.http, url), rate(limit.client, limit.url))
	if err != nil {
		return err
	}
	e.atLeast(fmt.Sprintf("get, %d clients, REST (%.1f KB)", clients, float64(len(body))/1e3), p, "static", 0.7)
	p, err = paired(25, func(int) (float64, error) {
		return drive(ctx, clients, n, func(ctx context.Context, _, _ int) error {
			_, err := c.grpc.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: podName("read", 0)})
			return err
		})
	}, rate(limit.client, limit.url))
	if err != nil {
		return err
	}
	e.atLeast(fmt.Sprintf("get, %d clients, gRPC over TLS, decoded", clients), p, "static", 0)
	return nil
}
