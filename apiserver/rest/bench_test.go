package rest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// The benchmarks stand a bare handler that writes the same bytes ("static") beside the front, since only the
// ratio of the two says something on another machine.

// cpu reports the processor time of an operation, which other programs on the machine disturb less than the
// time that passes.
func cpu(b *testing.B, operations int64) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() {
		if operations == 0 {
			operations = int64(b.N)
		}
		b.ReportMetric(float64(used()-before)/float64(operations), "cpu-ns/op")
	}
}

func benchPods(n int) []object.Object {
	list := make([]object.Object, n)
	for i := range list {
		list[i] = &corev1.Pod{
			Metadata: &metav1.ObjectMeta{
				Name: fmt.Sprintf("pod-%05d", i), Namespace: "default", Uid: fmt.Sprint(i), ResourceVersion: fmt.Sprint(i + 10),
				Labels: map[string]string{"app": "bench"}, Annotations: map[string]string{"x": strings.Repeat("y", 1600)},
			},
			Spec: &corev1.PodSpec{NodeName: "n", Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
		}
	}
	return list
}

// static serves what path answers now as fixed bytes on the same server.
func (f *front) static(b *testing.B, path string) {
	b.Helper()
	body := []byte(f.do("GET", path, "").body)
	front := f.http.Config.Handler
	f.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/static" {
			front.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

func (f *front) client() *http.Client {
	pool := f.http.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

func read(b *testing.B, c *http.Client, url string) {
	req, _ := http.NewRequest("GET", url, nil)
	req.Header.Set("Accept", "application/json")
	res, err := c.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	n, _ := io.Copy(io.Discard, res.Body)
	res.Body.Close()
	b.SetBytes(n)
}

func BenchmarkGet(b *testing.B) {
	s := &scripted{list: benchPods(1)}
	f := s.front(b)
	path := pods + "/pod-00000"
	f.static(b, path)
	for name, p := range map[string]string{"front": path, "static": "/static"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			defer cpu(b, 0)()
			b.RunParallel(func(pb *testing.PB) {
				c := f.client()
				defer c.CloseIdleConnections()
				for pb.Next() {
					read(b, c, f.http.URL+p)
				}
			})
		})
	}
}

func BenchmarkList(b *testing.B) {
	s := &scripted{list: benchPods(6400)}
	f := s.front(b)
	f.static(b, pods)
	c := f.client()
	defer c.CloseIdleConnections()
	for name, p := range map[string]string{"front": pods, "static": "/static"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer cpu(b, 0)()
			for b.Loop() {
				read(b, c, f.http.URL+p)
			}
		})
	}
}

// BenchmarkWatch fans batches of 16 events out to 200 watchers; an operation is one event at one watcher.
func BenchmarkWatch(b *testing.B) {
	const watchers, batch = 200, 16
	batches := make([][]object.Event, 400)
	for i := range batches {
		for _, o := range benchPods(batch) {
			o.GetMetadata().ResourceVersion = fmt.Sprint(1000 + i*batch + len(batches[i]))
			batches[i] = append(batches[i], object.Event{Type: object.Modified, Object: o})
		}
	}
	var limit atomic.Int64
	start := make(chan struct{})
	s := &scripted{watch: func(_ context.Context, accept func() error, send func([]object.Event) error) error {
		_ = accept()
		<-start
		for i := range limit.Load() {
			if err := send(batches[i%int64(len(batches))]); err != nil {
				return err
			}
		}
		return nil
	}}
	f := s.front(b)
	limit.Store(1)
	close(start)
	line, _, _ := strings.Cut(f.do("GET", pods+"?watch=true", "").body, "\n")
	chunk := []byte(strings.Repeat(line+"\n", batch))
	front := f.http.Config.Handler
	f.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/static" {
			front.ServeHTTP(w, r)
			return
		}
		w.(http.Flusher).Flush()
		<-start
		for range limit.Load() {
			_, _ = w.Write(chunk)
			w.(http.Flusher).Flush()
		}
	})
	for name, p := range map[string]string{"front": pods + "?watch=true", "static": "/static"} {
		b.Run(name, func(b *testing.B) {
			limit.Store(int64(b.N/watchers/batch + 1))
			start = make(chan struct{})
			ready, done := make(chan struct{}), make(chan struct{})
			for range watchers {
				go func() {
					defer func() { done <- struct{}{} }()
					c := f.client()
					defer c.CloseIdleConnections()
					res, err := c.Get(f.http.URL + p)
					if err != nil {
						b.Error(err)
						return
					}
					defer res.Body.Close()
					ready <- struct{}{}
					_, _ = io.Copy(io.Discard, bufio.NewReaderSize(res.Body, 64<<10))
				}()
			}
			for range watchers {
				<-ready
			}
			b.ResetTimer()
			defer cpu(b, limit.Load()*watchers*batch)()
			close(start)
			for range watchers {
				<-done
			}
			b.ReportMetric(float64(limit.Load()*watchers*batch)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// discard is a ResponseWriter that keeps nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkHandler is a GET without the network, on a fresh goroutine as HTTP/2 has it.
func BenchmarkHandler(b *testing.B) {
	s := &scripted{list: benchPods(1)}
	f := s.front(b)
	r, _ := http.NewRequest("GET", f.http.URL+pods+"/pod-00000", nil)
	r.Header.Set("Accept", "application/json")
	done := make(chan struct{})
	b.ReportAllocs()
	defer cpu(b, 0)()
	for b.Loop() {
		go func() {
			f.h.ServeHTTP(&discard{make(http.Header)}, r)
			done <- struct{}{}
		}()
		<-done
	}
}
