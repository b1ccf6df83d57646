package rest_test

import (
	"crypto/sha1" //nolint:gosec // WebSockets use it to show that both mean them.
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// pages are pods that answer requests.
type pages struct {
	corev1rpc.UnimplementedPodsServer
	serve func(
		req *corev1rpc.ProxyPodRequest, stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput],
	) error
}

func (p pages) Proxy(stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	return p.serve(req, stream)
}

func (p pages) front(t *testing.T) *front {
	srv := inproc.NewServer(nil, nil)
	t.Cleanup(srv.Stop)
	corev1rpc.RegisterPodsServer(srv, p)
	f := newFront(t, func(c *rest.Config) { c.Conn = srv.Conn(inproc.PassValues()) })
	f.http.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return f
}

func header(in *corev1.ProxyInput, name string) string {
	for _, h := range in.GetHeaders() {
		if strings.EqualFold(h.GetName(), name) {
			return string(h.GetValue())
		}
	}
	return ""
}

// accepted is what the server of a WebSocket makes of the client's key.
func accepted(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // As said.
	return base64.StdEncoding.EncodeToString(sum[:])
}

func say(code int32, body string, headers ...string) *corev1.ProxyOutput {
	out := &corev1.ProxyOutput{Code: code, Data: []byte(body)}
	for i := 0; i+1 < len(headers); i += 2 {
		out.Headers = append(out.Headers, &corev1.ProxyHeader{Name: headers[i], Value: []byte(headers[i+1])})
	}
	return out
}

// A request of any method reaches the pod with its path, query and body as they were written, and the pod's answer is
// the server's.
//
// spec: CTR-9
func TestPodProxy(t *testing.T) {
	f := pages{serve: func(
		req *corev1rpc.ProxyPodRequest, stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput],
	) error {
		body, in := string(req.GetInput().GetData()), req.GetInput()
		for !in.GetEnd() {
			next, err := stream.Recv()
			if err != nil {
				return err
			}
			in = next.GetInput()
			body += string(in.GetData())
		}
		first := req.GetInput()
		return stream.Send(say(299, strings.Join([]string{
			first.GetMethod(), req.GetNamespace(), req.GetName(), req.GetPath(), header(first, "Content-Length"),
			header(first, "X-Forwarded-Uri"), header(first, "X-Forwarded-For"), body,
		}, "|"), "Cache-Control", "max-age=9", "Content-Type", "text/x", "Allow", first.GetMethod()))
	}}.front(t)
	const root = "/api/v1/namespaces/d/pods/https:a:web/proxy"
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/", "", "GET|d|https:a:web|||" + root + "/|127.0.0.1|"},
		{"GET", "/a%2Fb//c/?x=%20&y", "", "GET|d|https:a:web|a%2Fb//c/?x=%20&y||" + root + "/a%2Fb/c/|127.0.0.1|"},
		{"POST", "", "hello", "POST|d|https:a:web||5|" + root + "/|127.0.0.1|hello"},
		{"PROPFIND", "/p", strings.Repeat("x", 1<<20),
			"PROPFIND|d|https:a:web|p|1048576|" + root + "/p|127.0.0.1|" + strings.Repeat("x", 1<<20)},
		{"HEAD", "/p?x", "", ""}, // what the pod answers beside the header is not passed on
		{"OPTIONS", "/p", "", "OPTIONS|d|https:a:web|p||" + root + "/p|127.0.0.1|"},
	} {
		a := f.do(c.method, root+c.path, c.body, "X-Forwarded-For", "6.6.6.6")
		if a.code != 299 || a.body != c.want || a.header.Get("Content-Type") != "text/x" ||
			a.header.Get("Allow") != c.method ||
			len(a.header["Cache-Control"]) != 1 || a.header.Get("Cache-Control") != "max-age=9" {
			t.Errorf("%s %s: %d, %v, %.300q, want %.300q", c.method, c.path, a.code, a.header, a.body, c.want)
		}
	}
	// Without the slash the links of the page would lead to the pod's neighbours.
	if a := f.do("GET", root+"?x=%20", ""); a.code != 301 || a.header.Get("Location") != root+"/?x=%20" {
		t.Errorf("%d to %q", a.code, a.header.Get("Location"))
	}
}

// Links of the pod's own lead through the server; others do not.
func TestPodProxyLinks(t *testing.T) {
	f := pages{serve: func(
		req *corev1rpc.ProxyPodRequest, stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput],
	) error {
		if path := req.GetPath(); path != "page" {
			return stream.Send(say(302, "", "Location", strings.TrimPrefix(path, "to?")))
		}
		return stream.Send(say(200, `<a href="/x">1</a><a href="y">2</a><img src="http://other.example/z"/>`,
			"Content-Type", "text/html; charset=utf-8"))
	}}.front(t)
	const root = "/api/v1/namespaces/d/pods/a/proxy"
	f.want(f.do("GET", root+"/page", ""), 200, `<a href="`+root+`/x">1</a><a href="y">2</a>`,
		`src="http://other.example/z"`)
	for to, want := range map[string]string{
		"/x?y": root + "/x?y", "z": "z", "http://other.example/z": "http://other.example/z",
	} {
		if a := f.do("GET", root+"/to?"+to, ""); a.code != 302 || a.header.Get("Location") != want {
			t.Errorf("%s: %d to %q, want %q", to, a.code, a.header.Get("Location"), want)
		}
	}
}

// What the service refuses is a Status, and what breaks off is not taken for the whole.
func TestPodProxyFailures(t *testing.T) {
	f := pages{serve: func(
		req *corev1rpc.ProxyPodRequest, stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput],
	) error {
		if req.GetPath() == "half" {
			if err := stream.Send(say(200, "half", "Content-Type", "text/plain")); err != nil {
				return err
			}
		}
		return apierrors.New(apierrors.ServiceUnavailable, "nobody listens")
	}}.front(t)
	const root = "/api/v1/namespaces/d/pods/a/proxy/"
	f.want(f.do("GET", root, ""), 503, `"kind":"Status"`, "nobody listens", `"reason":"ServiceUnavailable"`)
	f.want(f.do("POST", root, "{}"), 503, "nobody listens")
	res, err := f.http.Client().Get(f.http.URL + root + "half")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%q, %v", b, err)
	}
}

// WebSockets go through, without the token among their protocols. They end with the client.
func TestPodProxyWebSocket(t *testing.T) {
	ended := make(chan struct{})
	f := pages{serve: func(
		req *corev1rpc.ProxyPodRequest, stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput],
	) error {
		defer close(ended)
		if got := header(req.GetInput(), "Sec-WebSocket-Protocol"); got != "chat" || !req.GetInput().GetEnd() {
			t.Errorf("protocols %q", got)
		}
		err := stream.Send(say(101, "", "Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Accept",
			accepted(header(req.GetInput(), "Sec-WebSocket-Key"))))
		for err == nil {
			var in *corev1rpc.ProxyPodRequest
			if in, err = stream.Recv(); err == nil {
				b := in.GetInput().GetData()
				if len(b) < 6 || b[1]&0x80 == 0 || int(b[1]&0x7f)+6 != len(b) {
					t.Errorf("%d bytes are no frame", len(b))
					return nil
				}
				out := []byte{b[0], b[1] & 0x7f} // Of servers, without a mask.
				for i := range b[6:] {
					out = append(out, b[6+i]^b[2+i%4])
				}
				err = stream.Send(&corev1.ProxyOutput{Data: out})
			}
		}
		return nil
	}}.front(t)
	url := strings.Replace(f.http.URL, "http", "ws", 1) + "/api/v1/namespaces/d/pods/a/proxy/echo"
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{
		RootCAs: f.http.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, NextProtos: []string{"http/1.1"},
	}}
	conn, res, err := dialer.DialContext(t.Context(), url, http.Header{
		"Sec-WebSocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0, chat"},
	})
	if err != nil {
		if res != nil {
			b, _ := io.ReadAll(res.Body)
			t.Fatalf("%v: %s, %v, %s", err, res.Status, res.Header, b)
		}
		t.Fatal(err)
	}
	res.Body.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	conn.Close()
	<-ended
}
