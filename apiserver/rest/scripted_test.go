package rest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

// scripted is a service of pods that does what a test says.
type scripted struct {
	object.Backend

	watch func(ctx context.Context, accept func() error, send func([]object.Event) error) error
	logs  func(req *corev1rpc.LogPodRequest, send func(string)) error
	list  []object.Object
	stall time.Duration
	// watched is the request of the last watch.
	watched *metav1.WatchRequest
}

func (s *scripted) front(t testing.TB, change ...func(*rest.Config)) *front {
	t.Helper()
	srv := inproc.NewServer(nil, nil)
	t.Cleanup(srv.Stop)
	corev1rpc.RegisterPodsServer(srv, podsOf{corev1rpc.PodsBackend{Backend: s}, s})
	return newFront(t, append(change, func(c *rest.Config) {
		c.Conn = srv.Conn(inproc.PassValues())
		c.StallTimeout = s.stall
	})...)
}

type podsOf struct {
	corev1rpc.PodsBackend
	s *scripted
}

func (p podsOf) Log(req *corev1rpc.LogPodRequest, stream grpc.ServerStreamingServer[httpbody.HttpBody]) error {
	return p.s.logs(req, func(text string) { _ = stream.Send(&httpbody.HttpBody{Data: []byte(text)}) })
}

func (s *scripted) Watch(
	ctx context.Context, req *metav1.WatchRequest, accept func() error, send func([]object.Event) error,
) error {
	s.watched = req
	return s.watch(ctx, accept, send)
}

func (s *scripted) List(context.Context, *metav1.ListRequest) (object.Items, error) {
	return object.Items{Meta: &metav1.ListMeta{ResourceVersion: "9"}, Objects: s.list}, nil
}

func (s *scripted) Get(_ context.Context, req *metav1.GetRequest) (object.Object, error) {
	for _, o := range s.list {
		if o.GetMetadata().GetName() == req.GetName() {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.PodKind, req.GetName())
}

// nodesOf serves what agents serve.
type nodesOf struct {
	corev1rpc.UnimplementedNodesServer
	proxy func(req *corev1rpc.ProxyNodeRequest, send func(kind, text string)) error
}

func (n nodesOf) Proxy(req *corev1rpc.ProxyNodeRequest, stream grpc.ServerStreamingServer[httpbody.HttpBody]) error {
	return n.proxy(req, func(kind, text string) {
		_ = stream.Send(&httpbody.HttpBody{ContentType: kind, Data: []byte(text)})
	})
}

// The rest of the path is the agent's, with its query, and the agent says what its answer is.
func TestNodeProxy(t *testing.T) {
	srv := inproc.NewServer(nil, nil)
	t.Cleanup(srv.Stop)
	corev1rpc.RegisterNodesServer(srv,
		nodesOf{proxy: func(req *corev1rpc.ProxyNodeRequest, send func(string, string)) error {
			switch req.GetPath() {
			case "none":
				return apierrors.New(apierrors.NotFound, "the agent serves no such thing")
			case "empty":
				send("text/plain", "")
				return nil
			}
			send("application/x", req.GetName()+" ")
			send("application/x", req.GetPath())
			return nil
		}})
	f := newFront(t, func(c *rest.Config) { c.Conn = srv.Conn(inproc.PassValues()) })
	for path, want := range map[string]string{
		"proxy": "", "proxy/": "", "proxy/stats/summary": "stats/summary", "proxy/a//b/c/d/e/f/g/h": "a//b/c/d/e/f/g/h",
		"proxy/stats/summary?only_cpu_and_memory=true&path=x": "stats/summary?only_cpu_and_memory=true&path=x",
		"proxy?path=pods": "pods",
	} {
		a := f.want(f.do(http.MethodGet, "/api/v1/nodes/n1/"+path, ""), 200)
		if a.body != "n1 "+want || a.header.Get("Content-Type") != "application/x" {
			t.Errorf("%s: %q of type %q", path, a.body, a.header.Get("Content-Type"))
		}
	}
	f.want(f.do(http.MethodGet, "/api/v1/nodes/n1/proxy/none", ""), 404, `"kind":"Status"`, "no such thing")
	f.want(f.do(http.MethodPost, "/api/v1/nodes/n1/proxy/pods", "{}"), 405)
	if a := f.want(f.do(http.MethodGet, "/api/v1/nodes/n1/proxy/empty", ""), 200); a.body != "" {
		t.Errorf("an empty answer is %q", a.body)
	}
}

// spec: CLI-2
func TestLogs(t *testing.T) {
	more := make(chan struct{})
	var got *corev1rpc.LogPodRequest
	s := &scripted{logs: func(req *corev1rpc.LogPodRequest, send func(string)) error {
		got = req
		send("one\n")
		<-more
		send("two\n")
		return nil
	}}
	f := s.front(t)
	w := f.watch(t, pods+"/a/log?container=c&follow=true&tailLines=5&timestamps=false&insecureSkipTLSVerifyBackend=true",
		"application/json, */*")
	if w.res.StatusCode != 200 || w.res.Header.Get("Content-Type") != "text/plain" {
		t.Fatalf("%d %v", w.res.StatusCode, w.res.Header)
	}
	if line, err := w.lines.ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("first line %q, %v: it was not flushed", line, err)
	}
	close(more)
	if line, err := w.lines.ReadString('\n'); err != nil || line != "two\n" {
		t.Fatalf("second line %q, %v", line, err)
	}
	if got.GetName() != "a" || got.GetNamespace() != "default" || got.GetContainer() != "c" || !got.GetFollow() ||
		got.GetTailLines() != 5 || got.GetTimestamps() {
		t.Errorf("request %v", got)
	}
}

func TestLogErrors(t *testing.T) {
	s := &scripted{logs: func(*corev1rpc.LogPodRequest, func(string)) error {
		return apierrors.New(apierrors.BadRequest, "container c is waiting to start")
	}}
	f := s.front(t)
	a := f.want(f.do(http.MethodGet, pods+"/a/log", ""), 400, `"kind":"Status"`, "waiting to start")
	if a.header.Get("Content-Type") != "application/json" {
		t.Errorf("Content-Type %q", a.header.Get("Content-Type"))
	}
	s.logs = func(*corev1rpc.LogPodRequest, func(string)) error { return nil }
	f.want(f.do(http.MethodGet, pods+"/a/log", ""), 200)
	s.logs = func(_ *corev1rpc.LogPodRequest, send func(string)) error {
		send("text\n")
		return apierrors.New(apierrors.ServiceUnavailable, "the node is out of reach")
	}
	if a := f.want(f.do(http.MethodGet, pods+"/a/log", ""), 200); a.body != "text\n" {
		t.Errorf("body %q", a.body)
	}
}
