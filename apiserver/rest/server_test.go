package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"monoplane.dev/apiserver/rest"
	"monoplane.dev/object"
)

// http1 makes the test's client speak HTTP/1.1.
func (f *front) http1() {
	tr := f.http.Client().Transport.(*http.Transport)
	f.http.Client().Transport = &http.Transport{
		TLSClientConfig: tr.TLSClientConfig.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	f.http.Client().Transport.(*http.Transport).TLSClientConfig.NextProtos = nil
	f.t.Cleanup(f.http.Client().CloseIdleConnections)
}

// What HTTP/2 clients can do, HTTP/1.1 clients can do too: chunked watches, keep-alive after errors.
//
// spec: OBJ-7
func TestHTTP1(t *testing.T) {
	f := newFront(t)
	f.http1()
	f.createPod("a")
	w := f.watch(t, pods+"?watch=true", "")
	if w.res.ProtoMajor != 1 || len(w.res.TransferEncoding) != 1 || w.res.TransferEncoding[0] != "chunked" {
		t.Errorf("protocol %s, transfer encoding %v", w.res.Proto, w.res.TransferEncoding)
	}
	w.next()
	f.createPod("b")
	if e := w.next(); e.Object.Metadata.Name != "b" {
		t.Errorf("event %+v", e)
	}
	f.want(f.do("POST", pods, strings.Repeat(" ", rest.MaxBody+1)), 413)
	f.want(f.do("POST", pods, "{", "Content-Type", "application/json"), 400)
	f.want(f.do("GET", pods, ""), 200, `"name":"b"`)
}

// A client that stops in the middle of its body is answered in the end, and holds nothing.
func TestStalledBody(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			// The answer has no more than that either, on a machine that may be busy.
			f := newFront(t, func(c *rest.Config) { c.StallTimeout = 500 * time.Millisecond })
			if proto == "HTTP/1.1" {
				f.http1()
			}
			body, more := io.Pipe()
			defer more.Close()
			go func() { _, _ = more.Write([]byte(`{"kind":`)) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", f.http.URL+pods, body)
			res, err := f.http.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != 400 || res.Proto != proto {
				t.Errorf("%s %s", res.Proto, res.Status)
			}
		})
	}
}

// A watch that has not been accepted when the server stops is refused as unavailable, and clients try again.
func TestCloseRefusesWaitingWatches(t *testing.T) {
	waiting := make(chan struct{})
	s := &scripted{watch: func(ctx context.Context, _ func() error, _ func([]object.Event) error) error {
		close(waiting)
		<-ctx.Done()
		return ctx.Err()
	}}
	f := s.front(t)
	done := make(chan answer)
	go func() { done <- f.do("GET", pods+"?watch=true", "") }()
	<-waiting
	f.h.Close()
	f.want(<-done, 503, `"reason":"ServiceUnavailable"`)
}

func TestNewServer(t *testing.T) {
	srv := rest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Proto))
	}), nil, slog.New(slog.DiscardHandler))
	if srv.ReadHeaderTimeout == 0 || srv.IdleTimeout == 0 || srv.WriteTimeout != 0 || srv.MaxHeaderBytes == 0 {
		t.Errorf("bounds of the server: %+v", srv)
	}
	ts := httptest.NewUnstartedServer(nil)
	ts.Config, ts.EnableHTTP2 = srv, true
	ts.StartTLS()
	defer ts.Close()
	f := &front{t: t, http: ts}
	if a := f.do("GET", "/", ""); a.body != "HTTP/2.0" {
		t.Errorf("protocol %s", a.body)
	}
	f.http1()
	if a := f.do("GET", "/", ""); a.body != "HTTP/1.1" {
		t.Errorf("protocol %s", a.body)
	}
	a := f.do("GET", "/", "", "X-Large", strings.Repeat("x", 300<<10))
	if a.code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("code %d for a large header", a.code)
	}
}

// What net/http says goes to the server's own log: what clients bring about for debugging, the rest as a warning.
func TestServerLog(t *testing.T) {
	var lines bytes.Buffer
	srv := rest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.WriteHeader(http.StatusTeapot) // superfluous, which is a mistake of ours
	}), nil, slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = srv
	ts.StartTLS()
	defer ts.Close()
	res, err := http.Get(strings.Replace(ts.URL, "https:", "http:", 1)) // not TLS
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Fatalf("%v, %v", res, err)
	}
	f := &front{t: t, http: ts}
	f.do("GET", "/", "")
	ts.Close() // the lines have been written
	for _, want := range []string{
		`level=DEBUG msg="HTTP server: http: TLS handshake error from 127.0.0.1:`,
		`level=WARN msg="HTTP server: http: superfluous response.WriteHeader call from`,
	} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("logged %q, want %q", lines.String(), want)
		}
	}
}
