package upgrade_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/rest/upgrade"
)

// frame is a frame as a client sends it, of a length that it may lie about.
func frame(first byte, length uint64, data []byte) []byte {
	b := []byte{first, 0x80 | 127}
	b = binary.BigEndian.AppendUint64(b, length)
	return append(append(b, 0, 0, 0, 0), data...) // A mask that changes nothing.
}

// whole is a frame of the length that it says.
func whole(first byte, data string) []byte {
	return append([]byte{first, 0x80 | byte(len(data)), 0, 0, 0, 0}, data...)
}

const (
	final        = 0x80
	continuation = 0x00
	text         = 0x01
	binaryFrame  = 0x02
	ping         = 0x09
)

// Frames that are none end the connection, and the call with it.
//
// spec: CTR-9
func TestFramesThatAreNone(t *testing.T) {
	for name, raw := range map[string][]byte{
		"an unknown kind":                 {final | 3, 0x80, 0, 0, 0, 0},
		"an unknown kind of control":      {final | 11, 0x80, 0, 0, 0, 0},
		"reserved bits":                   {final | 0x70 | binaryFrame, 0x80, 0, 0, 0, 0},
		"no mask":                         {final | binaryFrame, 1, 0},
		"a length below zero":             frame(final|binaryFrame, 1<<63, nil),
		"a long ping":                     frame(final|ping, 126, nil),
		"a ping in pieces":                whole(ping, ""),
		"the rest of nothing":             whole(final|continuation, "x"),
		"a message within another":        append(whole(binaryFrame, "\x00x"), whole(binaryFrame, "\x00y")...),
		"a reason without a code":         whole(final|8, "x"),
		"a code that does not exist":      whole(final|8, "\x00\x01"),
		"a size that is none":             whole(final|binaryFrame, "\x04{"),
		"a size that does not come":       append(whole(binaryFrame, "\x04"), whole(final|3, "")...),
		"HTTP":                            []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"what SPDY begins with":           {0x80, 3, 0, 1, 0, 0, 0, 0},
		"a frame of which the rest lacks": frame(final|binaryFrame, 1<<40, []byte("\x00x")),
	} {
		t.Run(name, func(t *testing.T) {
			url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
				upgrade.WebSocket(ctx, w, r, &sink{echo: newEcho(ctx)}, upgrade.ProbeAfter)
			})
			conn := dialSocket(t, url, "v5.channel.k8s.io").NetConn().(*net.TCPConn)
			if _, err := conn.Write(raw); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, conn) // Until the server closes it.
			<-ended
		})
	}
}

// sink is a command that reads everything, and checks in which pieces.
type sink struct {
	*echo
	got, largest atomic.Int64
}

func (s *sink) Send(in *corev1.StreamInput) error {
	n := int64(len(in.GetData()))
	s.got.Add(n)
	s.largest.Store(max(n, s.largest.Load()))
	return s.ctx.Err()
}

func (s *sink) Recv() (*corev1.StreamOutput, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

// Frames and messages that do not end are passed on as they come, in pieces that are not large. What is meant for
// nobody is dropped, however much it is.
//
// spec: CTR-9
func TestFramesThatNeverEnd(t *testing.T) {
	const most = 8 << 20
	chunk := make([]byte, 64<<10)
	fragments := bytes.Repeat(whole(continuation, "x"), most/8)
	for name, c := range map[string]struct {
		begin, more []byte
		times       int
		want        int64
	}{
		"a giant frame":                  {frame(final|binaryFrame, 1<<62, []byte{0}), chunk, most / len(chunk), most},
		"a giant message":                {whole(binaryFrame, "\x00"), fragments, 1, most / 8},
		"a giant message with nothing":   {whole(binaryFrame, "\x00x"), whole(continuation, ""), 100_000, 1},
		"a giant size":                   {frame(final|binaryFrame, 1<<62, []byte("\x04 ")), bytes.Repeat([]byte(" "), 1<<20), 8, 0},
		"a giant frame on no channel":    {frame(final|binaryFrame, 1<<62, []byte{77}), chunk, most / len(chunk), 0},
		"a giant end of a channel":       {frame(final|binaryFrame, 1<<62, []byte{255}), chunk, most / len(chunk), 0},
		"pings without end":              {nil, whole(final|ping, "x"), 100_000, 0},
		"messages on no channel":         {nil, whole(final|binaryFrame, "\x63x"), 100_000, 0},
		"messages without a channel":     {nil, whole(final|binaryFrame, ""), 100_000, 0},
		"ends of what has ended already": {nil, whole(final|binaryFrame, "\xff\x00"), 100_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var s *sink
			url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
				s = &sink{echo: newEcho(ctx)}
				upgrade.WebSocket(ctx, w, r, s, upgrade.ProbeAfter)
			})
			conn := dialSocket(t, url, "v5.channel.k8s.io").NetConn().(*net.TCPConn)
			go func() { _, _ = io.Copy(io.Discard, conn) }() // Until the server closes it.
			_, err := conn.Write(c.begin)
			for buf := bytes.Repeat(c.more, min(c.times, 1000)); c.times > 0; c.times -= 1000 {
				if err == nil {
					_, err = conn.Write(buf[:min(len(buf), c.times*len(c.more))])
				}
			}
			if c.want > 0 && err != nil {
				t.Error(err)
			}
			_ = conn.CloseWrite()
			<-ended
			if s.got.Load() != c.want || s.largest.Load() > 32<<10 {
				t.Errorf("%d bytes have come in pieces of up to %d, want %d", s.got.Load(), s.largest.Load(), c.want)
			}
		})
	}
}

// Some clients send their input as text, some know base64 only, some name no protocol: they are understood as
// Kubernetes understands them.
//
// spec: CTR-9
func TestOtherProtocols(t *testing.T) {
	for protocol, c := range map[string]struct {
		send, want string
		kind       int
	}{
		"v4.channel.k8s.io":        {"\x00hello", "\x01hello", websocket.BinaryMessage},
		"channel.k8s.io":           {"\x00hello", "\x01hello", websocket.BinaryMessage},
		"":                         {"\x00hello", "\x01hello", websocket.BinaryMessage},
		"v4.base64.channel.k8s.io": {"0aGVsbG8=", "1aGVsbG8=", websocket.TextMessage},
		"base64.channel.k8s.io":    {"0aGVsbG8=", "1aGVsbG8=", websocket.TextMessage},
	} {
		for _, kind := range []int{websocket.TextMessage, websocket.BinaryMessage} {
			url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
				upgrade.WebSocket(ctx, w, r, &once{echo: newEcho(ctx)}, upgrade.ProbeAfter)
			})
			conn := dialSocket(t, url, protocol)
			if err := conn.WriteMessage(kind, []byte(c.send)); err != nil {
				t.Fatal(err)
			}
			got, message, err := conn.ReadMessage()
			if err != nil || got != c.kind || string(message) != c.want {
				t.Errorf("%q: %d %q, %v", protocol, got, message, err)
			}
			_, message, err = conn.ReadMessage()
			old := !strings.HasPrefix(protocol, "v4")
			if old && string(message) != "\x03failed" && string(message) != "3ZmFpbGVk" ||
				!old && !bytes.HasPrefix(message, []byte("\x03{")) && !bytes.HasPrefix(message, []byte("3ey")) {
				t.Errorf("%q: the end is %q, %v", protocol, message, err)
			}
			conn.Close()
			<-ended
		}
	}
}

// once is an echo that fails after one piece.
type once struct {
	*echo
	done bool
}

func (o *once) Recv() (*corev1.StreamOutput, error) {
	if o.done {
		_ = o.echo.Send
		go func() { _ = o.Send(&corev1.StreamInput{End: true}) }()
	}
	o.done = true
	return failing{o.echo}.Recv()
}

// bubble serves one connection without a network, so that a test can wait until nothing moves any more.
func bubble(t *testing.T, handle func(http.ResponseWriter, *http.Request)) (client net.Conn) {
	client, server := net.Pipe()
	l := &oneConn{make(chan net.Conn, 1), server.LocalAddr()}
	l.conns <- server
	s := &http.Server{Handler: http.HandlerFunc(handle)} //nolint:gosec // Nobody else reaches it.
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { client.Close(); s.Close() })
	return client
}

type oneConn struct {
	conns chan net.Conn
	addr  net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *oneConn) Close() error   { close(l.conns); return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }

// flood is a command that writes without end, and counts.
type flood struct {
	*echo
	pieces atomic.Int64
}

func (f *flood) Recv() (*corev1.StreamOutput, error) {
	f.pieces.Add(1)
	return &corev1.StreamOutput{Data: make([]byte, 32<<10)}, f.ctx.Err()
}

// Whoever does not read holds up the command: no more is taken from it than is on its way. When the server stops, the
// client has a few seconds, and then the connection ends, with all that was begun for it.
//
// spec: CTR-9
func TestNobodyReads(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(context.Context, http.ResponseWriter, *http.Request, upgrade.Stream)
		dial  func(t *testing.T, conn net.Conn) io.Closer
	}{
		"WebSocket": {
			func(ctx context.Context, w http.ResponseWriter, r *http.Request, s upgrade.Stream) {
				upgrade.WebSocket(ctx, w, r, s, upgrade.ProbeAfter)
			},
			func(t *testing.T, conn net.Conn) io.Closer { return socketOver(t, conn, "v5.channel.k8s.io") },
		},
		"SPDY": {
			func(ctx context.Context, w http.ResponseWriter, r *http.Request, s upgrade.Stream) {
				upgrade.SPDY(ctx, w, r, upgrade.Wanted{Stdout: true}, s)
			},
			func(t *testing.T, conn net.Conn) io.Closer {
				c := spdyOver(t, conn, "v4.channel.k8s.io")
				create(t, c, "streamType", "error")
				create(t, c, "streamType", "stdout")
				return c
			},
		},
		"forwarded over SPDY": {
			func(ctx context.Context, w http.ResponseWriter, r *http.Request, s upgrade.Stream) {
				upgrade.Forward(ctx, w, r, "p", func(context.Context, int32) (upgrade.Stream, error) { return s, nil })
			},
			func(t *testing.T, conn net.Conn) io.Closer {
				c := spdyOver(t, conn, "portforward.k8s.io")
				create(t, c, "streamType", "error", "port", "80", "requestID", "0")
				create(t, c, "streamType", "data", "port", "80", "requestID", "0")
				return c
			},
		},
		"ports over a WebSocket": {
			func(ctx context.Context, w http.ResponseWriter, r *http.Request, s upgrade.Stream) {
				upgrade.ForwardPorts(ctx, w, r, "p", []int32{80},
					func(context.Context, int32) (upgrade.Stream, error) { return s, nil })
			},
			func(t *testing.T, conn net.Conn) io.Closer {
				c := socketOver(t, conn, "v4.channel.k8s.io")
				for range 2 { // The number of the port, on both channels.
					if _, _, err := c.ReadMessage(); err != nil {
						t.Fatal(err)
					}
				}
				return c
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				f := &flood{echo: newEcho(ctx)}
				ended := make(chan struct{})
				conn := bubble(t, func(w http.ResponseWriter, r *http.Request) {
					defer close(ended)
					c.serve(ctx, w, r, f)
				})
				client := c.dial(t, conn)
				synctest.Wait()
				if n := f.pieces.Load(); n == 0 || n > 100 { // The client's library for SPDY has a queue of its own.
					t.Errorf("%d pieces were taken from the command", n)
				}
				before := time.Now()
				stop()
				<-ended
				if took := time.Since(before); took > 15*time.Second {
					t.Errorf("the end took %s", took)
				}
				client.Close()
				time.Sleep(time.Minute) // What spdystream does when a connection ends takes a while.
			})
		})
	}
}

// brief is a command that writes much and succeeds.
type brief struct {
	*echo
	pieces int
}

func (b *brief) Recv() (*corev1.StreamOutput, error) {
	if b.pieces == 0 {
		return &corev1.StreamOutput{Status: &metav1.Status{Status: "Success"}}, nil
	}
	b.pieces--
	return &corev1.StreamOutput{Data: make([]byte, 32<<10)}, b.ctx.Err()
}

// Whoever reads later than the command ends, as a pager does that somebody reads in, misses nothing: neither output
// nor how it ended.
//
// spec: CTR-9
func TestReadsLate(t *testing.T) {
	const pieces, pause = 40, 10 * time.Minute
	t.Run("WebSocket", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			conn := bubble(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				upgrade.WebSocket(t.Context(), w, r, &brief{newEcho(t.Context()), pieces}, upgrade.ProbeAfter)
			})
			client := socketOver(t, conn, "v5.channel.k8s.io")
			got, status := 0, ""
			for {
				_, message, err := client.ReadMessage()
				if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if message[0] == 3 {
					status += string(message[1:])
					continue
				}
				got += len(message) - 1
				for began := time.Now(); got == pieces*32<<10 && time.Since(began) < pause; {
					time.Sleep(5 * time.Second)
					// client-go looks for the server so.
					if err := client.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got != pieces*32<<10 || !strings.Contains(status, "Success") {
				t.Errorf("%d bytes of %d, and %q", got, pieces*32<<10, status)
			}
			client.Close()
			<-ended
		})
	})
	t.Run("SPDY", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			conn := bubble(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				upgrade.SPDY(t.Context(), w, r, upgrade.Wanted{Stdout: true}, &brief{newEcho(t.Context()), pieces})
			})
			client := spdyOver(t, conn, "v4.channel.k8s.io")
			failure, stdout := create(t, client, "streamType", "error"), create(t, client, "streamType", "stdout")
			time.Sleep(pause)
			got, err := io.Copy(io.Discard, stdout)
			status, statusErr := io.ReadAll(failure)
			if err := errors.Join(err, statusErr); err != nil || got != pieces*32<<10 ||
				!bytes.Contains(status, []byte("Success")) {
				t.Errorf("%d bytes of %d, and %q, %v", got, pieces*32<<10, status, err)
			}
			client.Close()
			<-ended
			time.Sleep(time.Minute) // What spdystream does when a connection ends takes a while.
		})
	})
}

func socketOver(t *testing.T, conn net.Conn, protocol string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{
		Subprotocols: []string{protocol}, NetDial: func(string, string) (net.Conn, error) { return conn, nil },
	}
	c, resp, err := d.Dial("ws://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return c
}

// spdyOver creates streams, whose replies are read, and nothing else.
func spdyOver(t *testing.T, conn net.Conn, protocol string) httpstream.Connection {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "SPDY/3.1")
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	for !bytes.HasSuffix(answer, []byte("\r\n\r\n")) {
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			t.Fatal(err)
		}
		answer = append(answer, b[0])
	}
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 101 ")) {
		t.Fatalf("%s", answer)
	}
	c, err := spdy.NewClientConnection(conn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Clients in other languages name the ports, and have two channels for each. One at which nobody listens says so, and
// leaves the others alone.
//
// spec: CTR-9
func TestForwardPorts(t *testing.T) {
	url, ended := serve(t, func(ctx context.Context, w http.ResponseWriter, r *http.Request) {
		if !upgrade.WithPorts(r) {
			t.Error("it is not seen what the client wants")
		}
		upgrade.ForwardPorts(ctx, w, r, "p", []int32{80, 81, 0x1234},
			func(ctx context.Context, port int32) (upgrade.Stream, error) {
				if port == 81 {
					return nil, errors.New("nobody listens")
				}
				return shouting{newEcho(ctx)}, nil
			})
	})
	conn := dialSocket(t, url, "v4.channel.k8s.io")
	const most = 1 << 20
	go func() {
		for range 64 {
			for _, channel := range []byte{4, 0, 2, 77, 1} { // Of the last three nobody wants to hear.
				_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, make([]byte, most/64)...))
			}
		}
	}()
	got := map[byte][]byte{}
	for len(got[0]) < most+2 || len(got[4]) < most+2 || len(got[3]) <= 2 {
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		got[message[0]] = append(got[message[0]], message[1:]...)
	}
	for channel, want := range map[byte]string{
		0: "\x50\x00", 1: "\x50\x00", 2: "\x51\x00", 3: "\x51\x00error forwarding port 81 to pod p: nobody listens",
		4: "\x34\x12", 5: "\x34\x12",
	} {
		text := string(got[channel])
		if channel == 0 || channel == 4 {
			text = text[:2] // The rest is what was sent.
		}
		if text != want {
			t.Errorf("channel %d: %.100q", channel, got[channel])
		}
	}
	conn.Close()
	<-ended
}
