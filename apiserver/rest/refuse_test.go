package rest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const pods = "/api/v1/namespaces/default/pods"

// spec: OBJ-3, CLI-2
func TestRefusals(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	tests := []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		reason, message          string
	}{
		{name: "unknown path", method: "GET", path: "/nothing", code: 404, reason: "NotFound",
			message: "could not find the requested resource"},
		{name: "unknown resource", method: "GET", path: "/api/v1/widgets", code: 404, reason: "NotFound"},
		{name: "unknown group", method: "GET", path: "/apis/example.com/v1", code: 404, reason: "NotFound"},
		{name: "missing object", method: "GET", path: pods + "/b", code: 404, reason: "NotFound",
			message: `pods "b" not found`},
		{name: "empty name", method: "DELETE", path: pods + "/", code: 404, reason: "NotFound"},
		{name: "empty namespace", method: "GET", path: "/api/v1/namespaces//pods", code: 404, reason: "NotFound"},
		{name: "wrong method", method: "PUT", path: pods, body: pod, code: 405, reason: "MethodNotAllowed"},
		{name: "wrong method on a document", method: "POST", path: "/apis", body: "{}", code: 405,
			reason: "MethodNotAllowed"},
		{name: "unacceptable", method: "GET", path: pods, headers: []string{"Accept", "text/html"}, code: 406,
			reason: "NotAcceptable"},
		{name: "yaml watch", method: "GET", path: pods + "?watch=true", headers: []string{"Accept", "application/yaml"},
			code: 406, reason: "NotAcceptable"},
		{name: "form", method: "POST", path: pods, body: pod, headers: []string{"Content-Type",
			"application/x-www-form-urlencoded"}, code: 415, reason: "UnsupportedMediaType"},
		{name: "patch as json", method: "PATCH", path: pods + "/a", body: "{}",
			headers: []string{"Content-Type", "application/json"}, code: 415, reason: "UnsupportedMediaType"},
		{name: "malformed", method: "POST", path: pods, body: `{"kind":`, code: 400, reason: "BadRequest",
			message: "json parse error"},
		{name: "not an object", method: "POST", path: pods, body: `[1]`, code: 400, reason: "BadRequest"},
		{name: "empty", method: "POST", path: pods, code: 400, reason: "BadRequest"},
		{name: "wrong type", method: "POST", path: pods, body: `{"spec":{"containers":"x"}}`, code: 400,
			reason: "BadRequest", message: `Pod in version "v1" cannot be handled as a Pod: spec.containers`},
		{name: "wrong kind", method: "POST", path: pods, body: `{"apiVersion":"v1","kind":"Node"}`, code: 400,
			reason: "BadRequest", message: `Node in version "v1" cannot be handled as a Pod`},
		{name: "wrong version", method: "POST", path: pods, body: `{"apiVersion":"v2","kind":"Pod"}`, code: 400,
			reason: "BadRequest", message: "the API version in the data (v2) does not match the expected API version (v1)"},
		{name: "strict", method: "POST", path: pods + "?fieldValidation=Strict", body: `{"spec":{"foo":1,"x":2}}`, code: 400,
			reason: "BadRequest", message: `Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown ` +
				`field "spec.foo", unknown field "spec.x"`},
		{name: "strict duplicate", method: "POST", path: pods + "?fieldValidation=Strict",
			body: `{"kind":"Pod","metadata":{"name":"x","name":"y"}}`, code: 400, reason: "BadRequest",
			message: `duplicate field "metadata.name"`},
		{name: "unknown validation", method: "POST", path: pods + "?fieldValidation=Maybe", body: pod, code: 422,
			reason: "Invalid", message: "fieldValidation"},
		{name: "too deep", method: "POST", path: pods, body: deep, code: 400, reason: "BadRequest",
			message: "nested deeper"},
		{name: "too deep for yaml", method: "POST", path: pods, body: strings.Repeat("[", 100000),
			headers: []string{"Content-Type", "application/yaml"}, code: 400, reason: "BadRequest"},
		{name: "too large", method: "POST", path: pods, body: strings.Repeat(" ", rest.MaxBody+1), code: 413,
			reason: "RequestEntityTooLarge"},
		{name: "not protobuf", method: "POST", path: pods, body: pod, headers: []string{"Content-Type",
			"application/vnd.kubernetes.protobuf"}, code: 400, reason: "BadRequest"},
		{name: "malformed query", method: "GET", path: pods + "?limit=%zz", code: 400, reason: "BadRequest"},
		{name: "not a number", method: "GET", path: pods + "?limit=many", code: 400, reason: "BadRequest", message: "limit"},
		{name: "bad selector", method: "GET", path: pods + "?labelSelector=%21%21", code: 400, reason: "BadRequest"},
		{name: "bad include", method: "GET", path: pods + "?includeObject=All",
			headers: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, code: 400, reason: "BadRequest"},
		{name: "empty patch", method: "PATCH", path: pods + "/a", headers: []string{"Content-Type",
			"application/merge-patch+json"}, code: 400, reason: "BadRequest"},
		{name: "options of another kind", method: "DELETE", path: pods + "/a", body: `{"kind":"Pod"}`, code: 400,
			reason: "BadRequest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			headers := tt.headers
			if tt.body != "" && len(headers) == 0 {
				headers = []string{"Content-Type", "application/json"}
			}
			a := f.do(tt.method, tt.path, tt.body, headers...)
			if a.code != tt.code {
				t.Fatalf("code %d, want %d: %s", a.code, tt.code, a.body)
			}
			st := a.object(t)
			if st["kind"] != "Status" || st["apiVersion"] != "v1" || st["status"] != "Failure" ||
				st["reason"] != tt.reason || st["code"] != float64(tt.code) {
				t.Errorf("not the Status that was expected: %s", a.body)
			}
			if message, _ := st["message"].(string); !strings.Contains(message, tt.message) {
				t.Errorf("message %q lacks %q", message, tt.message)
			}
		})
	}
	f.want(f.do("GET", pods, ""), 200, `"name":"a"`)
}

// A server that lacks a service, as an older one does, is told so in the words of HTTP.
//
// spec: OBJ-15
func TestNotImplemented(t *testing.T) {
	f := newFront(t, func(cfg *rest.Config) { cfg.Conn = inproc.NewServer(nil, nil).Conn() })
	f.want(f.do("GET", pods, ""), 405, `"reason":"MethodNotAllowed"`)
}

// A body whose length is not announced is bounded all the same.
func TestChunkedBodyIsBounded(t *testing.T) {
	f := newFront(t)
	body := struct{ *strings.Reader }{strings.NewReader(strings.Repeat(" ", rest.MaxBody+100))}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", f.http.URL+pods, body)
	req.ContentLength = -1
	res, err := f.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("code %d, want 413", res.StatusCode)
	}
}

// spec: OBJ-3
func TestFieldValidationWarns(t *testing.T) {
	f := newFront(t)
	body := strings.Replace(pod, `"spec":{`, `"spec":{"foo":1,`, 1)
	for _, mode := range []string{"", "&fieldValidation=Warn"} {
		a := f.want(f.do("POST", pods+"?dryRun=All"+mode, body), 201)
		if got := a.header["Warning"]; len(got) != 1 || got[0] != `299 - "unknown field \"spec.foo\""` {
			t.Errorf("mode %q: warnings %q", mode, got)
		}
		f.do("DELETE", pods+"/a", "")
	}
	a := f.want(f.do("POST", pods+"?fieldValidation=Ignore", body), 201)
	if got := a.header["Warning"]; got != nil {
		t.Errorf("Ignore: warnings %q", got)
	}
}

// Options of a deletion with a field that does not exist are accepted, whatever fieldValidation says, and warned
// about: a misspelt precondition would otherwise be none.
//
// spec: OBJ-3, DEL-5
func TestDeleteOptionsWarn(t *testing.T) {
	const unknown, twice = `299 - "unknown field \"gracePeriod\""`, `299 - "duplicate field \"gracePeriodSeconds\""`
	f := newFront(t)
	for _, tt := range []struct {
		name, path, body, contentType string
		warnings                      []string
	}{
		{"unknown", pods + "/a", `{"gracePeriod":0}`, "application/json", []string{unknown}},
		{"collection", pods, `{"gracePeriod":0}`, "application/json", []string{unknown}},
		{"yaml", pods + "/a", "gracePeriod: 0", "application/yaml", []string{unknown}},
		{"strict", pods + "/a?fieldValidation=Strict", `{"gracePeriod":0}`, "application/json", []string{unknown}},
		{"ignore", pods + "/a?fieldValidation=Ignore", `{"gracePeriod":0}`, "application/json", []string{unknown}},
		{"nested", pods + "/a", `{"preconditions":{"name":"x"}}`, "application/json",
			[]string{`299 - "unknown field \"preconditions.name\""`}},
		{"twice", pods + "/a", `{"gracePeriodSeconds":1,"gracePeriodSeconds":0}`, "application/json", []string{twice}},
		{"known", pods + "/a", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`, "application/json", nil},
		{"none", pods + "/a", "", "application/json", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.createPod("a")
			a := f.want(f.do("DELETE", tt.path, tt.body, "Content-Type", tt.contentType), 200)
			if got := a.header["Warning"]; !slices.Equal(got, tt.warnings) {
				t.Errorf("warnings %q, want %q", got, tt.warnings)
			}
			f.want(f.do("GET", pods+"/a", ""), 404)
		})
	}
}

// Warnings come from the service by the context (in-process) or by header metadata (over the wire).
func TestWarningsFromTheService(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	f.api.React(func(ctx context.Context, _ string, _ any) error {
		warning.Add(ctx, `mind the "gap"`)
		return grpc.SetHeader(ctx, metadata.Pairs(warning.MetadataKey, "over the wire", warning.MetadataKey,
			`mind the "gap"`))
	})
	a := f.want(f.do("GET", pods+"/a", ""), 200)
	if got := strings.Join(a.header["Warning"], "|"); got != `299 - "mind the \"gap\""|299 - "over the wire"` {
		t.Errorf("warnings %s", got)
	}
	f.api.React(func(ctx context.Context, _ string, _ any) error {
		warning.Add(ctx, "refused because")
		return apierrors.NewForbidden(corev1.PodKind, "a", "no")
	})
	a = f.want(f.do("GET", pods+"/a", ""), 403)
	if got := strings.Join(a.header["Warning"], "|"); got != `299 - "refused because"` {
		t.Errorf("warnings with an error: %s", got)
	}
}

// The query sets what the request message takes from it, and nothing that the path or the body names.
func TestQueryCannotOverride(t *testing.T) {
	f := newFront(t)
	var got any
	f.api.React(func(_ context.Context, _ string, req any) error { got = req; return nil })
	f.do("GET", "/api/v1/pods?namespace=x&limit=5&limit=6&unknown=1&labelSelector=a%3Db", "")
	if r, ok := got.(*metav1.ListRequest); !ok || r.GetNamespace() != "" || r.GetLimit() != 5 ||
		r.GetLabelSelector() != "a=b" {
		t.Errorf("list: %v", got)
	}
	f.do("DELETE", pods+"/a?name=b&namespace=y&options.gracePeriodSeconds=0&gracePeriodSeconds=7&dryRun=All&dryRun=x",
		`{"preconditions":{"uid":"u"}}`)
	if r, ok := got.(*metav1.DeleteRequest); !ok || r.GetName() != "a" || r.GetNamespace() != "default" ||
		r.GetOptions().GracePeriodSeconds != nil || r.GetGracePeriodSeconds() != 7 || len(r.GetDryRun()) != 2 ||
		r.GetOptions().GetPreconditions().GetUid() != "u" {
		t.Errorf("delete: %v", got)
	}
	f.do("PATCH", pods+"/a?patchType=x&force=1&patch=aGk%3D&fieldManager=m", "{}", "Content-Type",
		"application/merge-patch+json; charset=utf-8")
	if r, ok := got.(*metav1.PatchRequest); !ok || r.GetPatchType() != "application/merge-patch+json" || !r.GetForce() ||
		string(r.GetPatch()) != "{}" || r.GetFieldManager() != "m" {
		t.Errorf("patch: %v", got)
	}
	f.do("PATCH", pods+"/a", "- x", "Content-Type", "application/apply-patch+yaml")
	if r, ok := got.(*metav1.PatchRequest); !ok || r.GetPatchType() != "application/apply-patch+yaml" ||
		string(r.GetPatch()) != "- x" {
		t.Errorf("apply: %v", got)
	}
	f.do("POST", pods+"?object.metadata.name=evil&dryRun=All&fieldManager=m", pod)
	if r, ok := got.(*corev1rpc.CreatePodRequest); !ok || r.GetObject().GetMetadata().GetName() != "a" ||
		r.GetFieldManager() != "m" || len(r.GetDryRun()) != 1 {
		t.Errorf("create: %v", got)
	}
}

// spec: OBJ-15
func TestHeadersCannotBecomeMetadata(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	var md metadata.MD
	f.api.React(func(ctx context.Context, _ string, _ any) error {
		md, _ = metadata.FromIncomingContext(ctx)
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the call has no deadline")
		}
		return nil
	})
	f.want(f.do("GET", pods+"/a", "", "Grpc-Metadata-User", "root", "Grpc-Timeout", "1n", "Authorization", "Bearer x",
		"X-Forwarded-For", "1.2.3.4", "X-HTTP-Method-Override", "DELETE"), 200)
	if len(md) != 0 {
		t.Errorf("metadata %v", md)
	}
}

// spec: OBJ-15
func TestInternalErrorsAreNotLeaked(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	f.api.React(func(context.Context, string, any) error { return apierrors.NewInternal(errors.New("secret")) })
	a := f.want(f.do("GET", pods+"/a", ""), 500, `"reason":"InternalError"`)
	if strings.Contains(a.body, "secret") {
		t.Errorf("leaked: %s", a.body)
	}
	f.api.React(func(context.Context, string, any) error { panic("secret panic") })
	a = f.want(f.do("GET", pods+"/a", ""), 500, `"reason":"InternalError"`)
	if strings.Contains(a.body, "secret") {
		t.Errorf("leaked: %s", a.body)
	}
}

func TestPanicInTheFrontIsA500(t *testing.T) {
	f := newFront(t, func(c *rest.Config) {
		c.Authenticate = func(http.ResponseWriter, *http.Request) *http.Request { panic("secret") }
	})
	a := f.want(f.do("GET", pods, ""), 500, `"reason":"InternalError"`)
	if strings.Contains(a.body, "secret") || !strings.Contains(f.log.String(), "secret") {
		t.Errorf("body %s, log %s", a.body, f.log)
	}
}

// What panics with an object may hold a Secret's values: the log has the type, and the stack.
func TestPanicWithAnObject(t *testing.T) {
	f := newFront(t, func(c *rest.Config) {
		c.Authenticate = func(http.ResponseWriter, *http.Request) *http.Request {
			panic(&corev1.Secret{StringData: map[string]string{"k": "hunter2"}})
		}
	})
	a := f.want(f.do("GET", pods, ""), 500, `"reason":"InternalError"`)
	if log := f.log.String(); strings.Contains(a.body+log, "hunter2") || !strings.Contains(log, "*corev1.Secret") ||
		!strings.Contains(log, "refuse_test.go") {
		t.Errorf("body %s, log %s", a.body, log)
	}
}

// panicky fails at its last row.
type panicky struct{ table.Default }

func (p panicky) Cells(o object.Object, now time.Time) []any {
	if o.GetMetadata().GetName() == "pod-02999" {
		panic("secret")
	}
	return p.Default.Cells(o, now)
}

// Half a list must not look like a whole one.
func TestPanicInTheMiddleBreaksOff(t *testing.T) {
	s := &scripted{list: benchPods(3000)}
	f := s.front(t, func(c *rest.Config) { c.Table = func(*object.Kind) table.Definition { return panicky{} } })
	w := f.watch(t, pods, asTable)
	if _, err := io.ReadAll(w.lines); err == nil || w.res.StatusCode != 200 {
		t.Errorf("the answer ended with %v after %d", err, w.res.StatusCode)
	}
	if !strings.Contains(f.log.String(), "secret") {
		t.Errorf("the log has no trace: %s", f.log)
	}
}

// Who has not shown who it is reads health and version, and nothing else.
//
// spec: SEC-2
func TestAnonymous(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("figures")) })
	f := newFront(t, func(c *rest.Config) {
		c.Paths = map[string]http.Handler{"/metrics": metrics, "/debug/": metrics}
		c.AuthorizePath = func(_ context.Context, verb, path string) error {
			if verb == "get" && (path == "/metrics" || path == "/debug/mine") {
				return nil
			}
			return apierrors.New(apierrors.Forbidden, "no")
		}
	})
	f.want(f.do("GET", "/metrics", ""), 200, "figures")
	f.want(f.do("POST", "/metrics", ""), 405)
	f.want(f.do("GET", "/debug/mine", ""), 200, "figures")
	f.want(f.do("GET", "/debug/others", ""), 403)
	f.want(f.do("GET", "/metrics/others", ""), 404)
	for _, path := range []string{
		"/api", "/apis", "/api/v1", "/openapi/v3", "/openapi/v3/api/v1", "/metrics", "/debug/mine", "/",
	} {
		f.want(f.do("GET", path, "", "X-Test-Anonymous", "1"), 401, `"reason":"Unauthorized"`)
	}
	for _, path := range []string{"/healthz", "/livez", "/version", "/readyz/etcd"} {
		f.want(f.do("GET", path, "", "X-Test-Anonymous", "1"), 200)
		f.want(f.do("GET", path, "", "Impersonate-User", "bob"), 403, `users \"bob\" is forbidden`)
	}
	f = newFront(t, func(c *rest.Config) { c.Paths = map[string]http.Handler{"/metrics": metrics} })
	f.want(f.do("GET", "/metrics", ""), 403, `"reason":"Forbidden"`)
}

// Too many requests at once are refused after a while, not queued without end; streams do not count.
func TestMaxInFlight(t *testing.T) {
	f := newFront(t, func(c *rest.Config) {
		c.Limits = fair.New(fair.Config{Seats: 1, Wait: time.Millisecond})
	})
	f.createPod("a")
	entered, leave := make(chan struct{}), make(chan struct{})
	f.api.React(func(ctx context.Context, _ string, _ any) error {
		close(entered)
		<-leave
		return nil
	})
	done := make(chan answer)
	go func() { done <- f.do("GET", pods+"/a", "") }()
	<-entered
	f.api.React(nil)
	a := f.want(f.do("GET", pods+"/a", ""), 429, `"reason":"TooManyRequests"`)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	close(leave)
	f.want(<-done, 200)
	f.want(f.do("GET", pods+"/a", ""), 200)
}

// Streams have a bound of their own, beyond which one user is refused, with a time after which to come again.
func TestManyWatches(t *testing.T) {
	f := newFront(t, func(c *rest.Config) { c.Limits = fair.New(fair.Config{Long: 4}) })
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.http.URL+pods+"?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.http.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	for _, path := range []string{pods + "?watch=1", pods + "/a/log?follow=true"} {
		a := f.want(f.do("GET", path, ""), 429, `"reason":"TooManyRequests"`)
		if a.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
	f.want(f.do("GET", pods, ""), 200)
	cancel()
}
