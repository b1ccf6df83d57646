package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// maxRedirects is how many redirects in a row are followed.
const maxRedirects = 10

func runHTTP(ctx context.Context, action *corev1.HTTPGetAction, t Target, timeout time.Duration) (Result, string) {
	request, err := NewRequest(ctx, action, t, "probe")
	if err != nil {
		return Unknown, err.Error()
	}
	answer, err := t.Send(request, timeout)
	switch {
	case err != nil:
		return Failure, err.Error()
	case answer.BodyErr != nil:
		return Unknown, answer.BodyErr.Error()
	case answer.Status < http.StatusOK || answer.Status >= http.StatusBadRequest:
		// The body is left out: it may hold what is not for everybody who can read events.
		return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.Status)
	case answer.Status >= http.StatusMultipleChoices:
		return Success, fmt.Sprintf("Probe terminated redirects, Response body: %s", answer.Body)
	default:
		return Success, ""
	}
}

// NewRequest makes the request that a probe or a hook sends; purpose is the word for its kind in the User-Agent.
func NewRequest(
	ctx context.Context, action *corev1.HTTPGetAction, t Target, purpose string,
) (*http.Request, error) {
	address, err := t.address(action.GetHost(), action.GetPort())
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(action.GetPath())
	if err != nil { // it is sent as it is, for the server to judge
		to = &url.URL{Path: action.GetPath()}
	}
	to.Scheme, to.Host = "http", address
	if action.GetScheme() != "" {
		to.Scheme = strings.ToLower(action.GetScheme())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	header := request.Header
	for _, h := range action.GetHttpHeaders() {
		header.Add(h.GetName(), h.GetValue())
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "kube-"+purpose+"/"+version)
	}
	if accept, ok := header["Accept"]; !ok {
		header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		header.Del("Accept")
	}
	request.Host = header.Get("Host")
	return request, nil
}

// Answer is what a server has answered.
type Answer struct {
	// Status is the code of the last answer: redirects to the same host are followed.
	Status int
	// Body is the beginning of the answer's body.
	Body []byte
	// BodyErr says why the body broke off.
	BodyErr error
}

// Send sends a request and reads the beginning of the answer. A timeout of 0 leaves the end to the request's context.
func (t Target) Send(request *http.Request, timeout time.Duration) (Answer, error) {
	conns := &connections{to: t}
	defer conns.close()
	transport := &http.Transport{
		DialContext:            conns.dial,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // as documented: nobody gives pods certificates
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      request.URL.Scheme == "https",
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: sameHost}
	answer, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	return Answer{Status: answer.StatusCode, Body: body, BodyErr: err}, nil
}

// sameHost lets redirects be followed within a host: what another host answers says nothing about the container, and
// the node is not to be sent anywhere by a pod.
func sameHost(request *http.Request, via []*http.Request) error {
	if request.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// connections are those of one request, so that they can be closed when it is over.
type connections struct {
	to Target

	mu     sync.Mutex
	open   []net.Conn
	closed bool
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.to.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return nil, errors.New("the request is over")
	}
	c.open = append(c.open, conn)
	return conn, nil
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.open {
		conn.Close()
	}
}
