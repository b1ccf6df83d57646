package stream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monoplane.dev/nodeagent/runtime/stream"
)

func TestMain(m *testing.M) {
	// Of spdystream: it waits a second for somebody to ask how a closed connection has ended.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// runtimeServer is a runtime that answers with the address of a server of streams, as containerd does.
type runtimeServer struct {
	runtimeapi.RuntimeServiceClient

	url   string
	asked any
}

func (r *runtimeServer) Exec(
	_ context.Context, req *runtimeapi.ExecRequest, _ ...grpc.CallOption,
) (*runtimeapi.ExecResponse, error) {
	if r.asked = req; req.GetContainerId() == "" {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.ExecResponse{Url: r.url}, nil
}

func (r *runtimeServer) Attach(
	_ context.Context, req *runtimeapi.AttachRequest, _ ...grpc.CallOption,
) (*runtimeapi.AttachResponse, error) {
	r.asked = req
	return &runtimeapi.AttachResponse{Url: r.url}, nil
}

func (r *runtimeServer) PortForward(
	_ context.Context, req *runtimeapi.PortForwardRequest, _ ...grpc.CallOption,
) (*runtimeapi.PortForwardResponse, error) {
	r.asked = req
	return &runtimeapi.PortForwardResponse{Url: r.url}, nil
}

// served is a connection that was upgraded.
type served struct {
	t       *testing.T
	conn    httpstream.Connection
	streams map[string]httpstream.Stream
	headers http.Header // Of the stream that carries data.
}

// serve has handle talk over SPDY, once the client has created so many streams.
func serve(t *testing.T, protocol string, streams int, handle func(s *served)) (stream.Remote, *runtimeServer) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
			t.Error(err)
			return
		}
		type created struct {
			httpstream.Stream
			replied <-chan struct{}
		}
		arriving := make(chan created, 10)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
			func(s httpstream.Stream, replied <-chan struct{}) error {
				arriving <- created{s, replied}
				return nil
			})
		if conn == nil {
			t.Error("the connection cannot be upgraded")
			return
		}
		defer conn.Close()
		all := &served{t: t, conn: conn, streams: map[string]httpstream.Stream{}}
		for range streams {
			select {
			case c := <-arriving:
				<-c.replied
				kind := c.Headers().Get("streamType")
				if all.streams[kind] = c.Stream; kind == "data" {
					all.headers = c.Headers()
				}
			case <-conn.CloseChan():
				return
			}
		}
		handle(all)
	}))
	t.Cleanup(s.Close)
	runtime := &runtimeServer{url: s.URL}
	return stream.Remote{Runtime: runtime}, runtime
}

// close ends the streams, as servers do when they have said all, and waits for the client to go.
func (s *served) close() {
	for _, one := range s.streams {
		_ = one.Close()
	}
	<-s.conn.CloseChan()
}

const command = "v4.channel.k8s.io"

// What goes in and out of a command passes through the runtime's server, whole; how it ended is what the server's last
// word says.
//
// spec: CTR-9
func TestRemoteCommand(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 200_000)
	for name, c := range map[string]struct {
		said string
		code int32
		want string // Within the error.
	}{
		"success": {said: `{"status":"Success"}`},
		"exit code": {said: `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":` +
			`[{"reason":"Other","message":"9"},{"reason":"ExitCode","message":"42"}]}}`, code: 42},
		"a code that is none": {said: `{"status":"Failure","reason":"NonZeroExitCode","message":"exited","details":` +
			`{"causes":[{"reason":"ExitCode","message":"many"}]}}`, want: "exited"},
		"failure":  {said: `{"status":"Failure","reason":"InternalError","message":"no such file"}`, want: "no such file"},
		"nonsense": {said: `exit status 1`, want: "answered nonsense"},
		"nothing":  {said: ``, want: "without saying how it went"},
	} {
		t.Run(name, func(t *testing.T) {
			remote, runtime := serve(t, command, 4, func(s *served) {
				if _, err := io.Copy(s.streams["stdout"], s.streams["stdin"]); err != nil {
					t.Error(err)
				}
				fmt.Fprint(s.streams["stderr"], "errors")
				fmt.Fprint(s.streams["error"], c.said)
				s.close()
			})
			var out, errs bytes.Buffer
			code, err := remote.ExecStream(t.Context(), &runtimeapi.ExecRequest{
				ContainerId: "c", Cmd: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true,
			}, stream.Streams{In: bytes.NewReader(text), Out: &out, Err: &errs})
			if code != c.code || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d, %v; want %d, %q", code, err, c.code, c.want)
			}
			if !bytes.Equal(out.Bytes(), text) || errs.String() != "errors" {
				t.Errorf("%d bytes of %d, %q", out.Len(), len(text), &errs)
			}
			if got := runtime.asked.(*runtimeapi.ExecRequest).GetCmd(); len(got) != 1 || got[0] != "cat" {
				t.Errorf("the runtime is asked for %q", got)
			}
		})
	}
}

// A terminal has its size passed on, and no stream of errors. To attach is the same without a code.
//
// spec: CTR-9
func TestRemoteTerminal(t *testing.T) {
	remote, _ := serve(t, command, 3, func(s *served) {
		decoder := json.NewDecoder(s.streams["resize"])
		for range 2 {
			var size struct{ Width, Height int }
			if err := decoder.Decode(&size); err != nil {
				t.Error(err)
			}
			fmt.Fprintf(s.streams["stdout"], "%dx%d ", size.Width, size.Height)
		}
		fmt.Fprint(s.streams["error"], `{"status":"Success"}`)
		s.close()
	})
	sizes := make(chan stream.Size, 2)
	sizes <- stream.Size{Width: 80, Height: 24}
	sizes <- stream.Size{Width: 132, Height: 50}
	var out bytes.Buffer
	err := remote.AttachStream(t.Context(), &runtimeapi.AttachRequest{
		ContainerId: "c", Stdout: true, Stderr: true, Tty: true,
	}, stream.Streams{Out: &out, Err: io.Discard, Sizes: sizes})
	if err != nil || out.String() != "80x24 132x50 " {
		t.Errorf("%q, %v", &out, err)
	}
}

// A command ends when its context does: the runtime's server is told by the end of the connection.
//
// spec: CTR-9
func TestRemoteCommandEnds(t *testing.T) {
	began, gone := make(chan struct{}), make(chan struct{})
	remote, _ := serve(t, command, 2, func(s *served) {
		close(began)
		<-s.conn.CloseChan()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	_, err := remote.ExecStream(ctx, &runtimeapi.ExecRequest{ContainerId: "c", Stdout: true},
		stream.Streams{Out: io.Discard})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	<-gone
}

// refusing takes nothing.
type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// When nobody takes the output, the command is not left to run.
//
// spec: CTR-9
func TestRemoteOutputRefused(t *testing.T) {
	gone := make(chan struct{})
	remote, _ := serve(t, command, 2, func(s *served) {
		fmt.Fprint(s.streams["stdout"], "hello")
		<-s.conn.CloseChan()
		close(gone)
	})
	_, err := remote.ExecStream(t.Context(), &runtimeapi.ExecRequest{ContainerId: "c", Stdout: true},
		stream.Streams{Out: refusing{}})
	if err == nil {
		t.Error("a command whose output nobody takes has succeeded")
	}
	<-gone
}

// A runtime that refuses, one whose server is not there, and addresses that are none fail with codes that say which.
//
// spec: CTR-9
func TestRemoteUnreachable(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for name, c := range map[string]struct {
		id, url string
		code    codes.Code
	}{
		"refused":        {"", "", codes.NotFound},
		"nobody listens": {"c", closed.URL, codes.Unavailable},
		"no upgrade":     {"c", plain.URL, codes.Unknown},
		"no address":     {"c", "http://[", codes.Unknown},
	} {
		remote := stream.Remote{Runtime: &runtimeServer{url: c.url}}
		_, err := remote.ExecStream(t.Context(), &runtimeapi.ExecRequest{ContainerId: c.id, Stdout: true},
			stream.Streams{Out: io.Discard})
		if status.Code(err) != c.code || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// near is the client's end of a forwarded connection.
type near struct {
	io.Reader

	heard  bytes.Buffer
	closed bool
}

func (n *near) Write(b []byte) (int, error) { return n.heard.Write(b) }

func (n *near) CloseWrite() error {
	n.closed = true
	return nil
}

// A forwarded port hears what the client says up to its end, and the client what the port says; an error that the
// runtime's server states is told, whatever was said before.
//
// spec: CTR-9
func TestRemoteForward(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 200_000)
	for _, problem := range []string{"", "port 8080: connection refused"} {
		remote, runtime := serve(t, "portforward.k8s.io", 2, func(s *served) {
			if got := s.headers.Get("port"); got != strconv.Itoa(8080) || s.headers.Get("requestID") == "" {
				t.Errorf("a stream with %v", s.headers)
			}
			if _, err := io.Copy(s.streams["data"], s.streams["data"]); err != nil {
				t.Error(err)
			}
			fmt.Fprint(s.streams["error"], problem)
			s.close()
		})
		conn := &near{Reader: bytes.NewReader(text)}
		err := remote.Forward(t.Context(), "sandbox", 8080, conn)
		if problem != "" && (status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%v, want %s", err, problem)
		}
		if problem == "" && (err != nil || !conn.closed) {
			t.Errorf("%v, closed %v", err, conn.closed)
		}
		if !bytes.Equal(conn.heard.Bytes(), text) {
			t.Errorf("%d bytes of %d", conn.heard.Len(), len(text))
		}
		if got := runtime.asked.(*runtimeapi.PortForwardRequest); got.GetPodSandboxId() != "sandbox" {
			t.Errorf("the runtime is asked for %v", got)
		}
	}
}
