//go:build kubernetes

package oracle

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	remote "k8s.io/cri-client/pkg"
	upstreamprobe "k8s.io/kubernetes/pkg/probe"
	execprobe "k8s.io/kubernetes/pkg/probe/exec"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
	utilexec "k8s.io/utils/exec"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/probe"
)

const loopback = "127.0.0.1"

// outcome is what both sides say of one attempt.
type outcome struct {
	result  probe.Result
	message string
}

// kubelets words what a kubelet makes of an attempt: an error throws the result away, and what is said of a success
// is only logged.
func kubelets(result upstreamprobe.Result, message string, err error) outcome {
	switch {
	case err != nil:
		return outcome{probe.Unknown, ""}
	case result == upstreamprobe.Success:
		return outcome{probe.Success, ""}
	case result == upstreamprobe.Warning:
		return outcome{probe.Success, message}
	case result == upstreamprobe.Failure:
		return outcome{probe.Failure, message}
	default:
		return outcome{probe.Unknown, ""}
	}
}

var (
	ownPort = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
	// badHeader is a header that cannot be sent: the first of them in an order that is random.
	badHeader = regexp.MustCompile(`invalid header field .*`)
	// cutOff is how the end of a connection or of the time shows, which depends on who was quicker.
	cutOff = regexp.MustCompile(` \(Client\.Timeout .*\)|` +
		`(unexpected )?EOF|(read|write) tcp \S+: \S+: (connection reset by peer|broken pipe)`)
)

// wording leaves out of a message what is not the same twice.
func (o outcome) wording() outcome {
	o.message = strings.ToValidUTF8(o.message, "\uFFFD")
	o.message = cutOff.ReplaceAllString(ownPort.ReplaceAllString(o.message, ""), "CUT OFF")
	o.message = badHeader.ReplaceAllString(o.message, "BAD HEADER")
	if o.result == probe.Unknown {
		o.message = ""
	}
	return o
}

// attempt makes an attempt by our own code.
func attempt(t *testing.T, handler v1.ProbeHandler, container *v1.Container, exec execFunc) outcome {
	t.Helper()
	p, err := ours(&v1.Probe{ProbeHandler: handler, TimeoutSeconds: 1}, &corev1.Probe{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ours(container, &corev1.Container{})
	if err != nil {
		t.Fatal(err)
	}
	result, message := probe.Run(context.Background(), p, probe.Target{PodIP: loopback, Container: c, Exec: exec})
	return outcome{result, message}
}

type execFunc = func(ctx context.Context, command []string, timeout time.Duration) ([]byte, int32, error)

// tries is how often both sides may differ before it counts: a machine that is busy for a second times one of them
// out.
const tries = 3

// compareAttempts lets a kubelet's prober and ours make an attempt each, and returns our result.
func compareAttempts(t *testing.T, what string, theirs, our func() outcome) probe.Result {
	t.Helper()
	want, got := theirs().wording(), our().wording()
	for i := 1; want != got && i < tries; i++ {
		want, got = theirs().wording(), our().wording()
	}
	if want != got {
		t.Errorf("%s:\n  Kubernetes %v: %.300q\n  Monoplane  %v: %.300q", what, want.result, want.message, got.result,
			got.message)
	}
	return got.result
}

// answers serves the same answer to all requests, and remembers the last request.
type answers struct {
	net.Listener
	answer string
	// close is closed when the listener is, for connections that are held open.
	closed  chan struct{}
	request chan []byte
}

func serveAnswer(t *testing.T, cert *tls.Certificate, hang bool, answer func(address string) string) *answers {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	a := &answers{Listener: l, answer: answer(l.Addr().String()), closed: make(chan struct{}),
		request: make(chan []byte, 100)}
	if cert != nil {
		a.Listener = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*cert}})
	}
	go func() {
		for {
			conn, err := a.Accept()
			if err != nil {
				return
			}
			go a.serve(conn, hang)
		}
	}()
	t.Cleanup(func() { close(a.closed); a.Close() })
	return a
}

func (a *answers) serve(conn net.Conn, hang bool) {
	defer conn.Close()
	var request bytes.Buffer
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &request)))
	if err != nil {
		return
	}
	r.Body.Close()
	a.request <- request.Bytes()
	_, _ = io.WriteString(conn, a.answer)
	if hang {
		<-a.closed
	}
}

func (a *answers) port() int {
	if t, ok := a.Addr().(*net.TCPAddr); ok {
		return t.Port
	}
	return 0
}

// requests returns what was asked for since the last time.
func (a *answers) requests() string {
	var all []string
	for {
		select {
		case r := <-a.request:
			// This binary does not know the version of Kubernetes that it is made of.
			all = append(all, strings.Replace(string(r), "User-Agent: kube-probe/.\r\n", "User-Agent: kube-probe/1.36\r\n", 1))
		default:
			return strings.Join(all, "")
		}
	}
}

var statusLines = []string{
	"200 OK", "200", "204 No Content", "206 Partial", "299 X", "300 Choices", "301 Moved", "302 Found", "303 See",
	"304 No", "307 Temporary", "308 Permanent", "399 X", "400 Bad", "401 No", "404 Not Found", "500 Bad", "503 Busy",
	"599 X", "600 X", "999 X", "99 X", "1000 X", "abc", "100 Continue", "101 Switching", "",
}

// randomAnswer is an HTTP answer, or something like one.
func randomAnswer(r *rand.Rand, address string) string {
	if r.IntN(30) == 0 {
		return pick(r, []string{"", "\r\n\r\n", "HTTP/1.1", "SSH-2.0-OpenSSH\r\n", "HTTP/0.9 200 OK\r\n\r\n",
			"HTTP/2.0 200\r\n\r\n"})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.%d %s\r\n", r.IntN(2), pick(r, statusLines))
	_, port, _ := net.SplitHostPort(address)
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, "Location: %s\r\n", pick(r, []string{
			"/other", "?again", "", "http://" + address + "/x", "http://localhost:" + port + "/", "http://[::1]:" + port,
			"https://" + address, "//" + address + "/y", "http://" + loopback + ":1/", "ftp://" + address, "http://a b/", ":",
			"%zz", "http://example.invalid/",
		}))
	}
	body := strings.Repeat(pick(r, []string{"x", "<html>", "\xff", "é"}),
		pick(r, []int{0, 1, 100, 10 << 10, 10<<10 + 1, 50 << 10}))
	switch r.IntN(8) {
	case 0:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body)+pick(r, []int{-1, 1, 100}))
	case 1:
		b.WriteString("Content-Length: x\r\n")
	case 2:
		b.WriteString("Transfer-Encoding: chunked\r\n")
		body = fmt.Sprintf("%x\r\n%s\r\n%s", len(body), body, pick(r, []string{"0\r\n\r\n", "", "zz\r\n"}))
	case 3: // the body ends with the connection
	default:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	if r.IntN(4) == 0 {
		b.WriteString(pick(r, []string{
			"Content-Encoding: gzip\r\n", "Set-Cookie: a=b\r\n", "Connection: keep-alive\r\n", "bad header\r\n", "X: \x00\r\n",
			" folded: x\r\n", "X: " + strings.Repeat("y", 100<<10) + "\r\n", "Connection: close\r\n", ": x\r\n",
		}))
	}
	return b.String() + "\r\n" + body
}

// spec: PROBE-1
func TestHTTPProbesAreJudgedAlike(t *testing.T) {
	r := random(t)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	prober := httpprobe.New(false)
	seen := map[probe.Result]int{}
	for i := 0; i < *count && !t.Failed(); i++ {
		var cert *tls.Certificate
		if r.IntN(8) == 0 {
			cert = &secure.TLS.Certificates[0]
		}
		var answer string
		server := serveAnswer(t, cert, r.IntN(200) == 0, func(address string) string {
			answer = randomAnswer(r, address)
			return answer
		})
		get := &v1.HTTPGetAction{Port: intstr.FromInt32(int32(server.port())), Path: pick(r, []string{
			"", "/", "/healthz", "a", "/a?b=c", "?x", "/a b", "/%zz", "%zz", "http://example.com/x", "//example.com", "/#f",
			"/é",
		})}
		container := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "http", ContainerPort: get.Port.IntVal},
			{Name: "none", ContainerPort: 0}}}
		if r.IntN(5) == 0 {
			get.Port = pick(r, []intstr.IntOrString{intstr.FromString("http"), intstr.FromString("none"), intstr.FromInt32(0),
				intstr.FromInt32(65536), intstr.FromString("other"), intstr.FromString(fmt.Sprint(server.port()))})
		}
		if r.IntN(10) == 0 {
			get.Host = pick(r, []string{"localhost", loopback, "a b", "[", ""})
		}
		if cert != nil || r.IntN(20) == 0 {
			get.Scheme = pick(r, []v1.URIScheme{"HTTPS", "HTTPS", "HTTP", "https", "FTP"})
		}
		for range r.IntN(3) {
			get.HTTPHeaders = append(get.HTTPHeaders, v1.HTTPHeader{
				Name: pick(r, []string{"Host", "host", "User-Agent", "user-agent", "Accept", "Accept-Encoding", "X-A",
					"Connection", "bad name", ""}),
				Value: pick(r, []string{"", "x", "example.com", "*/*", "a b", "é", "\n", "gzip", "Keep-Alive"}),
			})
		}
		var asked, now string
		result := compareAttempts(t, fmt.Sprintf("%v answered by %.200q", get, answer), func() outcome {
			request, err := httpprobe.NewRequestForHTTPGetAction(get, container, loopback, "probe")
			if err != nil {
				return outcome{probe.Unknown, ""}
			}
			want := kubelets(prober.Probe(request, time.Second))
			asked = server.requests()
			return want
		}, func() outcome {
			got := attempt(t, v1.ProbeHandler{HTTPGet: get}, container, nil)
			now = server.requests()
			return got
		})
		if now != asked {
			t.Errorf("%v:\n  Kubernetes asks %q\n  Monoplane asks  %q", get, asked, now)
		}
		seen[result]++
	}
	if n := *count / 20; !t.Failed() && (seen[probe.Success] < n || seen[probe.Failure] < n || seen[probe.Unknown] < n) {
		t.Errorf("the results were hardly random: %v", seen)
	}
}

// spec: PROBE-1
func TestTCPProbesAreJudgedAlike(t *testing.T) {
	r := random(t)
	for i := 0; i < *count && !t.Failed(); i++ {
		server := serveAnswer(t, nil, false, func(string) string { return "" })
		container := &v1.Container{Ports: []v1.ContainerPort{{Name: "p", ContainerPort: int32(server.port())}}}
		if r.IntN(2) == 0 {
			server.Close()
		}
		port := pick(r, []intstr.IntOrString{intstr.FromInt32(int32(server.port())), intstr.FromString("p"),
			intstr.FromString("q"), intstr.FromInt32(0), intstr.FromString("0"), intstr.FromString(fmt.Sprint(server.port()))})
		compareAttempts(t, port.String(), func() outcome {
			number, err := upstreamprobe.ResolveContainerPort(port, container)
			if err != nil {
				return outcome{probe.Unknown, ""}
			}
			return kubelets(tcpprobe.New().Probe(loopback, number, time.Second))
		}, func() outcome {
			return attempt(t, v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port}}, container, nil)
		})
	}
}

// command is a command as a kubelet's prober sees it.
type command struct {
	utilexec.Cmd
	output string
	err    error
	to     io.Writer
}

func (c *command) SetStdout(w io.Writer) { c.to = w }
func (c *command) SetStderr(io.Writer)   {}
func (c *command) Wait() error           { return nil }
func (c *command) Start() error {
	_, _ = io.WriteString(c.to, c.output)
	return c.err
}

// spec: PROBE-1
func TestExecProbesAreJudgedAlike(t *testing.T) {
	r := random(t)
	for i := 0; i < *count && !t.Failed(); i++ {
		c := &command{output: strings.Repeat(pick(r, []string{"a", "\xff", "é"}),
			pick(r, []int{0, 1, 10 << 10, 10<<10 + 1, 1 << 16}))}
		var code int32
		var err error
		switch r.IntN(4) {
		case 0:
			code = int32(1 + r.IntN(255))
			c.err = utilexec.CodeExitError{Err: errors.New("exited"), Code: int(code)}
		case 1:
			err = pick(r, []error{context.DeadlineExceeded, status.Error(codes.DeadlineExceeded, "x"),
				fmt.Errorf("exec: %w", context.DeadlineExceeded)})
			c.err = fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, "cat /x", time.Second)
		case 2:
			err = pick(r, []error{errors.New("x"), status.Error(codes.Unavailable, "x"), status.Error(codes.NotFound, "x")})
			c.err = err
		}
		compareAttempts(t, fmt.Sprintf("%.100q, %v", c.output, c.err), func() outcome {
			return kubelets(execprobe.New().Probe(c))
		}, func() outcome {
			return attempt(t, v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/x"}}}, &v1.Container{},
				func(context.Context, []string, time.Duration) ([]byte, int32, error) {
					return []byte(c.output), code, err
				})
		})
	}
}

// healths answers in a random way that the service's name chooses.
type healths struct {
	grpc_health_v1.UnimplementedHealthServer
	answers []func() (*grpc_health_v1.HealthCheckResponse, error)
}

func (h *healths) Check(
	_ context.Context, req *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	var i int
	if _, err := fmt.Sscan(req.GetService(), &i); err != nil {
		return h.answers[0]()
	}
	return h.answers[i]()
}

// spec: PROBE-1
func TestGRPCProbesAreJudgedAlike(t *testing.T) {
	r := random(t)
	h := &healths{}
	for range 40 {
		answer := &grpc_health_v1.HealthCheckResponse{
			Status: grpc_health_v1.HealthCheckResponse_ServingStatus(r.IntN(6) - 1)}
		code := codes.Code(r.IntN(20))
		fails := r.IntN(2) == 0
		h.answers = append(h.answers, func() (*grpc_health_v1.HealthCheckResponse, error) {
			if fails {
				return answer, status.Error(code, "why")
			}
			return answer, nil
		})
	}
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, h)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	other := serveAnswer(t, nil, false, func(string) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" })
	for i := range len(h.answers) + 2 {
		port, service := l.Addr().(*net.TCPAddr).Port, fmt.Sprint(i)
		switch i {
		case len(h.answers):
			port = other.port()
		case len(h.answers) + 1:
			service = ""
		}
		compareAttempts(t, "service "+service, func() outcome {
			return kubelets(grpcprobe.New().Probe(loopback, service, port, time.Second))
		}, func() outcome {
			return attempt(t, v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port), Service: &service}},
				&v1.Container{}, nil)
		})
	}
}
