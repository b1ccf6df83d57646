package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"monoplane.dev/apiserver/pki"
	"monoplane.dev/client"
)

// answer is what a plain HTTP request got.
type answer struct {
	code    int
	header  http.Header
	body    string
	warning string
}

// send makes a plain HTTP request, as curl would.
func send(t *testing.T, client *http.Client, method, url, contentType, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data), resp.Header.Get("Warning")}
}

// http returns a client with the administrator's certificate.
func (c *cluster) http(t *testing.T) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// httpAs returns a client that shows another certificate, or none.
func (c *cluster) httpAs(t *testing.T, id *pki.Identity) *http.Client {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(ca)
	if id != nil {
		pair, err := tls.X509KeyPair(id.Cert, id.Key)
		if err != nil {
			t.Fatal(err)
		}
		// Even when the server does not list the authority among those it accepts.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	c := shared(t)
	admin := c.http(t)
	for _, tc := range []struct{ path, want string }{
		{"/readyz", `\Aok\z`},
		{"/livez", `\Aok\z`},
		{"/healthz", `\Aok\z`},
		{"/readyz?verbose", `(?s)\[\+\]store ok.*\[\+\]scheduler ok.*\[\+\]podgc ok.*\[\+\]nodes ok.*readyz check passed`},
		{"/readyz/store", `\Aok\z`},
		{"/livez?verbose", `\[\+\]store ok`},
		{"/metrics", `(?m)^# TYPE \S+ histogram$`},
		{"/version", `"major": ?"1"`},
		{"/api", `"versions"`},
		{"/openapi/v3", `"api/v1"`},
		{"/api/v1/nodes", `"kind":"NodeList"`},
	} {
		got := send(t, admin, "GET", c.url+tc.path, "", "")
		if got.code != http.StatusOK || !regexp.MustCompile(tc.want).MatchString(got.body) {
			t.Errorf("GET %s: %d, want 200 and %s\n%.600s", tc.path, got.code, tc.want, got.body)
		}
	}
}

// Metrics are for administrators and for monitoring; whoever else has a certificate of the cluster gets 403.
//
// spec: OBJ-15
func TestWhoMayReadMetrics(t *testing.T) {
	t.Parallel()
	c := shared(t)
	bundle, err := pki.Ensure(filepath.Join(c.dir, "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		groups []string
		want   int
	}{
		{"prometheus", []string{"system:monitoring"}, http.StatusOK},
		{"jane", nil, http.StatusForbidden},
		{"system:node:n", []string{"system:nodes"}, http.StatusForbidden},
	} {
		id, err := bundle.Issue(tc.name, tc.groups, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got := send(t, c.httpAs(t, &id), "GET", c.url+"/metrics", "", ""); got.code != tc.want {
			t.Errorf("%s: %d, want %d\n%.300s", tc.name, got.code, tc.want, got.body)
		}
		if got := send(t, c.httpAs(t, &id), "GET", c.url+"/readyz", "", ""); got.code != http.StatusOK {
			t.Errorf("%s: /readyz: %d", tc.name, got.code)
		}
		cfg, err := client.LoadConfig(c.kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(id.Cert, id.Key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
		cl, err := client.Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		stream, err := reflectionpb.NewServerReflectionClient(cl.Conn()).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		if err == nil || errors.Is(err, io.EOF) {
			_, err = stream.Recv()
		}
		if denied := status.Code(err) == codes.PermissionDenied; denied != (tc.want == http.StatusForbidden) ||
			err != nil && !denied {
			t.Errorf("reflection for %s: %v", tc.name, err)
		}
	}
}

// A pod from curl: create, get, log, delete.
// spec: OBJ-15, DEL-1
func TestCurl(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	admin, base := c.http(t), c.url+"/api/v1/namespaces/"+ns+"/pods"
	manifest, err := os.ReadFile(example(t, "hello.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := send(t, admin, "POST", base, "application/yaml", string(manifest)); got.code != http.StatusCreated {
		t.Fatalf("create: %d %s", got.code, got.body)
	}
	eventually(t, "a line in the log", func() (bool, string) {
		got := send(t, admin, "GET", base+"/hello/log", "", "")
		return strings.Contains(got.body, "hello 1 from hello\n"), got.body
	})
	got := send(t, admin, "DELETE", base+"/hello", "application/json", `{"gracePeriodSeconds":5}`)
	if got.code != http.StatusOK || !strings.Contains(got.body, `"deletionGracePeriodSeconds":5`) {
		t.Errorf("delete: %d %s", got.code, got.body)
	}
	eventually(t, "the pod's end", func() (bool, string) {
		got := send(t, admin, "GET", base+"/hello", "", "")
		return got.code == http.StatusNotFound, got.body
	})
	got = send(t, admin, "DELETE", base+"/hello?gracePeriodSeconds=0", "", "")
	if got.code != http.StatusNotFound || !strings.Contains(got.body, `"reason":"NotFound"`) {
		t.Errorf("delete again: %d %s", got.code, got.body)
	}
}

// spec: CLI-1, DEL-4
func TestCurlForceIsWarned(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	c.pods(t, ns).run(t, sleeper("f"))
	got := send(t, c.http(t), "DELETE", c.url+"/api/v1/namespaces/"+ns+"/pods/f?gracePeriodSeconds=0", "", "")
	if got.code != http.StatusOK || !strings.HasPrefix(got.warning, `299 - "`) ||
		!strings.Contains(got.warning, "may go on running") {
		t.Errorf("%d, warning %q", got.code, got.warning)
	}
	if !bytes.Contains([]byte(got.body), []byte(`"deletionGracePeriodSeconds":0`)) {
		t.Errorf("body: %s", got.body)
	}
}
