package podproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agents connect every port with one address, as the agent of a node does with a pod's.
type agents struct {
	define.StreamSource

	address string
	mu      sync.Mutex
	asked   []*nodev1rpc.PortForwardCall
}

func (a *agents) PortForward(
	ctx context.Context, node string, call *nodev1rpc.PortForwardCall,
) (define.Conversation, error) {
	a.mu.Lock()
	a.asked = append(a.asked, call)
	a.mu.Unlock()
	if node != "n" {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "the agent of node %q is not connected", node)
	}
	c := &talk{ctx: ctx}
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.address)
	if err != nil {
		c.refusal = err.Error()
	} else {
		c.far = far
		context.AfterFunc(ctx, func() { far.Close() })
	}
	return c, nil
}

// talk is a conversation with a port.
type talk struct {
	ctx      context.Context
	far      net.Conn
	refusal  string
	accepted bool
	over     bool
}

func (c *talk) Send(in *corev1.StreamInput) error {
	if c.refusal != "" {
		<-c.ctx.Done()
		return c.ctx.Err()
	}
	_, err := c.far.Write(in.GetData())
	return err
}

func (c *talk) Recv() (*corev1.StreamOutput, error) {
	switch {
	case !c.accepted:
		c.accepted = true
		return &corev1.StreamOutput{}, nil
	case c.refusal != "":
		return &corev1.StreamOutput{Status: &metav1.Status{Status: "Failure", Message: c.refusal}}, nil
	case c.over:
		return nil, io.EOF
	}
	b := make([]byte, 100)
	n, err := c.far.Read(b)
	out := &corev1.StreamOutput{Data: b[:n]}
	if c.ctx.Err() != nil {
		return nil, c.ctx.Err()
	}
	if err != nil {
		c.over = true
		out.Status = &metav1.Status{Status: "Success"}
	}
	return out, nil
}

func (c *talk) Close() {
	if c.far != nil {
		c.far.Close()
	}
}

// answer is what has come back.
type answer struct {
	code    int32
	headers http.Header
	body    string
}

// exchange makes a request with the messages.
func exchange(
	t *testing.T, a *agents, to Target, path string, messages ...*corev1.ProxyInput,
) (answer, error) {
	t.Helper()
	var got answer
	next := 1
	err := Serve(t.Context(), Stream{
		Receive: func() (*corev1.ProxyInput, error) {
			if next >= len(messages) {
				return nil, io.EOF
			}
			next++
			return messages[next-1], nil
		},
		Send: func(out *corev1.ProxyOutput) error {
			if out.GetCode() != 0 {
				got.code, got.headers = out.GetCode(), http.Header{}
				for _, h := range out.GetHeaders() {
					got.headers.Add(h.GetName(), string(h.GetValue()))
				}
			}
			got.body += string(out.GetData())
			return nil
		},
	}, messages[0], path, to, a)
	return got, err
}

func line(name, value string) *corev1.ProxyHeader {
	return &corev1.ProxyHeader{Name: name, Value: []byte(value)}
}

var target = Target{Node: "n", UID: "u", Port: 8080}

// What is asked reaches the pod as it is, and what it answers comes back as it is, redirects too: nothing else is
// connected to.
//
// spec: CTR-9
func TestRequest(t *testing.T) {
	var seen string
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = strings.Join([]string{r.Method, r.RequestURI, r.Host, r.Header.Get("X-A"), r.Header.Get("User-Agent"),
			string(body)}, "|")
		w.Header().Set("Location", "http://elsewhere.example/")
		w.WriteHeader(http.StatusFound)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
	}))
	defer pod.Close()
	a := &agents{address: pod.Listener.Addr().String()}
	got, err := exchange(t, a, target, "/a%2Fb//c?x=%20",
		&corev1.ProxyInput{Method: "PROPFIND", Headers: []*corev1.ProxyHeader{
			line("host", "h.example"), line("X-A", "\xff"), line("Content-Length", "6"), line("Transfer-Encoding", "chunked"),
		}, Data: []byte("abc")}, &corev1.ProxyInput{Data: []byte("def"), End: true})
	if err != nil || got.code != http.StatusFound || len(got.body) != 100_000 ||
		got.headers.Get("Location") != "http://elsewhere.example/" {
		t.Errorf("%v, %d, %v, %d bytes", err, got.code, got.headers, len(got.body))
	}
	if want := "PROPFIND|//a%2Fb//c?x=%20|h.example|\xff||abcdef"; seen != want {
		t.Errorf("the pod got %q, want %q", seen, want)
	}
	if len(a.asked) != 1 || a.asked[0].GetUid() != "u" || a.asked[0].GetPort() != 8080 {
		t.Errorf("the agent was asked for %v", a.asked)
	}
}

// A pod that answers before it has read the body is heard, one that is not reached is told of in the agent's words,
// and what is not HTTP goes nowhere.
func TestRefusals(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer pod.Close()
	// Nobody listens at a client's port, nor can while it is there.
	client, err := net.Dial("tcp", pod.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	closed := client.LocalAddr().String()
	big := &corev1.ProxyInput{Method: "POST", Data: make([]byte, 1<<20)}
	got, err := exchange(t, &agents{address: pod.Listener.Addr().String()}, target, "", big, big, big,
		&corev1.ProxyInput{End: true})
	if err != nil || got.code != http.StatusForbidden || got.body != "no\n" {
		t.Errorf("%v, %d, %q", err, got.code, got.body)
	}
	for _, c := range []struct {
		to     Target
		path   string
		first  *corev1.ProxyInput
		reason apierrors.Reason
		words  string
	}{
		{target, "", &corev1.ProxyInput{End: true}, apierrors.ServiceUnavailable, "connection refused"},
		{Target{Node: "gone"}, "", &corev1.ProxyInput{End: true}, apierrors.ServiceUnavailable, "is not connected"},
		{target, "%zz", &corev1.ProxyInput{End: true}, apierrors.BadRequest, "path"},
		{target, "", &corev1.ProxyInput{Headers: []*corev1.ProxyHeader{line("A b", "")}}, apierrors.BadRequest, "header"},
		{target, "", &corev1.ProxyInput{Headers: []*corev1.ProxyHeader{line("A", "b\r\nC: d")}}, apierrors.BadRequest,
			"header"},
		{target, "", &corev1.ProxyInput{Headers: []*corev1.ProxyHeader{line("Content-Length", "-1")}},
			apierrors.BadRequest, "Content-Length"},
		{target, "", &corev1.ProxyInput{Method: "A B", End: true}, apierrors.ServiceUnavailable, "invalid method"},
	} {
		_, err := exchange(t, &agents{address: closed}, c.to, c.path, c.first)
		if !apierrors.Is(err, c.reason) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v: %v, want %s", c.first, err, c.reason)
		}
	}
}

// A pod with a certificate of its own is talked to, and one that breaks off is not taken for one that has ended.
func TestTLSAndBrokenAnswer(t *testing.T) {
	pod := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	defer pod.Close()
	a, to := &agents{address: pod.Listener.Addr().String()}, target
	to.TLS = true
	if got, err := exchange(t, a, to, "", &corev1.ProxyInput{End: true}); err != nil || got.body != "HTTP/1.1" {
		t.Errorf("%v, %q", err, got.body)
	}
	_, err := exchange(t, a, to, "half", &corev1.ProxyInput{End: true})
	if !apierrors.Is(err, apierrors.ServiceUnavailable) {
		t.Errorf("half an answer: %v", err)
	}
}

// After a switch of protocols what comes passes both ways, until the call ends, which closes the connection.
func TestSwitch(t *testing.T) {
	left := make(chan struct{})
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			if _, err := io.CopyN(conn.NetConn(), conn.NetConn(), 1); err != nil {
				return
			}
		}
	}))
	defer pod.Close()
	ctx, cancel := context.WithCancel(t.Context())
	input := make(chan *corev1.ProxyInput, 1)
	var got bytes.Buffer
	err := Serve(ctx, Stream{
		Receive: func() (*corev1.ProxyInput, error) {
			select {
			case in := <-input:
				return in, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Send: func(out *corev1.ProxyOutput) error {
			if out.GetCode() == http.StatusSwitchingProtocols {
				input <- &corev1.ProxyInput{Data: []byte("hello")}
			}
			if got.Write(out.GetData()); got.String() == "hello" {
				cancel()
			}
			return nil
		},
	}, &corev1.ProxyInput{End: true, Headers: []*corev1.ProxyHeader{
		line("Connection", "Upgrade"), line("Upgrade", "websocket"), line("Sec-WebSocket-Version", "13"),
		line("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
	}}, "", target, &agents{address: pod.Listener.Addr().String()})
	if got.String() != "hello" || !errors.Is(err, context.Canceled) && !apierrors.Is(err, apierrors.ServiceUnavailable) {
		t.Errorf("%v, %q", err, got.String())
	}
	<-left
}

func TestNames(t *testing.T) {
	for text, want := range map[string]Name{
		"a": {Name: "a"}, "a:80": {Name: "a", Port: "80"}, "https:a:": {true, "a", ""}, "http:a:web": {false, "a", "web"},
	} {
		if got, err := ParseName("pod", text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":80", "ftp:a:80", "a:b:c:d"} {
		if _, err := ParseName("pod", text); !apierrors.Is(err, apierrors.BadRequest) {
			t.Errorf("%q: %v", text, err)
		}
	}
	p := &corev1.Pod{Spec: &corev1.PodSpec{Containers: []*corev1.Container{
		{}, {Ports: []*corev1.ContainerPort{{Name: "x", ContainerPort: 7}, {Name: "y", ContainerPort: 8}}},
	}}}
	for which, want := range map[string]int32{
		"": 7, "y": 8, "9": 9, "65535": 65535, "0": 0, "65536": 0, "z": 0, "-1": 0,
	} {
		if got, err := PortOf(p, which); got != want || apierrors.Is(err, apierrors.BadRequest) != (want == 0) {
			t.Errorf("port %q: %d, %v", which, got, err)
		}
	}
	if got, err := PortOf(&corev1.Pod{}, ""); got != 80 || err != nil {
		t.Errorf("no ports: %d, %v", got, err)
	}
}
