package main

import (
	"context"
	"errors"
	"net/http"

	corev1 "monoplane.dev/api/core/v1"
)

// benchCreate measures creates over gRPC in-process and over REST.
func benchCreate(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	raw, err := newRawEtcd(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.etcd.Close()) }()
	top, err := newBare(e, ceiling(raw))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, top.close()) }()

	grpc := func(prefix string) func(context.Context, int, int) error {
		return func(ctx context.Context, _, i int) error {
			_, err := c.Client().Pods.Create(ctx, &corev1.CreatePodRequest{Namespace: "default", Object: pod(podName(prefix, i), "none")})
			return err
		}
	}
	rest := func(h *http.Client, url, prefix string) func(context.Context, int, int) error {
		return func(ctx context.Context, _, i int) error {
			_, err := call(ctx, h, http.MethodPost, url, podJSON(podName(prefix, i), "none"), http.StatusCreated)
			return err
		}
	}
	for _, m := range []struct {
		name    string
		clients int
		n       int
		rest    bool
		target  float64
	}{
		{"create, 1 client, gRPC in-process", 1, e.size(4000), false, 0.8},
		{"create, 1 client, REST", 1, e.size(4000), true, 0.75},
		{"create, 64 clients, gRPC in-process", 64, e.size(20000), false, 0},
		{"create, 64 clients, REST", 64, e.size(20000), true, 0.6},
	} {
		got, limit, err := paired(5, func(round int) (float64, error) {
			prefix := podName("c"+string(rune('a'+round)), m.clients)
			if m.rest {
				return drive(ctx, m.clients, m.n/5, rest(c.http, c.podsURL(), prefix+"r"))
			}
			return drive(ctx, m.clients, m.n/5, grpc(prefix+"g"))
		}, func(round int) (float64, error) {
			if m.rest {
				return drive(ctx, m.clients, m.n/5, rest(top.client, top.url, podName("l"+string(rune('a'+round)), m.clients)))
			}
			return raw.rate(ctx, m.clients, m.n/5)
		})
		if err != nil {
			return err
		}
		limitName := "raw"
		if m.rest {
			limitName = "ceiling"
		}
		e.atLeast(m.name, got, limitName, limit, m.target)
	}
	return nil
}
