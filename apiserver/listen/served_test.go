package listen_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/listen"
	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"
)

// patience bounds what a test waits for; nothing is decided by it.
const patience = time.Minute

// served is an API server on sockets of loopback.
type served struct {
	t      *testing.T
	api    *apitest.Server
	at     *listen.Sockets
	bundle *pki.Bundle
	// before is called before calls of gRPC that have a seat; nothing when nil.
	before atomic.Pointer[func(ctx context.Context, req any)]
}

// holding registers services whose calls of gRPC wait for before, once they have a seat.
type holding struct {
	grpc.ServiceRegistrar
	*served
}

func (h holding) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Methods = slices.Clone(desc.Methods)
	for i, m := range desc.Methods {
		own.Methods[i].Handler = func(
			srv any, ctx context.Context, dec func(any) error, chain grpc.UnaryServerInterceptor,
		) (any, error) {
			return m.Handler(srv, ctx, dec, func(
				ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler,
			) (any, error) {
				return chain(ctx, req, info, func(ctx context.Context, req any) (any, error) {
					if f := h.before.Load(); f != nil {
						(*f)(ctx, req)
					}
					return serve(ctx, req)
				})
			})
		}
	}
	h.ServiceRegistrar.RegisterService(&own, impl)
}

// serve serves with these limits, and records in trail unless it is nil.
func serve(t *testing.T, limits fair.Config, trail *audit.Log) *served {
	t.Helper()
	dir := t.TempDir()
	sockets, err := listen.Open(t.Context(), "127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := pki.Ensure(filepath.Join(dir, "pki"), pki.Options{Names: sockets.Names()})
	if err != nil {
		t.Fatal(err)
	}
	api := apitest.StartWith(t, apitest.Config{API: apiserver.Config{Audit: trail}})
	s := &served{t: t, api: api, at: sockets, bundle: bundle}
	logger := slog.New(slog.DiscardHandler)
	limiter := fair.New(limits)
	server, err := sockets.Serve(t.Context(), listen.Config{
		Bundle: bundle, Bearers: api.Bearers, Impersonate: api.API.Impersonate,
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Logger: logger, Limits: limiter,
		Register: func(r grpc.ServiceRegistrar) { api.API.Register(holding{r, s}) },
		Unary:    api.API.UnaryInterceptors(), Stream: api.API.StreamInterceptors(),
		REST: rest.Config{
			Conn:  api.Inproc.Conn(inproc.PassValues(), inproc.WithContext(object.WithOwned)),
			Audit: trail, Limits: limiter, Logger: logger, Version: "1.36.3",
			Table: api.API.Table, AuthorizePath: api.API.AuthorizePath,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tls is how an administrator of this name connects.
func (s *served) tls(name string) *tls.Config {
	s.t.Helper()
	id, err := s.bundle.Issue(name, []string{authn.AdminsGroup}, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(id.Cert, id.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(id.CA)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "127.0.0.1"}
}

func (s *served) grpc(name string) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.at.GRPC(), grpc.WithTransportCredentials(credentials.NewTLS(s.tls(name))))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *served) http(name string) *http.Client {
	transport := &http.Transport{TLSClientConfig: s.tls(name), ForceAttemptHTTP2: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// ask asks over REST, and returns the answer's code, header and body.
func (s *served) ask(c *http.Client, method, path, body string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+s.at.REST()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

const maps = "/api/v1/namespaces/default/configmaps"

// hold makes gets of ConfigMap "held" over gRPC hang until the returned function is called. Entered has a message for
// each that hangs.
func (s *served) hold() (entered chan struct{}, release func()) {
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	hang := func(ctx context.Context, req any) {
		if r, ok := req.(*metav1.GetRequest); !ok || r.GetName() != "held" {
			return
		}
		entered <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
		}
	}
	s.before.Store(&hang)
	return entered, sync.OnceFunc(func() { close(leave) })
}

func (s *served) waitFor(c <-chan struct{}, n int) {
	s.t.Helper()
	for range n {
		select {
		case <-c:
		case <-time.After(patience):
			s.t.Fatal("a request has not come")
		}
	}
}

func tooMany(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !apierrors.Is(err, apierrors.TooManyRequests) {
		t.Errorf("got %v, want TooManyRequests", err)
		return
	}
	if after := apierrors.From(err).Status().GetDetails().GetRetryAfterSeconds(); after != 1 {
		t.Errorf("to come again after %d s", after)
	}
}

// A user whose calls hang has three quarters of the seats and no more, over both APIs together; others are served over
// both, and what is refused says when to come again.
func TestOneUserCannotStarveAnother(t *testing.T) {
	s := serve(t, fair.Config{Seats: 4, Queue: 1, Wait: 200 * time.Millisecond}, nil)
	entered, release := s.hold()
	defer release()
	flooder := corev1rpc.NewConfigMapsClient(s.grpc("flooder"))
	held := &metav1.GetRequest{Namespace: "default", Name: "held"}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _, _ = flooder.Get(t.Context(), held) })
	}
	s.waitFor(entered, 3)
	_, err := flooder.Get(t.Context(), held)
	tooMany(t, err)
	code, header, body := s.ask(s.http("flooder"), "GET", maps+"/held", "")
	if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" ||
		!strings.Contains(body, `"reason":"TooManyRequests"`) {
		t.Errorf("over REST the same user gets %d %v %s", code, header, body)
	}
	other := corev1rpc.NewConfigMapsClient(s.grpc("other"))
	for range 20 {
		if _, err := other.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	if code, _, body := s.ask(s.http("other"), "GET", maps, ""); code != http.StatusOK {
		t.Errorf("another user over REST: %d %s", code, body)
	}
	release()
	wg.Wait()
	if _, err := flooder.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); err != nil {
		t.Errorf("after the flood: %v", err)
	}
}

// Watches are counted apart, those of both APIs together: who has all that one may have is refused more, still asks
// everything else, and keeps nobody from watching.
func TestWatchesAreCountedApart(t *testing.T) {
	s := serve(t, fair.Config{Seats: 2, Long: 8}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := s.grpc("watcher")
	watcher := corev1rpc.NewConfigMapsClient(conn)
	initial := true
	watch := func(c corev1rpc.ConfigMapsClient) (corev1rpc.ConfigMaps_WatchClient, error) {
		stream, err := c.Watch(ctx, &metav1.WatchRequest{
			Namespace: "default", SendInitialEvents: &initial, AllowWatchBookmarks: true,
			ResourceVersionMatch: "NotOlderThan",
		})
		if err != nil {
			return nil, err
		}
		_, err = stream.Recv()
		return stream, err
	}
	for range 4 {
		if _, err := watch(watcher); err != nil {
			t.Fatal(err)
		}
	}
	_, err := watch(watcher)
	tooMany(t, err)
	code, header, _ := s.ask(s.http("watcher"), "GET", maps+"?watch=1", "")
	if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" {
		t.Errorf("over REST: %d %v", code, header)
	}
	if _, err := watcher.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); err != nil {
		t.Errorf("a list beside the watches: %v", err)
	}
	if _, err := watch(corev1rpc.NewConfigMapsClient(s.grpc("other"))); err != nil {
		t.Errorf("another user: %v", err)
	}
	cancel()
}

// The policy is applied to calls of gRPC as to requests of REST: the same levels with the same bodies, refusals for
// want of a seat included.
func TestAuditOfBothAPIs(t *testing.T) {
	policy, err := audit.ParsePolicy("policy", []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create]
  resources: [{group: "", resources: [configmaps]}]
- level: Request
  verbs: [update]
  resources: [{group: "", resources: [configmaps]}]
- level: None
  verbs: [list]
- level: Metadata
`))
	if err != nil {
		t.Fatal(err)
	}
	out := &closable{}
	trail, err := audit.NewLog(audit.Config{Policy: policy, Writer: out, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, fair.Config{Seats: 1, Queue: 1, Wait: 50 * time.Millisecond}, trail)
	web := s.http("ada")
	told := func(path, method, body string, want int) {
		t.Helper()
		if code, header, text := s.ask(web, method, path, body); code != want || header.Get("Audit-ID") == "" {
			t.Errorf("%s %s: %d %s", method, path, code, text)
		}
	}
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":%q}}`
	told(maps, "POST", fmt.Sprintf(object, "v"), 201)
	told(maps+"/a", "PUT", fmt.Sprintf(object, "w"), 200)
	told(maps, "GET", "", 200)
	told(maps+"/none", "GET", "", 404)
	told(maps+"/a", "DELETE", "", 200)

	api := corev1rpc.NewConfigMapsClient(s.grpc("ada"))
	var header metadata.MD
	made, err := api.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "v"},
	}}, grpc.Header(&header))
	if err != nil || len(header.Get("audit-id")) != 1 {
		t.Fatalf("created: %v, %v", err, header)
	}
	made.Data["k"] = "w"
	if _, err := api.Update(t.Context(), &corev1rpc.UpdateConfigMapRequest{Object: made}); err != nil {
		t.Error(err)
	}
	if _, err := api.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); err != nil {
		t.Error(err)
	}
	if _, err := api.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "none"}); err == nil {
		t.Error("there is something")
	}
	if _, err := api.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "a"}); err != nil {
		t.Error(err)
	}

	// One seat is held by somebody else, whom nobody waits for.
	entered, release := s.hold()
	blocker := corev1rpc.NewConfigMapsClient(s.grpc("blocker"))
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = blocker.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "held"}) })
	s.waitFor(entered, 1)
	told(maps+"/none", "GET", "", 429)
	_, err = api.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "none"})
	tooMany(t, err)
	release()
	wg.Wait()

	if err := trail.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var byREST, byGRPC []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			Level, Stage, RequestURI, Verb string
			User                           struct{ Username string }
			ObjectRef                      struct{ Resource, Namespace, Name, APIVersion string }
			ResponseStatus                 struct{ Code int }
			RequestObject, ResponseObject  json.RawMessage
			SourceIPs                      []string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.User.Username != "ada" {
			continue
		}
		if len(e.SourceIPs) != 1 || e.SourceIPs[0] != "127.0.0.1" {
			t.Errorf("from %v: %s", e.SourceIPs, line)
		}
		has := func(b json.RawMessage) bool { return bytes.Contains(b, []byte(`"k":`)) }
		code := e.ResponseStatus.Code
		if code == 201 {
			code = 200 // which is all that gRPC has
		}
		told := fmt.Sprint(e.Level, " ", e.Stage, " ", e.Verb, " ", e.ObjectRef, " ", code, " ",
			has(e.RequestObject), " ", has(e.ResponseObject))
		if strings.HasPrefix(e.RequestURI, "/api/") {
			byREST = append(byREST, told)
		} else {
			byGRPC = append(byGRPC, told)
		}
	}
	want := []string{
		"RequestResponse ResponseComplete create {configmaps default a v1} 200 true true",
		"Request ResponseComplete update {configmaps default a v1} 200 true false",
		"Metadata ResponseComplete get {configmaps default none v1} 404 false false",
		"Metadata ResponseComplete delete {configmaps default a v1} 200 false false",
		"Metadata ResponseComplete get {configmaps default none v1} 429 false false",
	}
	for name, got := range map[string][]string{"REST": byREST, "gRPC": byGRPC} {
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// closable is a buffer that an audit log writes to. It is read once the log is closed.
type closable struct{ bytes.Buffer }

func (*closable) Close() error { return nil }

// Selectors of 1 MB are refused in words, not by a connection that breaks or with an answer that repeats them.
func TestHugeSelectors(t *testing.T) {
	s := serve(t, fair.Config{}, nil)
	api := corev1rpc.NewConfigMapsClient(s.grpc("ada"))
	labels := "a in (" + strings.Repeat("x,", 512<<10) + "x)"
	fields := strings.Repeat("metadata.name!=x,", 64<<10) + "metadata.name=y"
	refused := func(what string, err error, text string) {
		t.Helper()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), text) || len(err.Error()) > 2000 {
			t.Errorf("%s: %.300v", what, err)
		}
	}
	for what, req := range map[string]*metav1.ListRequest{
		"labels": {Namespace: "default", LabelSelector: labels}, "fields": {Namespace: "default", FieldSelector: fields},
	} {
		_, err := api.List(t.Context(), req)
		refused(what, err, "65536 are the most")
		_, err = api.DeleteCollection(t.Context(), &metav1.DeleteCollectionRequest{
			Namespace: "default", LabelSelector: req.LabelSelector, FieldSelector: req.FieldSelector,
		})
		refused("delete by "+what, err, "65536 are the most")
		stream, err := api.Watch(t.Context(), &metav1.WatchRequest{
			Namespace: "default", LabelSelector: req.LabelSelector, FieldSelector: req.FieldSelector,
		})
		if err == nil {
			_, err = stream.Recv()
		}
		refused("watch by "+what, err, "65536 are the most")
	}
	// Of one that may be so long, and means nothing, the answer has the beginning.
	_, err := api.List(t.Context(), &metav1.ListRequest{
		Namespace: "default", LabelSelector: "a in (" + strings.Repeat("-", 60<<10) + ")",
	})
	refused("a value of 60 kB", err, "...")

	path := maps + "?labelSelector=" + strings.Repeat("x", 1<<20)
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+s.at.REST()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := &http.Transport{
		TLSClientConfig: s.tls("ada"), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	defer old.CloseIdleConnections()
	res, err := (&http.Client{Transport: old, Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a megabyte of query over HTTP/1.1: %d", res.StatusCode)
	}
	// HTTP/2 ends the connection of who sends so much in one header, unless the client knows the bound already and
	// sends nothing.
	web := s.http("ada")
	if res, err := web.Do(r); err == nil {
		_ = res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a megabyte of query over HTTP/2: %d", res.StatusCode)
		}
	}
	if code, _, body := s.ask(web, "GET", maps, ""); code != http.StatusOK {
		t.Errorf("afterwards: %d %s", code, body)
	}
}

// What is refused for want of a seat is recorded over gRPC too, streams included, although nobody reads them.
func TestRefusedStreamsAreRecorded(t *testing.T) {
	policy, err := audit.ParsePolicy("policy", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+
		"omitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	out := &closable{}
	trail, err := audit.NewLog(audit.Config{Policy: policy, Writer: out, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, fair.Config{Long: 2}, trail)
	api := corev1rpc.NewConfigMapsClient(s.grpc("ada"))
	initial := true
	for i := range 2 {
		stream, err := api.Watch(t.Context(), &metav1.WatchRequest{
			Namespace: "default", SendInitialEvents: &initial, AllowWatchBookmarks: true,
			ResourceVersionMatch: "NotOlderThan",
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); i == 0 && err != nil {
			t.Fatal(err)
		} else if i == 1 {
			tooMany(t, err)
		}
	}
	if err := trail.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"code":429`) || !strings.Contains(out.String(), `"username":"ada"`) {
		t.Errorf("recorded: %.2000s", out.String())
	}
}
