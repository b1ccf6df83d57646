package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/inproc"
)

// front is a REST front over an API server.
type front struct {
	t    testing.TB
	api  *apitest.Server
	h    *rest.Handler
	http *httptest.Server
	log  *bytes.Buffer
}

// asAdmin authenticates everybody but those who say that they are nobody.
func asAdmin(_ http.ResponseWriter, r *http.Request) *http.Request {
	u := &authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup, authn.AuthenticatedGroup}}
	if r.Header.Get("X-Test-Anonymous") != "" {
		u = &authn.User{Name: authn.AnonymousName, Groups: []string{authn.UnauthenticatedGroup}}
	}
	return r.WithContext(authn.WithUser(r.Context(), u))
}

func newFront(t testing.TB, change ...func(*rest.Config)) *front {
	t.Helper()
	f := &front{t: t, api: apitest.Start(t), log: &bytes.Buffer{}}
	cfg := rest.Config{
		Conn: f.api.Conn(nil, inproc.PassValues()), Authenticate: asAdmin, Version: "1.36.3+monoplane",
		Logger: slog.New(slog.NewTextHandler(f.log, nil)),
		Ready: []rest.Check{
			{Name: "etcd", Run: func(context.Context) error { return nil }},
			{Name: "node", Run: func(context.Context) error { return errors.New("secret reason") }},
		},
		Live: []rest.Check{{Name: "etcd", Run: func(context.Context) error { return nil }}},
		Now:  func() time.Time { return time.Now() },
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if f.h, err = rest.New(cfg); err != nil {
		t.Fatal(err)
	}
	f.http = httptest.NewUnstartedServer(f.h)
	f.http.EnableHTTP2 = true
	f.http.StartTLS()
	t.Cleanup(func() {
		f.h.Close()
		f.http.Close()
	})
	return f
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   string
}

// object returns the body as JSON.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("body is not JSON: %v\n%s", err, a.body)
	}
	return v
}

// revision returns the resourceVersion of the object in the body.
func (a answer) revision(t testing.TB) string {
	t.Helper()
	meta, _ := a.object(t)["metadata"].(map[string]any)
	text, _ := meta["resourceVersion"].(string)
	return text
}

// do sends a request; headers come in pairs.
func (f *front) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.http.URL+path, r)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := f.http.Client().Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

// want fails the test unless the answer has the code, and the body all of the texts.
func (f *front) want(a answer, code int, texts ...string) answer {
	f.t.Helper()
	if a.code != code {
		f.t.Errorf("code %d, want %d; body: %s", a.code, code, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			f.t.Errorf("body lacks %q:\n%s", text, a.body)
		}
	}
	return a
}

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default"},` +
	`"spec":{"containers":[{"name":"c","image":"host"}]}}`

func (f *front) createPod(name string) answer {
	f.t.Helper()
	body := strings.Replace(pod, `"name":"a"`, `"name":"`+name+`"`, 1)
	return f.want(f.do("POST", "/api/v1/namespaces/default/pods", body, "Content-Type", "application/json"), 201)
}
