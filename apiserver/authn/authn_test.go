package authn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/pki"
)

// world is a server's view of time, its authority, and another authority that it does not know.
type world struct {
	now          atomic.Pointer[time.Time]
	own, foreign *pki.Bundle
	auth         *authn.Authenticator
}

const (
	token = "good-token"
	hour  = time.Hour
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w.now.Store(&now)
	var err error
	if w.own, err = pki.Ensure(filepath.Join(t.TempDir(), "own"), pki.Options{Now: w.time}); err != nil {
		t.Fatal(err)
	}
	if w.foreign, err = pki.Ensure(filepath.Join(t.TempDir(), "foreign"), pki.Options{Now: w.time}); err != nil {
		t.Fatal(err)
	}
	tokens := authn.NewTokens()
	tokens.Add(token, authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup}})
	tokens.Add("", authn.User{Name: "nobody"})
	w.auth = authn.New(authn.Config{ClientCAs: w.own.ClientCAs, Bearers: &authn.Bearers{Tokens: tokens}, Now: w.time})
	return w
}

func (w *world) time() time.Time { return *w.now.Load() }

func (w *world) pass(d time.Duration) {
	now := w.time().Add(d)
	w.now.Store(&now)
}

func issue(t *testing.T, b *pki.Bundle, name string, groups []string, ttl time.Duration) *tls.Certificate {
	t.Helper()
	id, err := b.Issue(name, groups, ttl)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(id.Cert, id.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// client returns a TLS configuration that presents cert whatever the server says it accepts.
func (w *world) client(cert *tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.own.CA())
	return &tls.Config{
		RootCAs: roots, ServerName: "localhost", Time: w.time,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert == nil {
				return &tls.Certificate{}, nil
			}
			return cert, nil
		},
	}
}

// attempt is what a client presents, and what the server is to make of it: a user, or a refusal that says why.
type attempt struct {
	name    string
	cert    *tls.Certificate
	headers []string
	user    string
	groups  []string
	refusal string
}

func attempts(t *testing.T, w *world) []attempt {
	node := issue(t, w.own, "system:node:n1", []string{authn.NodesGroup}, hour)
	server, err := w.own.ServerTLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	bearer := []string{"Bearer " + token}
	return []attempt{
		{name: "certificate", cert: node, user: "system:node:n1", groups: []string{authn.NodesGroup,
			authn.AuthenticatedGroup}},
		{name: "token", headers: bearer, user: authn.AdminName, groups: []string{authn.AdminsGroup,
			authn.AuthenticatedGroup}},
		{name: "scheme in lower case", headers: []string{"bearer " + token}, user: authn.AdminName},
		{name: "token decides over certificate", cert: node, headers: bearer, user: authn.AdminName},
		{name: "nothing", refusal: "no client certificate and no bearer token"},
		{name: "unknown authority", cert: issue(t, w.foreign, authn.AdminName, []string{authn.AdminsGroup}, hour),
			refusal: "unknown authority"},
		{name: "server certificate as client", cert: server, refusal: "not meant for clients"},
		{name: "wrong token", headers: []string{"Bearer wrong"}, refusal: "invalid bearer token"},
		{name: "wrong token with good certificate", cert: node, headers: []string{"Bearer wrong"},
			refusal: "invalid bearer token"},
		{name: "empty token", headers: []string{"Bearer "}, refusal: "Bearer TOKEN"},
		{name: "no scheme", headers: []string{token}, refusal: "Bearer TOKEN"},
		{name: "basic", headers: []string{"Basic YTpi"}, refusal: "Bearer TOKEN"},
		{name: "huge token", headers: []string{"Bearer " + strings.Repeat("x", 5000)}, refusal: "invalid bearer token"},
		{name: "two headers", headers: []string{"Bearer " + token, "Bearer " + token}, refusal: "more than one"},
	}
}

func TestHTTP(t *testing.T) {
	w := newWorld(t)
	var seen *authn.User
	server := httptest.NewUnstartedServer(behind(w.auth, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		seen = authn.UserFrom(r.Context())
		if r.Header.Get("Authorization") != "" {
			t.Error("the handler sees the credentials")
		}
	})))
	server.TLS = w.own.ServerTLS()
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	get := func(cert *tls.Certificate, path string, headers []string) (int, string) {
		t.Helper()
		seen = nil
		transport := &http.Transport{TLSClientConfig: w.client(cert), ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Authorization"] = headers
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, a := range attempts(t, w) {
		code, body := get(a.cert, "/api/v1/pods", a.headers)
		if a.refusal != "" {
			if code != 401 || !strings.Contains(body, a.refusal) || !strings.Contains(body, `"reason":"Unauthorized"`) ||
				seen != nil {
				t.Errorf("%s: %d %s (user %v), want 401 with %q", a.name, code, body, seen, a.refusal)
			}
			// Credentials that are wrong are wrong everywhere.
			if code, _ := get(a.cert, "/livez", a.headers); a.name != "nothing" && code != 401 {
				t.Errorf("%s: /livez answers %d, want 401", a.name, code)
			}
			continue
		}
		if code != 200 || seen == nil || seen.Name != a.user || a.groups != nil && !slices.Equal(seen.Groups, a.groups) {
			t.Errorf("%s: %d, user %+v, want %s in %v", a.name, code, seen, a.user, a.groups)
		}
	}
	for path, open := range map[string]bool{
		"/livez": true, "/readyz": true, "/readyz/etcd": true, "/version": true, "/healthz": true,
		"/": false, "/livezx": false, "/api": false, "/metrics": false, "/apis/version": false, "/versions": false,
	} {
		code, _ := get(nil, path, nil)
		if open && (code != 200 || seen.Name != authn.AnonymousName ||
			!slices.Equal(seen.Groups, []string{authn.UnauthenticatedGroup})) {
			t.Errorf("%s without credentials: %d as %+v", path, code, seen)
		}
		if !open && code != 401 {
			t.Errorf("%s without credentials: %d, want 401", path, code)
		}
	}
}

func TestExpiryIsCheckedOnEveryRequest(t *testing.T) {
	w := newWorld(t)
	cert := issue(t, w.own, "u", nil, hour)
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	code := func() int {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		rec := httptest.NewRecorder()
		behind(w.auth, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(rec, r)
		return rec.Code
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 200}, {59 * time.Minute, 200}, {2 * time.Minute, 401}, {-2 * time.Minute, 200}, {-3 * hour, 401}} {
		w.pass(step.after)
		if got := code(); got != step.want {
			t.Errorf("at %v: %d, want %d", w.time(), got, step.want)
		}
	}
}

// echo answers health checks with the user's name, through the status of the answer.
type echo struct {
	healthv1.UnimplementedHealthServer
	seen func(context.Context)
}

func (e echo) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	e.seen(ctx)
	return &healthv1.HealthCheckResponse{}, nil
}

func (e echo) Watch(_ *healthv1.HealthCheckRequest, s healthv1.Health_WatchServer) error {
	e.seen(s.Context())
	return s.Send(&healthv1.HealthCheckResponse{})
}

func serve(
	t *testing.T, w *world, auth *authn.Authenticator, impl healthv1.HealthServer,
) func(*tls.Certificate) healthv1.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(w.own.ServerTLS())),
		grpc.InTapHandle(auth.Tap))
	healthv1.RegisterHealthServer(server, impl)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return func(cert *tls.Certificate) healthv1.HealthClient {
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(credentials.NewTLS(w.client(cert))),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return healthv1.NewHealthClient(conn)
	}
}

func TestGRPC(t *testing.T) {
	w := newWorld(t)
	var seen *authn.User
	impl := echo{seen: func(ctx context.Context) {
		seen = authn.UserFrom(ctx)
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("authorization")) > 0 {
			t.Error("the handler sees the credentials")
		}
	}}
	// Nothing is open here, so that the health service stands for any other.
	closed := authn.New(authn.Config{ClientCAs: w.own.ClientCAs, Bearers: &authn.Bearers{Tokens: tokensOf(w)},
		Now:         w.time,
		OpenMethods: []string{}})
	dial := serve(t, w, closed, impl)
	for _, a := range attempts(t, w) {
		for _, call := range []struct {
			kind string
			do   func(context.Context, healthv1.HealthClient) error
		}{
			{"unary", func(ctx context.Context, c healthv1.HealthClient) error {
				_, err := c.Check(ctx, &healthv1.HealthCheckRequest{})
				return err
			}},
			{"stream", func(ctx context.Context, c healthv1.HealthClient) error {
				s, err := c.Watch(ctx, &healthv1.HealthCheckRequest{})
				if err != nil {
					return err
				}
				_, err = s.Recv()
				return err
			}},
		} {
			seen = nil
			ctx := t.Context()
			for _, h := range a.headers {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", h)
			}
			// What a client says about itself elsewhere is worth nothing.
			ctx = metadata.AppendToOutgoingContext(ctx, "user", authn.AdminName, "x-remote-user", authn.AdminName,
				"x-remote-group", authn.AdminsGroup)
			err := call.do(ctx, dial(a.cert))
			switch {
			case a.refusal != "":
				if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), a.refusal) || seen != nil {
					t.Errorf("%s, %s: %v (user %v), want Unauthenticated with %q", a.name, call.kind, err, seen, a.refusal)
				}
			case err != nil || seen == nil || seen.Name != a.user:
				t.Errorf("%s, %s: %v, user %+v, want %s", a.name, call.kind, err, seen, a.user)
			}
		}
	}
}

// Nobody acts as somebody else, and nobody is told that he does: the wish is refused, however it is spelled.
//
// spec: OBJ-16
func TestImpersonation(t *testing.T) {
	w := newWorld(t)
	admin := issue(t, w.own, authn.AdminName, []string{authn.AdminsGroup}, hour)
	server := httptest.NewUnstartedServer(behind(w.auth, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("reached with %v", r.Header)
	})))
	server.TLS = w.own.ServerTLS()
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	impl := echo{seen: func(context.Context) { t.Error("the service was reached") }}
	grpcClient := serve(t, w, w.auth, impl)(admin)
	for _, tc := range []struct{ header, value, want string }{
		{"Impersonate-User", "bob", `users "bob" is forbidden: User "monoplane:admin" cannot impersonate resource ` +
			`"users" in API group "" at the cluster scope`},
		{"IMPERSONATE-USER", "bob", `users "bob" is forbidden`},
		{"Impersonate-User", authn.AdminName, `users "monoplane:admin" is forbidden`},
		{"Impersonate-User", "", `users is forbidden`},
		{"impersonate-Group", "system:masters", `groups "system:masters" is forbidden`},
		{"Impersonate-Uid", "1", `uids.authentication.k8s.io "1" is forbidden`},
		{"Impersonate-Extra-Scopes%2fa", "view", `userextras/scopes/a.authentication.k8s.io "view" is forbidden`},
		{"Impersonate-Whatever", "x", "is forbidden"},
	} {
		for _, http1 := range []bool{false, true} {
			transport := &http.Transport{TLSClientConfig: w.client(admin), ForceAttemptHTTP2: !http1}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, server.URL+"/api/v1/namespaces/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header[tc.header] = []string{tc.value}
			res, err := (&http.Client{Transport: transport}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			transport.CloseIdleConnections()
			if err != nil {
				t.Fatal(err)
			}
			var st struct{ Kind, Reason, Message string }
			if err := json.Unmarshal(body, &st); err != nil || res.StatusCode != 403 || st.Kind != "Status" ||
				st.Reason != "Forbidden" ||
				!strings.Contains(strings.ToLower(st.Message), strings.ToLower(tc.want)) {
				t.Errorf("%s over %s: %d %s, want 403 and %s", tc.header, res.Proto, res.StatusCode, body, tc.want)
			}
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), tc.header, tc.value)
		_, err := grpcClient.Check(ctx, &healthv1.HealthCheckRequest{})
		if strings.Contains(tc.header, "%") {
			// gRPC's client knows no such metadata, and calls nobody.
		} else if !apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(strings.ToLower(err.Error()),
			strings.ToLower(tc.want)) {
			t.Errorf("%s over gRPC: %v, want %s", tc.header, err, tc.want)
		}
		inside := metadata.NewIncomingContext(authn.WithUser(t.Context(), &authn.User{Name: authn.AdminName}),
			metadata.Pairs(tc.header, tc.value))
		_, err = authn.Unary(inside, nil, nil, func(context.Context, any) (any, error) {
			t.Error("reached")
			return nil,
				nil
		})
		if !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s in-process: %v", tc.header, err)
		}
	}
	// First of all, who asks must be known.
	_, err := serve(t, w, w.auth, impl)(issue(t, w.foreign, "x", nil, hour)).
		Check(metadata.AppendToOutgoingContext(t.Context(), "impersonate-user", "bob"), &healthv1.HealthCheckRequest{})
	if !apierrors.Is(err, apierrors.Unauthorized) {
		t.Errorf("with wrong credentials: %v", err)
	}
}

// Where somebody judges it, a request is made as whom it asks for, its wish goes no further, and a wish that cannot be
// read is refused.
//
// spec: OBJ-16
func TestImpersonationThatIsAllowed(t *testing.T) {
	w := newWorld(t)
	a := authn.New(authn.Config{ClientCAs: w.own.ClientCAs, Now: w.time,
		Impersonate: func(_ context.Context, u *authn.User, as *authn.Wish) (*authn.User, error) {
			if as.User == "eve" {
				return nil, apierrors.New(apierrors.Forbidden, "%s may not", u.Name)
			}
			return &authn.User{Name: as.User, Groups: as.Groups, UID: as.UID, Extra: as.Extra}, nil
		}})
	admin := issue(t, w.own, authn.AdminName, []string{authn.AdminsGroup}, hour)
	var seen *authn.User
	server := httptest.NewUnstartedServer(behind(a, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = authn.UserFrom(r.Context())
		for name := range r.Header {
			if strings.HasPrefix(strings.ToLower(name), "impersonate") {
				t.Errorf("the handler sees %s", name)
			}
		}
	})))
	server.TLS = w.own.ServerTLS()
	server.StartTLS()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: w.client(admin)}}
	defer client.CloseIdleConnections()
	for _, x := range []struct {
		headers string
		code    int
		want    authn.User
	}{
		{"Impersonate-User=bob", 200, authn.User{Name: "bob"}},
		{"impersonate-user=bob impersonate-group=g impersonate-group=h impersonate-uid=1 Impersonate-Extra-A%2fb=c", 200,
			authn.User{Name: "bob", Groups: []string{"g", "h"}, UID: "1", Extra: map[string][]string{"a/b": {"c"}}}},
		{"Impersonate-User=eve", 403, authn.User{}},
		{"Impersonate-Group=g", 400, authn.User{}},
		{"Impersonate-User= ", 400, authn.User{}},
		{"Impersonate-User=bob Impersonate-User=jane", 400, authn.User{}},
		{"Impersonate-User=bob Impersonate-Whatever=x", 400, authn.User{}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		for header := range strings.FieldsSeq(x.headers) {
			name, value, _ := strings.Cut(header, "=")
			req.Header.Add(name, value)
		}
		seen = nil
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != x.code || (x.code == 200) != (seen != nil) ||
			seen != nil && !reflect.DeepEqual(*seen, x.want) {
			t.Errorf("%s: %d as %+v", x.headers, res.StatusCode, seen)
		}
	}
	got := make(chan *authn.User, 1)
	grpcClient := serve(t, w, a, echo{seen: func(ctx context.Context) {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("impersonate-user")) > 0 {
			t.Error("the service sees the wish")
		}
		got <- authn.UserFrom(ctx)
	}})(admin)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "impersonate-user", "bob")
	if _, err := grpcClient.Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	} else if u := <-got; u.Name != "bob" {
		t.Errorf("over gRPC: %+v", u)
	}
}

func tokensOf(*world) *authn.Tokens {
	tokens := authn.NewTokens()
	tokens.Add(token, authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup}})
	return tokens
}

func TestHealthServiceIsOpen(t *testing.T) {
	w := newWorld(t)
	dial := serve(t, w, w.auth, health.NewServer())
	if _, err := dial(nil).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	bad := issue(t, w.foreign, "x", nil, hour)
	if _, err := dial(bad).Check(t.Context(), &healthv1.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with a certificate of an unknown authority: %v, want Unauthenticated", err)
	}
}

func TestZeroConfigRefusesAll(t *testing.T) {
	w := newWorld(t)
	a := authn.New(authn.Config{})
	cert := issue(t, w.own, "u", nil, hour)
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, prepare := range []func(*http.Request){
		func(*http.Request) {},
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) },
		func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}} },
	} {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		prepare(r)
		rec := httptest.NewRecorder()
		behind(a, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("handler reached") })).ServeHTTP(rec,
			r)
		if rec.Code != 401 {
			t.Errorf("code %d", rec.Code)
		}
	}
}

func TestUserContext(t *testing.T) {
	if authn.UserFrom(t.Context()) != nil {
		t.Error("a user out of nowhere")
	}
	u := &authn.User{Name: "a"}
	if authn.UserFrom(authn.WithUser(t.Context(), u)) != u {
		t.Error("another user came back")
	}
}

// behind serves authenticated requests with next.
func behind(a *authn.Authenticator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r = a.Authenticate(w, r); r != nil {
			next.ServeHTTP(w, r)
		}
	})
}
