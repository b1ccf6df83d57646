package probe_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/probe"
)

func number(port int) *metav1.IntOrString { return &metav1.IntOrString{IntVal: int32(port)} }

func name(port string) *metav1.IntOrString { return &metav1.IntOrString{Type: 1, StrVal: port} }

// The time that probes have, in seconds. Nothing is decided by patience. Brief is for those that end by their time, in
// which a busy machine must have begun them.
const patience, brief = 60, 2

// within gives a probe another time.
func within(seconds int32, p *corev1.Probe) *corev1.Probe {
	p.TimeoutSeconds = seconds
	return p
}

func httpGet(action *corev1.HTTPGetAction) *corev1.Probe {
	return &corev1.Probe{Handler: &corev1.ProbeHandler{HttpGet: action}, TimeoutSeconds: patience}
}

func tcp(port *metav1.IntOrString) *corev1.Probe {
	return &corev1.Probe{Handler: &corev1.ProbeHandler{TcpSocket: &corev1.TCPSocketAction{Port: port}},
		TimeoutSeconds: patience}
}

func exec(command ...string) *corev1.Probe {
	return &corev1.Probe{Handler: &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}, TimeoutSeconds: 1}
}

func grpcProbe(port int, service string) *corev1.Probe {
	return &corev1.Probe{TimeoutSeconds: patience, Handler: &corev1.ProbeHandler{
		Grpc: &corev1.GRPCAction{Port: int32(port), Service: &service},
	}}
}

// pod is a container in a pod at the loopback address.
func pod() probe.Target {
	return probe.Target{PodIP: "127.0.0.1", Container: &corev1.Container{Name: "app"}}
}

// expect makes an attempt and compares what comes of it; want is part of the message, and empty only for an empty one.
func expect(t *testing.T, p *corev1.Probe, target probe.Target, result probe.Result, want string) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	got, message := probe.Run(t.Context(), p, target)
	if got != result || !strings.Contains(message, want) || want == "" && message != "" {
		t.Errorf("%v: %q; want %v: %q", got, message, result, want)
	}
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}

// listen serves connections one after the other until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-over
	})
	return l.Addr().(*net.TCPAddr).Port
}

// request reads the head of a request.
func request(conn net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		r.Body.Close()
	}
}

// untilClosed waits until the other side has closed the connection.
func untilClosed(conn net.Conn) {
	for b := make([]byte, 1024); ; {
		if _, err := conn.Read(b); err != nil {
			return
		}
	}
}

// closedPort returns a port at which nobody listens, and nobody else can until the test ends: it is that of a client.
func closedPort(t *testing.T) int {
	t.Helper()
	server := listen(t, untilClosed)
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(server)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().(*net.TCPAddr).Port
}

func portOf(t *testing.T, s *httptest.Server) int {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// spec: PROBE-1
func TestHTTPStatus(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
		if code != http.StatusNoContent && code != http.StatusNotModified {
			fmt.Fprint(w, "secret \xff")
		}
	}))
	defer s.Close()
	for code, want := range map[int]struct {
		result  probe.Result
		message string
	}{
		200: {probe.Success, ""}, 204: {probe.Success, ""}, 299: {probe.Success, ""},
		304: {probe.Success, "Probe terminated redirects, Response body: "},
		399: {probe.Success, "Probe terminated redirects, Response body: secret \uFFFD"},
		400: {probe.Failure, "HTTP probe failed with statuscode: 400"},
		503: {probe.Failure, "HTTP probe failed with statuscode: 503"},
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			p := httpGet(&corev1.HTTPGetAction{Port: number(portOf(t, s)), Path: fmt.Sprintf("/%d", code)})
			expect(t, p, pod(), want.result, want.message)
			_, message := probe.Run(t.Context(), p, pod())
			if want.result == probe.Failure && message != want.message {
				t.Errorf("message %q, want %q", message, want.message)
			}
		})
	}
}

// What is sent is what a kubelet sends. spec: PROBE-1
func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })
	s := httptest.NewServer(handler)
	defer s.Close()
	tls := httptest.NewUnstartedServer(handler)
	tls.EnableHTTP2 = true
	tls.StartTLS()
	defer tls.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")

	target := pod()
	target.Container.Ports = []*corev1.ContainerPort{{Name: "web", ContainerPort: int32(portOf(t, s))}}
	expect(t, httpGet(&corev1.HTTPGetAction{Port: name("web"), Path: "/a?b=c"}), target, probe.Success, "")
	if got.URL.String() != "/a?b=c" || got.Host != "127.0.0.1:"+strconv.Itoa(portOf(t, s)) {
		t.Errorf("asked for %s of %s", got.URL, got.Host)
	}
	if h := got.Header; h.Get("User-Agent") != "kube-probe/1.36" || h.Get("Accept") != "*/*" || len(h) != 3 ||
		h.Get("Connection") != "close" {
		t.Errorf("headers %v", h)
	}

	action := &corev1.HTTPGetAction{Port: number(portOf(t, tls)), Scheme: "HTTPS", HttpHeaders: []*corev1.HTTPHeader{
		{Name: "Host", Value: "example.com"}, {Name: "User-agent", Value: "me"}, {Name: "accept"},
		{Name: "X-One", Value: "1"}, {Name: "X-One", Value: "2"},
	}}
	expect(t, httpGet(action), target, probe.Success, "")
	if got.Host != "example.com" || got.ProtoMajor != 2 {
		t.Errorf("asked %s by HTTP %d", got.Host, got.ProtoMajor)
	}
	if h := got.Header; h.Get("User-Agent") != "me" || h["Accept"] != nil || fmt.Sprint(h["X-One"]) != "[1 2]" {
		t.Errorf("headers %v", h)
	}
}

func TestHTTPRedirects(t *testing.T) {
	var other *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("/down", func(w http.ResponseWriter, r *http.Request) {
		left, _ := strconv.Atoi(r.URL.Query().Get("left"))
		if left > 0 {
			http.Redirect(w, r, fmt.Sprintf("/down?left=%d", left-1), http.StatusFound)
		}
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	})
	mux.HandleFunc("/port", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	defer other.Close()

	get := func(path string) *corev1.Probe {
		return httpGet(&corev1.HTTPGetAction{Port: number(portOf(t, s)), Path: path})
	}
	expect(t, get("/down?left=9"), pod(), probe.Success, "")
	expect(t, get("/down?left=10"), pod(), probe.Failure, "stopped after 10 redirects")
	expect(t, get("/away"), pod(), probe.Success, "Probe terminated redirects, Response body: <a href=")
	expect(t, get("/port"), pod(), probe.Failure, "HTTP probe failed with statuscode: 418")
}

// Whatever a server does, an attempt ends in time and takes up little. spec: PROBE-1
func TestHostileHTTP(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	for what, server := range map[string]struct {
		serve   func(net.Conn)
		result  probe.Result
		message string
	}{
		"never answers":  {untilClosed, probe.Failure, "context deadline exceeded"},
		"closes at once": {func(net.Conn) {}, probe.Failure, "Get \"http://127.0.0.1:"},
		"talks nonsense": {func(conn net.Conn) {
			request(conn)
			fmt.Fprint(conn, "what?\r\n\r\n")
		}, probe.Failure, "malformed HTTP"},
		"sends headers for ever": {func(conn net.Conn) {
			request(conn)
			fmt.Fprint(conn, head)
			for line := []byte("X-Header: " + strings.Repeat("x", 1000) + "\r\n"); ; {
				if _, err := conn.Write(line); err != nil {
					return
				}
			}
		}, probe.Failure, "server response headers exceeded"},
		"sends a body for ever": {func(conn net.Conn) {
			request(conn)
			fmt.Fprint(conn, head+"\r\n")
			for body := make([]byte, 1<<16); ; {
				if _, err := conn.Write(body); err != nil {
					return
				}
			}
		}, probe.Success, ""},
		"sends no body": {func(conn net.Conn) {
			request(conn)
			fmt.Fprint(conn, head+"Content-Length: 5\r\n\r\n")
			untilClosed(conn)
		}, probe.Unknown, "context deadline exceeded"},
		"breaks off its body": {func(conn net.Conn) {
			request(conn)
			fmt.Fprint(conn, head+"Content-Length: 5\r\n\r\nabc")
		}, probe.Unknown, "unexpected EOF"},
		"continues for ever": {func(conn net.Conn) {
			request(conn)
			for {
				if _, err := fmt.Fprint(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
					return
				}
			}
		}, probe.Failure, "Get \"http://127.0.0.1:"},
	} {
		t.Run(what, func(t *testing.T) {
			p := httpGet(&corev1.HTTPGetAction{Port: number(listen(t, server.serve))})
			if strings.Contains(server.message, "deadline") {
				within(brief, p)
			}
			expect(t, p, pod(), server.result, server.message)
		})
	}
	t.Run("is not there", func(t *testing.T) {
		p := httpGet(&corev1.HTTPGetAction{Port: number(closedPort(t))})
		expect(t, p, pod(), probe.Failure, "connection refused")
	})
	t.Run("knows no TLS", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		defer s.Close()
		p := httpGet(&corev1.HTTPGetAction{Port: number(portOf(t, s)), Scheme: "HTTPS"})
		expect(t, p, pod(), probe.Failure, "server gave HTTP response to HTTPS client")
	})
}

// What cannot be asked says nothing about the container. spec: PROBE-1
func TestUnknown(t *testing.T) {
	target := pod()
	target.Container.Ports = []*corev1.ContainerPort{{Name: "big", ContainerPort: 70000}}
	get := func(port *metav1.IntOrString) *corev1.Probe { return httpGet(&corev1.HTTPGetAction{Port: port}) }
	expect(t, get(name("other")), target, probe.Unknown, `container "app" has no port named "other"`)
	expect(t, get(name("big")), target, probe.Unknown, "invalid port number: 70000")
	expect(t, get(number(0)), target, probe.Unknown, "invalid port number: 0")
	expect(t, tcp(name("other")), target, probe.Unknown, `container "app" has no port named "other"`)
	expect(t, &corev1.Probe{}, target, probe.Unknown, `the probe of container "app" has no handler`)
	target.PodIP = ""
	expect(t, get(number(80)), target, probe.Unknown, "the pod has no address")
	expect(t, tcp(number(80)), target, probe.Unknown, "the pod has no address")
	expect(t, grpcProbe(80, ""), target, probe.Unknown, "the pod has no address")
}

// spec: PROBE-1
func TestTCP(t *testing.T) {
	open := listen(t, func(net.Conn) {}) // closes at once
	expect(t, tcp(number(open)), pod(), probe.Success, "")
	expect(t, tcp(name(strconv.Itoa(open))), pod(), probe.Success, "") // a number that was written as a string
	expect(t, tcp(number(closedPort(t))), pod(), probe.Failure, "connection refused")
	elsewhere := tcp(number(open))
	elsewhere.Handler.TcpSocket.Host = "127.0.0.1"
	target := pod()
	target.PodIP = "192.0.2.1"
	expect(t, elsewhere, target, probe.Success, "")
}

// spec: PROBE-1
func TestExec(t *testing.T) {
	type call struct {
		command []string
		timeout time.Duration
	}
	for what, c := range map[string]struct {
		output  string
		code    int32
		err     error
		result  probe.Result
		message string
	}{
		"exits with 0":          {output: "fine", result: probe.Success},
		"exits with 1":          {output: "bad \xff", code: 1, result: probe.Failure, message: "bad \uFFFD"},
		"writes much":           {output: strings.Repeat("x", 1<<20), code: 1, result: probe.Failure, message: "xxx"},
		"takes long":            {err: context.DeadlineExceeded, result: probe.Failure, message: "command timed out: "},
		"takes long, over gRPC": {err: status.Error(codes.DeadlineExceeded, ""), result: probe.Failure, message: "timed out"},
		"cannot be run":         {err: errors.New("no such container"), result: probe.Unknown, message: "no such container"},
	} {
		t.Run(what, func(t *testing.T) {
			var asked call
			target := pod()
			target.Container.Env = []*corev1.EnvVar{{Name: "FILE", Value: "/tmp/$(X)"}}
			target.Exec = func(_ context.Context, command []string, timeout time.Duration) ([]byte, int32, error) {
				asked = call{command, timeout}
				return []byte(c.output), c.code, c.err
			}
			expect(t, exec("cat", "$(FILE)", "$$(FILE)", "$(OTHER)"), target, c.result, c.message)
			want := call{[]string{"cat", "/tmp/$(X)", "$(FILE)", "$(OTHER)"}, time.Second}
			if fmt.Sprint(asked) != fmt.Sprint(want) {
				t.Errorf("asked for %v, want %v", asked, want)
			}
			if _, message := probe.Run(t.Context(), exec("x"), target); len(message) > 10<<10 {
				t.Errorf("a message of %d bytes", len(message))
			}
		})
	}
}

// serveGRPC serves the gRPC health service, if there is one.
func serveGRPC(t *testing.T, h grpc_health_v1.HealthServer) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	if h != nil {
		grpc_health_v1.RegisterHealthServer(s, h)
	}
	over := make(chan error)
	go func() { over <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-over
	})
	return l.Addr().(*net.TCPAddr).Port
}

// stuck is a health service that answers when its caller has gone.
type stuck struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (stuck) Check(
	ctx context.Context, _ *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// spec: PROBE-1
func TestGRPC(t *testing.T) {
	healthy := health.NewServer()
	healthy.SetServingStatus("up", grpc_health_v1.HealthCheckResponse_SERVING)
	healthy.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	port := serveGRPC(t, healthy)
	expect(t, grpcProbe(port, ""), pod(), probe.Success, "")
	expect(t, grpcProbe(port, "up"), pod(), probe.Success, "")
	expect(t, grpcProbe(port, "down"), pod(), probe.Failure, `service unhealthy (responded with "NOT_SERVING")`)
	expect(t, grpcProbe(port, "other"), pod(), probe.Failure, "error: health rpc probe failed: rpc error: code = ")
	expect(t, grpcProbe(serveGRPC(t, nil), ""), pod(), probe.Failure,
		"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service")
	expect(t, within(brief, grpcProbe(serveGRPC(t, stuck{}), "")), pod(), probe.Failure,
		"timeout: health rpc did not complete within 2s")
	for what, port := range map[string]int{
		"refuses": closedPort(t), "closes": listen(t, func(net.Conn) {}), "says nothing": listen(t, untilClosed),
	} {
		t.Run(what, func(t *testing.T) {
			expect(t, within(brief, grpcProbe(port, "")), pod(), probe.Failure, fmt.Sprintf("timeout: failed to connect "+
				"service \"127.0.0.1:%d\" within 2s: context deadline exceeded", port))
		})
	}
}

// An attempt that is cut short because the container is stopped is no failure of the container.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := listen(t, func(conn net.Conn) {
		cancel()
		untilClosed(conn)
	})
	target := pod()
	target.Exec = func(context.Context, []string, time.Duration) ([]byte, int32, error) { return nil, 137, nil }
	leaks := goleak.IgnoreCurrent()
	for _, p := range []*corev1.Probe{
		httpGet(&corev1.HTTPGetAction{Port: number(stop)}), tcp(number(stop)), grpcProbe(stop, ""), exec("x"),
	} {
		if result, message := probe.Run(ctx, p, target); result != probe.Unknown || message != "context canceled" {
			t.Errorf("%v: %v %q", p, result, message)
		}
	}
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}
