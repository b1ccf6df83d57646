package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// benchWatch measures how many events reach 200 watchers, over REST with a client that only counts lines, and
// over gRPC in-process.
func benchWatch(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	watchers, events := e.size(200), e.size(4000)

	got, bytesSent, err := restFanout(ctx, c, watchers, events)
	if err != nil {
		return err
	}
	// The limit sends as many bytes in as many events, in batches of ten, from a handler that only writes.
	line := append(bytes.Repeat([]byte("x"), int(bytesSent)/(watchers*events)-1), '\n')
	limit, err := newBare(e, staticStream(bytes.Repeat(line, 10), events/10))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limit.close()) }()
	want, _, err := countLines(ctx, limit.client, limit.url, watchers, events/10*10, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	e.atLeast(fmt.Sprintf("watch fan-out, %d watchers, REST", watchers), got, "static", want, 0.6)

	rate, err := grpcFanout(ctx, c, watchers, events)
	if err != nil {
		return err
	}
	e.print(row{
		name: fmt.Sprintf("watch fan-out, %d watchers, gRPC in-process", watchers), measured: perSecond(rate),
		target: ">= 1000000/s", met: rate >= 1e6,
	})
	return nil
}

// restFanout watches over REST while pods are created, and returns events a second and bytes.
func restFanout(ctx context.Context, c *cluster, watchers, events int) (rate float64, size int64, err error) {
	list, err := c.Client().Pods.List(ctx, &metav1.ListRequest{Limit: 1})
	if err != nil {
		return 0, 0, err
	}
	url := c.podsURL() + "?watch=1&resourceVersion=" + list.GetMetadata().GetResourceVersion()
	return countLines(ctx, c.http, url, watchers, events, func(ctx context.Context) error { return fill(ctx, c, "rest", events) })
}

// countLines opens watchers streams, then calls produce, and returns the rate at which all of them together got
// lines until each had the given number.
func countLines(ctx context.Context, h *http.Client, url string, watchers, lines int, produce func(context.Context) error) (float64, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var size atomic.Int64
	bodies := make([]io.ReadCloser, watchers)
	for i := range bodies {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, 0, err
		}
		res, err := h.Do(req)
		if err != nil {
			return 0, 0, err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return 0, 0, fmt.Errorf("watch: %s", res.Status)
		}
		bodies[i] = res.Body
	}
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	g.Go(func() error { return produce(ctx) })
	for _, body := range bodies {
		g.Go(func() error {
			buf := make([]byte, 64<<10)
			for seen := 0; seen < lines; {
				n, err := body.Read(buf)
				seen += bytes.Count(buf[:n], []byte{'\n'})
				size.Add(int64(n))
				if err != nil && seen < lines {
					return fmt.Errorf("a watch ended after %d of %d events: %w", seen, lines, err)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(watchers*lines) / time.Since(begin).Seconds(), size.Load(), err
}

// grpcFanout watches over the in-process connection from a revision that lies behind, so that the fan-out
// itself is measured and not the creation.
func grpcFanout(ctx context.Context, c *cluster, watchers, events int) (float64, error) {
	list, err := c.Client().Pods.List(ctx, &metav1.ListRequest{Limit: 1})
	if err != nil {
		return 0, err
	}
	if err := fill(ctx, c, "grpc", events); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range watchers {
		stream, err := c.SharedClient().Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", ResourceVersion: list.GetMetadata().GetResourceVersion()})
		if err != nil {
			return 0, err
		}
		g.Go(func() error { return receive(stream, events) })
	}
	err = g.Wait()
	return float64(watchers*events) / time.Since(begin).Seconds(), err
}

func receive(stream corev1.Pods_WatchClient, events int) error {
	for seen := 0; seen < events; {
		batch, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("a watch ended after %d of %d events: %w", seen, events, err)
		}
		seen += len(batch.GetEvents())
	}
	return nil
}
