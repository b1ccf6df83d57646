// Package podproxy makes HTTP requests to ports of pods, for the subresource proxy of pods and services.
//
// Guarantees: all bytes go through the agent of the pod's node to the pod of the uid that was looked up, whatever the
// request, a redirect or the pod's own status says: no name is resolved and no other address connected to. Redirects
// are answers like others. The body of either side is held in pieces, and a slow reader slows its writer. Connections
// are not kept: each request has one, which ends with it.
//
// The certificates of pods are not looked at, as Kubernetes does not: nobody vouches for the names in them, and the
// connection has been made by the pod's own node.
package podproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

const (
	// piece is how much of a body one message carries.
	piece = 32 << 10
	// handshakeTime is how long a pod may take for its part of a TLS handshake.
	handshakeTime = 10 * time.Second
	// maxHeader bounds the headers of an answer.
	maxHeader = 1 << 20
)

// Name is what stands in a path for a pod or a service: [SCHEME:]NAME[:PORT].
type Name struct {
	TLS        bool
	Name, Port string
}

// ParseName reads a Name of a kind, such as "pod".
func ParseName(kind, text string) (Name, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(text)
	if !ok {
		return Name{}, apierrors.New(apierrors.BadRequest, "invalid %s request %q: expected [http:|https:]NAME[:PORT]",
			kind, text)
	}
	return Name{scheme == "https", name, port}, nil
}

// Target is a port of a pod.
type Target struct {
	// Node has the pod with the UID.
	Node, UID string
	Port      int32
	// TLS is spoken to the port.
	TLS bool
}

// PortOf returns the port of a pod that is meant by its number or its name; without either the first that its
// containers name, or 80.
func PortOf(p *corev1.Pod, which string) (int32, error) {
	if which == "" {
		for _, c := range p.GetSpec().GetContainers() {
			if len(c.GetPorts()) > 0 {
				return c.GetPorts()[0].GetContainerPort(), nil
			}
		}
		return 80, nil
	}
	if n, err := strconv.ParseUint(which, 10, 16); err == nil && n > 0 {
		return int32(n), nil
	}
	for _, c := range p.GetSpec().GetContainers() {
		for _, port := range c.GetPorts() {
			if port.GetName() == which {
				return port.GetContainerPort(), nil
			}
		}
	}
	return 0, apierrors.New(apierrors.BadRequest,
		"port %q of pod %s is neither a number from 1 to 65535 nor the name of a port of its containers", which,
		p.GetMetadata().GetName())
}

// Stream is the rest of the call after its first message, whose input Serve gets. Receive returns the input of the
// next.
type Stream struct {
	Receive func() (*corev1.ProxyInput, error)
	Send    func(*corev1.ProxyOutput) error
}

// Serve makes one request, at a path with its query, and passes the answer on.
func Serve(
	ctx context.Context, stream Stream, first *corev1.ProxyInput, path string, to Target, agents define.StreamSource,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := request(ctx, first, path, to)
	if err != nil {
		return err
	}
	bodyRead := make(chan struct{})
	if first.GetEnd() && len(first.GetData()) == 0 {
		close(bodyRead)
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		body, feed := io.Pipe()
		req.Body = body
		go func() {
			defer close(bodyRead)
			stream.body(first, feed)
		}()
	}
	d := &dialer{ctx: ctx, to: to, agents: agents}
	transport := &http.Transport{
		DialContext: d.dial, DisableKeepAlives: true, DisableCompression: true,
		TLSHandshakeTimeout: handshakeTime, MaxResponseHeaderBytes: maxHeader,
		// The name is the pod's only by chance; see the package's comment.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}, //nolint:gosec // As said.
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return d.unreachable(err)
	}
	defer resp.Body.Close()
	if err := stream.Send(&corev1.ProxyOutput{Code: int32(resp.StatusCode), Headers: Headers(resp.Header)}); err != nil {
		return err
	}
	if conn, ok := resp.Body.(io.Writer); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		go func() {
			select {
			case <-bodyRead:
				stream.switched(conn)
			case <-ctx.Done():
			}
		}()
	}
	return stream.answer(resp.Body)
}

// request makes the request from the first message.
func request(ctx context.Context, first *corev1.ProxyInput, path string, to Target) (*http.Request, error) {
	u, err := url.ParseRequestURI("/" + path)
	if err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "the path %q cannot be read: %v", path, err)
	}
	u.Scheme, u.Host = "http", net.JoinHostPort("localhost", strconv.Itoa(int(to.Port)))
	if to.TLS {
		u.Scheme = "https"
	}
	req := (&http.Request{
		Method: first.GetMethod(), URL: u, Header: http.Header{}, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	for _, h := range first.GetHeaders() {
		name, value := http.CanonicalHeaderKey(h.GetName()), string(h.GetValue())
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, apierrors.New(apierrors.BadRequest, "the header %q is not one of HTTP", name)
		case name == "Host":
			req.Host = value
		case name == "Content-Length":
			if req.ContentLength, err = strconv.ParseInt(value, 10, 64); err != nil || req.ContentLength < 0 {
				return nil, apierrors.New(apierrors.BadRequest, "Content-Length: %q is not a length", value)
			}
		case name == "Transfer-Encoding":
		default:
			req.Header[name] = append(req.Header[name], value)
		}
	}
	if len(req.Header["User-Agent"]) == 0 {
		req.Header["User-Agent"] = nil // Else net/http would say its own.
	}
	return req, nil
}

// Headers are the lines of headers.
func Headers(from http.Header) []*corev1.ProxyHeader {
	var list []*corev1.ProxyHeader
	for name, values := range from {
		for _, value := range values {
			list = append(list, &corev1.ProxyHeader{Name: name, Value: []byte(value)})
		}
	}
	return list
}

// body passes the body of the request on, from the first message to the one with its end.
func (s Stream) body(in *corev1.ProxyInput, to *io.PipeWriter) {
	taken := true
	for {
		if len(in.GetData()) > 0 && taken {
			_, err := to.Write(in.GetData())
			taken = err == nil // Who does not read the whole body still has an answer.
		}
		if in.GetEnd() {
			_ = to.Close()
			return
		}
		var err error
		if in, err = s.Receive(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // The end of a body is said.
			}
			_ = to.CloseWithError(err)
			return
		}
	}
}

// switched passes on what follows when the pod has switched to another protocol.
func (s Stream) switched(to io.Writer) {
	for {
		in, err := s.Receive()
		if err != nil {
			return // The end of the call closes the connection.
		}
		if _, err := to.Write(in.GetData()); err != nil {
			return
		}
	}
}

// answer passes the body of the answer on.
func (s Stream) answer(from io.Reader) error {
	for {
		data := make([]byte, piece)
		n, err := from.Read(data)
		if n > 0 {
			if err := s.Send(&corev1.ProxyOutput{Data: data[:n:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return apierrors.New(apierrors.ServiceUnavailable, "the pod has broken off its answer: %v", err)
		}
	}
}

// dialer connects to the target.
type dialer struct {
	ctx    context.Context // Ends the connection, too.
	to     Target
	agents define.StreamSource
	conn   *conn // The one connection; nil before.
}

// dial is for http.Transport, which may call it on another goroutine, but returns after it.
func (d *dialer) dial(context.Context, string, string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(d.ctx)
	c, err := d.agents.PortForward(ctx, d.to.Node, &nodev1rpc.PortForwardCall{Uid: d.to.UID, Port: d.to.Port})
	if err != nil {
		cancel()
		return nil, err
	}
	conn := &conn{with: c, hangUp: cancel}
	if _, err := c.Recv(); err != nil { // Accepted, or not.
		_ = conn.Close()
		return nil, err
	}
	d.conn = conn
	return conn, nil
}

// unreachable is why no answer has come: what the agent says, if it is that.
func (d *dialer) unreachable(err error) error {
	var ours *apierrors.Error
	if errors.As(err, &ours) {
		return ours
	}
	if d.conn != nil {
		if why := d.conn.reason(); why != nil {
			err = why
		}
	}
	return apierrors.New(apierrors.ServiceUnavailable, "error trying to reach service: %v", err)
}
