package rest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	htmlproxy "k8s.io/apimachinery/pkg/util/proxy"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podproxy"

	corev1 "monoplane.dev/api/core/v1"
)

// proxyPiece is how much of a body one message carries.
const proxyPiece = 32 << 10

// serveProxy passes a request on to a pod, and what comes back. Links of pages and addresses of redirects that are the
// pod's own lead through the proxy again. What the user has proved to be somebody with is not passed on: Authenticate
// has taken it from the headers. The call ends with the connection, and with the server.
func (h *Handler) serveProxy(w http.ResponseWriter, r *http.Request, rt *route, v values) {
	prefix, rest := r.URL.Path, ""
	if rt.whole != nil {
		read := v.list[len(rt.variables)-1]
		prefix = strings.TrimSuffix(prefix, read)
		rest = restOf(r.URL, read, strings.Count(rt.template, "/"))
	} else if (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" {
		// Relative links of the pod's first page need the slash.
		to := url.URL{Path: r.URL.Path + "/", RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", to.String())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.closing, cancel)()
	p := &proxied{route: rt, conn: h.cfg.Conn, values: v, path: rest, cancel: cancel}
	links := &htmlproxy.Transport{PathPrepend: strings.TrimSuffix(prefix, "/"), RoundTripper: p}
	out := &writer{ResponseWriter: w, code: http.StatusOK, stall: h.cfg.StallTimeout, cancel: cancel}
	reverse := httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetXForwarded()
			pr.Out.URL = &url.URL{Scheme: "http", Host: r.Host, Path: "/", RawQuery: r.URL.RawQuery}
			if u, err := url.ParseRequestURI("/" + rest); err == nil {
				pr.Out.URL.Path, pr.Out.URL.RawPath = u.Path, u.RawPath
			}
			withoutToken(pr.Out.Header)
		},
		Transport: links,
		ModifyResponse: func(resp *http.Response) error {
			for name := range resp.Header {
				w.Header().Del(name) // The pod has its own opinion of what the server says of all answers.
			}
			return nil
		},
		FlushInterval: -1,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			switch {
			case r.Context().Err() != nil:
				err = apierrors.New(apierrors.Timeout, "the client closed the request")
			case h.closing.Err() != nil:
				err = apierrors.New(apierrors.ServiceUnavailable, "the server is stopping")
			case p.failure != nil:
				err = p.failure
			}
			h.writeError(out, r, err)
		},
		ErrorLog: slog.NewLogLogger(h.cfg.Logger.Handler(), slog.LevelDebug),
	}
	reverse.ServeHTTP(out, r.WithContext(ctx))
}

// restOf returns what of a path follows so many slashes, as it was written: where that cannot be told, because a slash
// before it is written otherwise, as it was read.
func restOf(u *url.URL, read string, slashes int) string {
	rest := u.EscapedPath()
	for range slashes {
		_, rest, _ = strings.Cut(rest, "/")
	}
	if back, err := url.PathUnescape(rest); err != nil || back != read {
		rest = (&url.URL{Path: read}).EscapedPath()
	}
	return rest
}

// tokenProtocol begins the subprotocol by which browsers prove who they are.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// withoutToken leaves out the token among the subprotocols of a WebSocket.
func withoutToken(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	lines := h[name]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		for p := range strings.SplitSeq(line, ",") {
			if p = textproto.TrimString(p); p != "" && !strings.HasPrefix(p, tokenProtocol) {
				kept = append(kept, p)
			}
		}
	}
	if h.Del(name); len(kept) > 0 {
		h[name] = []string{strings.Join(kept, ", ")}
	}
}

// proxied makes one HTTP request by a call of the service.
type proxied struct {
	route   *route
	conn    grpc.ClientConnInterface
	values  values
	path    string
	cancel  context.CancelFunc // Ends the call.
	failure error              // Why no answer has come; nil before.
}

// RoundTrip implements http.RoundTripper.
func (p *proxied) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.ask(r)
	p.failure = err
	return resp, err
}

func (p *proxied) ask(r *http.Request) (*http.Response, error) {
	stream, err := p.conn.NewStream(r.Context(), p.route.stream, p.route.rpc)
	if err != nil {
		return nil, err
	}
	first := &corev1.ProxyInput{Method: r.Method, Headers: podproxy.Headers(r.Header)}
	add := func(name, value string) {
		first.Headers = append(first.Headers, &corev1.ProxyHeader{Name: name, Value: []byte(value)})
	}
	add("Host", r.Host)
	if r.ContentLength > 0 {
		add("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	first.End = r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0
	call := &proxyCall{stream: stream, route: p.route, cancel: p.cancel}
	req := p.route.input.New()
	for i, f := range p.route.variables {
		req.Set(f, protoreflect.ValueOfString(p.values.list[i]))
	}
	path := p.path
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	req.Set(p.route.input.Descriptor().Fields().ByName("path"), protoreflect.ValueOfString(path))
	req.Set(p.route.conversation, protoreflect.ValueOfMessage(first.ProtoReflect()))
	if err := stream.SendMsg(req.Interface()); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !first.End {
		go call.sendBody(r.Body)
	}
	out := &corev1.ProxyOutput{}
	if err := stream.RecvMsg(out); err != nil {
		return nil, err
	}
	resp := &http.Response{
		StatusCode: int(out.GetCode()), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		ContentLength: -1, Request: r, Body: call,
	}
	for _, line := range out.GetHeaders() {
		resp.Header.Add(line.GetName(), string(line.GetValue()))
	}
	if n, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil {
		resp.ContentLength = n
	} else if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.ContentLength = 0 // Else net/http would say that the connection is going to be closed.
	}
	call.rest = out.GetData()
	return resp, nil
}

// proxyCall is a call whose answer has begun: the body of the answer, and, if the pod has switched to another
// protocol, the connection.
type proxyCall struct {
	stream  grpc.ClientStream
	route   *route
	cancel  context.CancelFunc
	rest    []byte
	sending sync.Mutex
}

func (c *proxyCall) send(in *corev1.ProxyInput) error {
	m := c.route.input.New()
	m.Set(c.route.conversation, protoreflect.ValueOfMessage(in.ProtoReflect()))
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.SendMsg(m.Interface())
}

// sendBody sends the body of the request. One that breaks off ends the call.
func (c *proxyCall) sendBody(from io.Reader) {
	for {
		data := make([]byte, proxyPiece)
		n, err := from.Read(data)
		end := errors.Is(err, io.EOF)
		if (n > 0 || end) && c.send(&corev1.ProxyInput{Data: data[:n:n], End: end}) != nil || end {
			return
		}
		if err != nil {
			c.cancel()
			return
		}
	}
}

// Read implements io.Reader.
func (c *proxyCall) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		out := &corev1.ProxyOutput{}
		if err := c.stream.RecvMsg(out); err != nil {
			return 0, err
		}
		c.rest = out.GetData()
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements io.Writer, as the reverse proxy needs it of a connection that has switched.
func (c *proxyCall) Write(b []byte) (int, error) {
	sent := 0
	for data := range slices.Chunk(b, proxyPiece) {
		if err := c.send(&corev1.ProxyInput{Data: slices.Clone(data)}); err != nil {
			return sent, err
		}
		sent += len(data)
	}
	return sent, nil
}

// Close implements io.Closer.
func (c *proxyCall) Close() error {
	c.cancel()
	return nil
}
