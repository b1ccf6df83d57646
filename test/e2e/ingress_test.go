package e2e_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serveVariable has this program serve HTTP, as a pod, at the address that it says.
const serveVariable = "E2E_SERVE_HTTP"

// serveHTTP answers with the name of its pod until SIGTERM, and then what it has begun.
func serveHTTP(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { // The test holds the port.
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failed)
	}}
	l, err := shared.Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %s\n", os.Getenv("POD_NAME"), r.Host, r.Header.Get("X-Forwarded-Proto"))
		})}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return s.Shutdown(grace)
	}
}

// server returns a pod that serves HTTP at a port of its own, which is named http.
func server(t *testing.T, name string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port := heldPort(t)
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  containers:
  - name: main
    image: host
    command: [%q]
    env: [{name: %s, value: ":%d"}, {name: POD_NAME, value: %s}]
    ports: [{name: http, containerPort: %d}]
    readinessProbe: {httpGet: {port: http}, periodSeconds: 1}
---`, name, program, serveVariable, port, name, port)
}

const webIngress = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: [{hosts: [web.example], secretName: missing}]
  rules:
  - host: web.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
`

// Requests from outside reach pods by host, over HTTP and HTTPS, and none fails while pods come and go; a restart of
// the server finds everything again. What an Ingress says is seen with kubectl. spec: WORK-4
func TestIngress(t *testing.T) {
	t.Parallel()
	dir, flags := shortDir(t), []string{"--ingress", "--ingress-http", "127.0.0.1:0", "--ingress-https", "127.0.0.1:0"}
	c := startIn(t, dir, flags...)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "get ingressclass", want: []string{`^monoplane \(default\) +monoplane.dev/ingress `}},
		{line: "apply -f -", stdin: server(t, "one") + server(t, "two") + webIngress, want: []string{
			`ingress.networking.k8s.io/web created`}},
		{line: "wait --for=condition=Ready pods -l app=web --timeout=2m"},
		{line: "wait --for=jsonpath={.status.loadBalancer.ingress[0].ip}=127.0.0.1 ingress/web --timeout=2m"},
		{line: "get ingress", want: []string{`^web +monoplane +web.example +127.0.0.1 +80, 443 `}},
	})
	k.until(t, "describe ingress web", `TLSSecretNotUsed .*missing`)
	web := fromOutside(c, t)
	seen := map[string]bool{}
	eventually(t, "both pods answer", func() (bool, string) {
		for _, scheme := range []string{"http", "https"} {
			code, text := web.get(t, scheme, "web.example")
			name, rest, _ := strings.Cut(text, " ")
			if code == http.StatusOK && rest == "web.example "+scheme+"\n" {
				seen[name] = true
			}
		}
		return seen["one"] && seen["two"], fmt.Sprint(seen)
	})
	if code, text := web.get(t, "http", "other.example"); code != http.StatusNotFound {
		t.Errorf("another host: %d %q", code, text)
	}

	// Pods are replaced, one after the other, under load.
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for !stop.Load() {
				if code, text := web.get(t, "http", "web.example"); code != http.StatusOK {
					t.Errorf("while pods are replaced: %d %q", code, text)
					return
				}
			}
		})
	}
	for _, name := range []string{"one", "two"} {
		k.tour(t, []step{
			{line: "apply -f -", stdin: server(t, "other-"+name)},
			{line: "wait --for=condition=Ready pod/other-" + name + " --timeout=2m"},
			{line: "delete pod " + name},
		})
	}
	stop.Store(true)
	clients.Wait()

	// After a restart of the server, without the pods, it goes on.
	c.signal(t, syscall.SIGTERM)
	if code := c.waitExit(t); code != 0 {
		t.Fatalf("the server ended with %d", code)
	}
	c = startIn(t, dir, flags...)
	web = fromOutside(c, t)
	eventually(t, "a pod answers after a restart", func() (bool, string) {
		code, text := web.get(t, "https", "web.example")
		return code == http.StatusOK && strings.HasPrefix(text, "other-"), fmt.Sprint(code, " ", text)
	})
	k = c.kubectl(t, k.namespace)
	k.ok(t, "delete pods -l app=web")
	eventually(t, "no pod answers", func() (bool, string) {
		code, text := web.get(t, "http", "web.example")
		return code == http.StatusServiceUnavailable, fmt.Sprint(code, " ", text)
	})
}

// requester makes requests to Ingresses.
type requester struct {
	client      *http.Client
	http, https string
}

// fromOutside returns what makes requests to the Ingresses of a cluster, by what it has printed.
func fromOutside(c *cluster, t *testing.T) requester {
	t.Helper()
	m := regexp.MustCompile(`Ingress +http://(\S+)\n +Ingress +https://(\S+)`).FindStringSubmatch(c.stdout.String())
	if m == nil {
		t.Fatalf("where Ingresses are served is not said: %s", c.stdout)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	return requester{&http.Client{Transport: transport, Timeout: patience}, m[1], m[2]}
}

// get makes a request for a host.
func (r requester) get(t *testing.T, scheme, host string) (code int, text string) {
	t.Helper()
	at := map[string]string{"http": r.http, "https": r.https}[scheme]
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+at+"/", nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	q.Host = host
	a, err := r.client.Do(q)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Error(err)
	}
	return a.StatusCode, string(body)
}

// A port that is taken, and an address without the flag that is for it, are errors of the start that say so.
func TestIngressThatCannotListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for want, flags := range map[string][]string{
		"HTTP for Ingresses: listen tcp " + l.Addr().String() + ": bind: address already in use": {
			"--ingress", "--ingress-http", l.Addr().String()},
		"--ingress-http and --ingress-https need --ingress": {"--ingress-http", "127.0.0.1:0"},
		`needs the controller "ingress"`:                    {"--ingress", "--controllers=*,-ingress"},
	} {
		c, err := start(binary(t, "monoplane"), shortDir(t), flags...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", flags, err, want)
			if c != nil {
				_ = c.end()
			}
		}
	}
}
