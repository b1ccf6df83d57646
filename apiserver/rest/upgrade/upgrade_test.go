package upgrade_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest/upgrade"
)

func TestMain(m *testing.M) {
	// Of spdystream: it waits a second for somebody to ask how a closed connection has ended.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// echo is a command that writes what it reads, says each size of its terminal among its errors, and fails with exit
// code 3 once its input has ended.
type echo struct {
	ctx   context.Context
	end   context.CancelFunc
	in    chan *corev1.StreamInput
	pause <-chan struct{} // It reads nothing until this is closed.
}

func newEcho(ctx context.Context) *echo {
	ctx, cancel := context.WithCancel(ctx)
	return &echo{ctx: ctx, end: cancel, in: make(chan *corev1.StreamInput)}
}

func (e *echo) Close() { e.end() }

func (e *echo) Send(in *corev1.StreamInput) error {
	select {
	case e.in <- in:
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

func (e *echo) Recv() (*corev1.StreamOutput, error) {
	if e.pause != nil {
		select {
		case <-e.pause:
		case <-e.ctx.Done():
			return nil, e.ctx.Err()
		}
	}
	select {
	case in := <-e.in:
		switch {
		case in.GetSize() != nil:
			return &corev1.StreamOutput{Errors: []byte(in.GetSize().String())}, nil
		case in.GetEnd():
			return &corev1.StreamOutput{Status: &metav1.Status{Status: "Failure", Reason: "NonZeroExitCode"}}, nil
		}
		return &corev1.StreamOutput{Data: in.GetData()}, nil
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
}

// serve has a server upgrade each connection; ended is closed when the only one is over.
func serve(
	t *testing.T, handle func(context.Context, http.ResponseWriter, *http.Request),
) (url string, ended chan struct{}) {
	ended = make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		handle(r.Context(), w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, ended
}

func dialSocket(t *testing.T, url, protocol string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{protocol}}
	origin := http.Header{"Origin": {"http://localhost"}} // What many clients say that are no browsers.
	conn, resp, err := d.Dial("ws"+strings.TrimPrefix(url, "http"), origin)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	t.Cleanup(func() { conn.Close() })
	if conn.Subprotocol() != protocol {
		t.Fatalf("the server speaks %q", conn.Subprotocol())
	}
	return conn
}

// What goes in comes out on its channel, whatever the size of a message is; the end of the input is one of version 5,
// and the last message is the status.
//
// spec: CTR-9
func TestWebSocket(t *testing.T) {
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		upgrade.WebSocket(ctx, w, r, newEcho(ctx), upgrade.ProbeAfter)
	})
	conn := dialSocket(t, url, "v5.channel.k8s.io")
	const most = 5<<20 + 1 // In one message.
	go func() {
		_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x04"+`{"Width":80,"Height":24}`))
		_ = conn.WriteMessage(websocket.BinaryMessage, nil) // Says nothing.
		_ = conn.WriteMessage(websocket.BinaryMessage, make([]byte, most+1))
		_ = conn.WriteMessage(websocket.BinaryMessage, []byte{255, 0})
	}()
	var got [4]bytes.Buffer
	for {
		_, message, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			break
		}
		if err != nil || len(message) == 0 || message[0] > 3 {
			t.Fatalf("%q, %v", message, err)
		}
		got[message[0]].Write(message[1:])
	}
	conn.Close()
	<-ended
	if got[1].Len() != most || !strings.Contains(got[2].String(), "80") ||
		!strings.Contains(got[3].String(), `"reason":"NonZeroExitCode"`) {
		t.Errorf("%d bytes, %q, %q", got[1].Len(), got[2].String(), got[3].String())
	}
}

// A client that goes away ends the call, also one that floods a command which reads nothing.
//
// spec: CTR-9
func TestWebSocketClientGone(t *testing.T) {
	called := make(chan struct{})
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		e := newEcho(ctx)
		e.pause = make(chan struct{})
		close(called)
		upgrade.WebSocket(ctx, w, r, e, time.Millisecond)
	})
	conn := dialSocket(t, url, "v4.channel.k8s.io")
	<-called
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for conn.WriteMessage(websocket.BinaryMessage, make([]byte, 1<<20)) == nil {
			continue
		}
	}()
	conn.NetConn().Close()
	<-flooded
	<-ended
}

// When the server stops, the client is told why before the connection is closed.
func TestWebSocketServerStops(t *testing.T) {
	stop := make(chan struct{})
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { <-stop; cancel() }()
		upgrade.WebSocket(ctx, w, r, saying{newEcho(ctx)}, upgrade.ProbeAfter)
	})
	conn := dialSocket(t, url, "v4.channel.k8s.io")
	close(stop)
	_, message, err := conn.ReadMessage()
	if err != nil || message[0] != 3 || !bytes.Contains(message, []byte("the server is stopping")) {
		t.Errorf("%q, %v", message, err)
	}
	_, _, err = conn.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the end: %v", err)
	}
	conn.Close()
	<-ended
}

// saying is an echo that says why it ends.
type saying struct{ *echo }

func (s saying) Recv() (*corev1.StreamOutput, error) {
	out, err := s.echo.Recv()
	if err != nil {
		err = apierrors.New(apierrors.ServiceUnavailable, "the server is stopping")
	}
	return out, err
}

func dialSPDY(t *testing.T, url string, protocols ...string) httpstream.Connection {
	t.Helper()
	tripper, err := spdy.NewRoundTripper(nil)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range protocols {
		req.Header.Add(httpstream.HeaderProtocolVersion, p)
	}
	resp, err := tripper.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tripper.NewConnection(resp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func create(t *testing.T, conn httpstream.Connection, headers ...string) httpstream.Stream {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	s, err := conn.CreateStream(h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A command over SPDY has a stream for everything; old clients learn of a failure in words.
//
// spec: CTR-9
func TestSPDY(t *testing.T) {
	for protocol, want := range map[string]string{
		"v4.channel.k8s.io": `"reason":"NonZeroExitCode"`, "v2.channel.k8s.io": "failed",
	} {
		url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
			upgrade.SPDY(ctx, w, r, upgrade.Wanted{Stdin: true, Stdout: true, Stderr: true}, failing{newEcho(ctx)})
		})
		conn := dialSPDY(t, url, "v9.channel.k8s.io", protocol)
		result, in := create(t, conn, "streamType", "error"), create(t, conn, "streamType", "stdin")
		out, errs := create(t, conn, "streamType", "stdout"), create(t, conn, "streamType", "stderr")
		const most = 3 << 20
		go func() {
			_, _ = in.Write(make([]byte, most))
			in.Close()
		}()
		n, err := io.Copy(io.Discard, out)
		if err != nil || n != most {
			t.Errorf("%s: %d bytes, %v", protocol, n, err)
		}
		_, _ = io.Copy(io.Discard, errs)
		if text, err := io.ReadAll(result); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %q, %v", protocol, text, err)
		}
		conn.Close()
		<-ended
	}
}

// failing says in words, too, that it has failed.
type failing struct{ *echo }

func (f failing) Recv() (*corev1.StreamOutput, error) {
	out, err := f.echo.Recv()
	if s := out.GetStatus(); s != nil {
		s.Message = "failed"
	}
	return out, err
}

// A client that creates a stream which nobody has asked for is cut off.
func TestSPDYStrangeStream(t *testing.T) {
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		upgrade.SPDY(ctx, w, r, upgrade.Wanted{Stdout: true}, newEcho(ctx))
	})
	conn := dialSPDY(t, url, "v4.channel.k8s.io")
	create(t, conn, "streamType", "stdin")
	<-ended
	<-conn.CloseChan()
}

// Connections are forwarded side by side over one of SPDY; one to a port at which nobody listens says so, and leaves
// the others alone. A stream of which nobody can tell where it leads is refused.
//
// spec: CTR-9
func TestForward(t *testing.T) {
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		upgrade.Forward(ctx, w, r, "p", func(ctx context.Context, port int32) (upgrade.Stream, error) {
			if port == 81 {
				return nil, errors.New("nobody listens")
			}
			return shouting{newEcho(ctx)}, nil
		})
	})
	conn := dialSPDY(t, url, "portforward.k8s.io")
	var all sync.WaitGroup
	for i := range 20 {
		id, port := string(rune('a'+i)), "80"
		if i%2 == 1 {
			port = "81"
		}
		errs := create(t, conn, "streamType", "error", "port", port, "requestID", id)
		data := create(t, conn, "streamType", "data", "port", port, "requestID", id)
		all.Go(func() {
			go func() {
				_, _ = data.Write(bytes.Repeat([]byte(id), 256<<10))
				data.Close()
			}()
			// Both at once, as clients do: what is not read of one stream holds up others.
			var problem []byte
			read := make(chan struct{})
			go func() {
				defer close(read)
				problem, _ = io.ReadAll(errs)
			}()
			got, _ := io.ReadAll(data)
			<-read
			if port == "80" && (len(problem) > 0 || len(got) != 256<<10 || strings.Trim(string(got), id) != "") ||
				port == "81" && (len(got) > 0 || !strings.Contains(string(problem), "port 81 to pod p: nobody listens")) {
				t.Errorf("%s: %d bytes, %q", id, len(got), problem)
			}
		})
	}
	all.Wait()
	for _, headers := range [][]string{
		{"streamType", "data", "port", "0", "requestID", "x"}, {"streamType", "data", "port", "80"},
		{"streamType", "other", "port", "80", "requestID", "x"},
	} {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		if _, err := conn.CreateStream(h); err == nil {
			t.Errorf("%q is taken", headers)
		}
	}
	conn.Close()
	<-ended
}

// shouting is a port that says all that it hears, and ends well.
type shouting struct{ *echo }

func (s shouting) Recv() (*corev1.StreamOutput, error) {
	out, err := s.echo.Recv()
	if st := out.GetStatus(); st != nil {
		st.Status = "Success"
	}
	return out, err
}

// The same through a WebSocket.
//
// spec: CTR-9
func TestForwardThroughWebSocket(t *testing.T) {
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		upgrade.Forward(ctx, w, r, "p", func(ctx context.Context, _ int32) (upgrade.Stream, error) {
			return shouting{newEcho(ctx)}, nil
		})
	})
	socket := dialSocket(t, url, "SPDY/3.1+portforward.k8s.io")
	conn, err := spdy.NewClientConnection(upgrade.NewTunnel(socket))
	if err != nil {
		t.Fatal(err)
	}
	errs := create(t, conn, "streamType", "error", "port", "80", "requestID", "0")
	data := create(t, conn, "streamType", "data", "port", "80", "requestID", "0")
	go func() {
		_, _ = data.Write(make([]byte, 1<<20))
		data.Close()
	}()
	got, err := io.ReadAll(data)
	problem, _ := io.ReadAll(errs)
	if err != nil || len(got) != 1<<20 || len(problem) > 0 {
		t.Errorf("%d bytes, %v, %q", len(got), err, problem)
	}
	conn.Close()
	<-ended
}
