package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// benchWatch measures how many events reach 200 watchers together, over REST with a client that only counts
// lines, and over gRPC in-process. The watches begin at a revision before all events, so that the fan-out is
// measured and not the making of events.
func benchWatch(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	watchers, events := e.size(200), e.size(2000)
	list, err := c.Client().Pods.List(ctx, &metav1.ListRequest{Limit: 1})
	if err != nil {
		return err
	}
	from := list.GetMetadata().GetResourceVersion()
	if err := fill(ctx, c, "watch", events); err != nil {
		return err
	}
	for _, f := range []form{inJSON(), inProtobuf()} {
		if err := restFanout(ctx, e, c, f, from, watchers, events); err != nil {
			return err
		}
	}
	var rates []float64
	for range 9 {
		rate, err := grpcFanout(ctx, c, from, watchers, events)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	rate := median(rates)
	e.print(row{
		name: fmt.Sprintf("watch fan-out, %d watchers, gRPC in-process", watchers), measured: perSecond(rate),
		target: ">= 1000000/s", met: rate >= 1e6,
	})
	return nil
}

// flushed is how much the front writes at once when there is so much to write.
const flushed = 128 << 10

// form is how a watch writes its events.
type form struct {
	// suffix is what rows say of it, accept the header that asks for it.
	suffix, accept string
	// counter returns what counts the events of one watch: it is given the stream in pieces, and returns how many events
	// end in one.
	counter func() func(b []byte) int
	// cut cuts a stream where the server may have written it.
	cut func(text []byte, size int) [][]byte
}

func inJSON() form {
	return form{"", "application/json", func() func([]byte) int {
		return func(b []byte) int { return bytes.Count(b, []byte{'\n'}) }
	}, pieces}
}

// inProtobuf is frames, each behind its length in four bytes.
func inProtobuf() form {
	return form{", protobuf", "application/vnd.kubernetes.protobuf", func() func([]byte) int {
		var head []byte
		left := 0
		return func(b []byte) (ended int) {
			for len(b) > 0 {
				if left == 0 {
					head, b = append(head, b[0]), b[1:]
					if len(head) == 4 {
						left, head = int(binary.BigEndian.Uint32(head)), head[:0]
					}
					continue
				}
				n := min(left, len(b))
				left, b = left-n, b[n:]
				if left == 0 {
					ended++
				}
			}
			return ended
		}
	}, func(text []byte, size int) [][]byte { return slices.Collect(slices.Chunk(text, size)) }}
}

// restFanout compares watches over REST with a handler that writes the same bytes in pieces of the same size.
func restFanout(ctx context.Context, e *env, c *cluster, f form, from string, watchers, events int) (err error) {
	url := c.podsURL() + "?watch=1&resourceVersion=" + from
	stream, err := record(ctx, c.http, f, url, events)
	if err != nil {
		return err
	}
	limit, err := newBare(e, staticStream(f.cut(stream, flushed)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limit.close()) }()
	p, err := paired(9, func(int) (float64, error) { return countEvents(ctx, c.http, f, url, watchers, events) },
		func(int) (float64, error) { return countEvents(ctx, limit.client, f, limit.url, watchers, events) })
	if err != nil {
		return err
	}
	e.atLeast(fmt.Sprintf("watch fan-out, %d watchers, REST%s (%.1f KB)", watchers, f.suffix,
		float64(len(stream))/float64(events)/1e3), p, "static", 0.6)
	return nil
}

// record returns a stream up to so many events.
func record(ctx context.Context, h *http.Client, f form, url string, events int) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := openStream(ctx, h, f, url)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var all []byte
	buf := make([]byte, 64<<10)
	count := f.counter()
	for seen := 0; seen < events; {
		n, err := body.Read(buf)
		seen += count(buf[:n])
		all = append(all, buf[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pieces cuts text after the lines with which a piece reaches the given size.
func pieces(text []byte, size int) [][]byte {
	var list [][]byte
	for len(text) > size {
		end := size + bytes.IndexByte(text[size:], '\n') + 1
		list = append(list, text[:end])
		text = text[end:]
	}
	return append(list, text)
}

func openStream(ctx context.Context, h *http.Client, f form, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", f.accept)
	res, err := h.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("watch: %s", res.Status), res.Body.Close())
	}
	return res.Body, nil
}

// countEvents opens watchers streams at once and returns the rate at which all of them together got events until
// each had the given number.
func countEvents(ctx context.Context, h *http.Client, f form, url string, watchers, events int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range watchers {
		g.Go(func() error {
			body, err := openStream(ctx, h, f, url)
			if err != nil {
				return err
			}
			defer body.Close()
			buf := make([]byte, 64<<10)
			count := f.counter()
			for seen := 0; seen < events; {
				n, err := body.Read(buf)
				seen += count(buf[:n])
				if err != nil && seen < events {
					return fmt.Errorf("a watch ended after %d of %d events: %w", seen, events, err)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(watchers*events) / time.Since(begin).Seconds(), err
}

// grpcFanout watches over the in-process connection.
func grpcFanout(ctx context.Context, c *cluster, from string, watchers, events int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range watchers {
		stream, err := c.SharedClient().Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default", ResourceVersion: from})
		if err != nil {
			return 0, err
		}
		g.Go(func() error { return receive(stream, events) })
	}
	err := g.Wait()
	return float64(watchers*events) / time.Since(begin).Seconds(), err
}

func receive(stream corev1rpc.Pods_WatchClient, events int) error {
	for seen := 0; seen < events; {
		batch, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("a watch ended after %d of %d events: %w", seen, events, err)
		}
		seen += len(batch.GetEvents())
	}
	return nil
}
