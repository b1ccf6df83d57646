package local_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	kcorev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/local"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// echoes are pods whose commands, ports and pages answer each piece of input with itself. A pod named "late" does not
// answer at all. Each call that has ended is told to ended.
type echoes struct {
	corev1rpc.UnimplementedPodsServer
	ended chan string
}

func (e echoes) Exec(stream grpc.BidiStreamingServer[corev1rpc.ExecPodRequest, corev1.StreamOutput]) error {
	defer func() { e.ended <- "exec" }()
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for !req.GetInput().GetEnd() {
		if data := req.GetInput().GetData(); len(data) > 0 {
			if err := stream.Send(&corev1.StreamOutput{Data: data}); err != nil {
				return err
			}
		}
		if req, err = stream.Recv(); err != nil {
			return err
		}
	}
	return errors.Join(stream.Send(&corev1.StreamOutput{Data: []byte("at the end of the input")}),
		stream.Send(&corev1.StreamOutput{Status: &metav1.Status{Status: "Success"}}))
}

func (e echoes) PortForward(
	stream grpc.BidiStreamingServer[corev1rpc.PortForwardPodRequest, corev1.StreamOutput],
) error {
	defer func() { e.ended <- "ports" }()
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for !req.GetInput().GetEnd() {
		if data := req.GetInput().GetData(); len(data) > 0 {
			if err := stream.Send(&corev1.StreamOutput{Data: data}); err != nil {
				return err
			}
		}
		if req, err = stream.Recv(); err != nil {
			return err
		}
	}
	return nil
}

func (e echoes) Proxy(stream grpc.BidiStreamingServer[corev1rpc.ProxyPodRequest, corev1.ProxyOutput]) error {
	defer func() { e.ended <- "proxy" }()
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	if req.GetName() == "late" {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	err = stream.Send(&corev1.ProxyOutput{Code: http.StatusSwitchingProtocols, Headers: []*corev1.ProxyHeader{
		{Name: "Connection", Value: []byte("Upgrade")}, {Name: "Upgrade", Value: []byte("echo")},
	}})
	for err == nil {
		if req, err = stream.Recv(); err == nil {
			err = stream.Send(&corev1.ProxyOutput{Data: req.GetInput().GetData()})
		}
	}
	return err
}

// serve returns a server of echoes, which the caller shuts down.
func serve(t *testing.T) (*local.Server, echoes) {
	e := echoes{ended: make(chan string, 9)}
	srv := inproc.NewServer(nil, nil)
	t.Cleanup(srv.Stop)
	corev1rpc.RegisterPodsServer(srv, e)
	logger := slog.New(slog.DiscardHandler)
	return local.New(local.Config{Logger: logger, Front: func() (*rest.Handler, error) {
		return rest.New(rest.Config{
			Conn: srv.Conn(inproc.PassValues()), Version: "1.36.3", Logger: logger,
			Authenticate: func(_ http.ResponseWriter, r *http.Request) *http.Request {
				return r.WithContext(authn.WithUser(r.Context(), &authn.User{Name: "jane"}))
			},
		})
	}}), e
}

const pods = "http://any/api/v1/namespaces/default/pods/"

// upgrade asks the page of a pod to speak another protocol.
func upgrade(ctx context.Context, s *local.Server, pod string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, pods+pod+"/proxy/", nil)
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	return s.Transport().RoundTrip(r)
}

// A connection that has been upgraded is the body of the answer, which can be written to as well. It outlives the
// context of the request, lasts however long nobody says anything, and ends with whoever closes it and with the
// server.
//
// spec: CTR-9
func TestUpgrade(t *testing.T) {
	for name, end := range map[string]func(*local.Server, io.Closer) error{
		"by the client": func(_ *local.Server, body io.Closer) error { return body.Close() },
		"with the server": func(s *local.Server, _ io.Closer) error {
			return s.Shutdown(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, e := serve(t)
				ctx, cancel := context.WithCancel(t.Context())
				res, err := upgrade(ctx, s, "a")
				if err != nil {
					t.Fatal(err)
				}
				body, ok := res.Body.(io.ReadWriteCloser)
				if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "echo" || !ok {
					t.Fatalf("%s, %v, and the body is a %T", res.Status, res.Header, res.Body)
				}
				defer body.Close()
				cancel()
				for _, said := range []string{"hello", strings.Repeat("x", 1<<20)} {
					go func() { _, _ = io.WriteString(body, said) }()
					got := make([]byte, len(said))
					if _, err := io.ReadFull(body, got); err != nil || string(got) != said {
						t.Errorf("%.10q... came back as %.10q..., %v", said, got, err)
					}
					time.Sleep(time.Hour)
				}
				begin := time.Now()
				if err := end(s, body); err != nil {
					t.Error(err)
				}
				if got := <-e.ended; got != "proxy" || time.Since(begin) > time.Second {
					t.Errorf("%s ended after %v", got, time.Since(begin))
				}
				if n, err := body.Read(make([]byte, 9)); n > 0 || err == nil {
					t.Errorf("after the end: %d bytes, %v", n, err)
				}
				if _, err := io.WriteString(body, "more"); err == nil {
					t.Error("the connection can be written to after its end")
				}
				if err := s.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who gives up before the answer has come is told so, and the call ends.
//
// spec: CTR-9
func TestUpgradeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := serve(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if res, err := upgrade(ctx, s, "late"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", res, err)
		}
		<-e.ended
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if res, err := upgrade(canceled, s, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", res, err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if res, err := upgrade(t.Context(), s, "a"); !errors.Is(err, local.ErrStopped) {
			t.Errorf("after the end: %v, %v", res, err)
		}
	})
}

// SPDY, as the programs of client-go speak it, runs commands and reaches ports over the Transport, without a listener.
// A stream that is closed on one side brings what still comes from the other.
//
// spec: CTR-9
func TestSPDY(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := serve(t)
		conn := dialSPDY(t, s, "a/exec?command=cat&stdin=true&stdout=true", "v4.channel.k8s.io")
		status := create(t, conn, kcorev1.StreamTypeError, "")
		in, out := create(t, conn, kcorev1.StreamTypeStdin, ""), create(t, conn, kcorev1.StreamTypeStdout, "")
		say(t, in, "hello, ")
		hear(t, out, "hello, at the end of the input")
		hear(t, status, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`)
		conn.Close()
		if got := <-e.ended; got != "exec" {
			t.Errorf("%s ended", got)
		}

		conn = dialSPDY(t, s, "a/portforward", "portforward.k8s.io")
		failed, data := create(t, conn, kcorev1.StreamTypeError, "80"), create(t, conn, kcorev1.StreamTypeData, "80")
		say(t, data, "to the port")
		hear(t, data, "to the port")
		hear(t, failed, "")
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-conn.CloseChan()
	})
}

// dialSPDY connects to a subresource of a pod.
func dialSPDY(t *testing.T, s *local.Server, sub, protocol string) httpstream.Connection {
	t.Helper()
	tripper, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: s.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, pods+sub, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Add(httpstream.HeaderProtocolVersion, protocol)
	res, err := tripper.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tripper.NewConnection(res)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// create makes a stream of a connection, for a port unless that is empty.
func create(t *testing.T, conn httpstream.Connection, what, port string) httpstream.Stream {
	t.Helper()
	h := http.Header{}
	h.Set(kcorev1.StreamType, what)
	if port != "" {
		h.Set(kcorev1.PortHeader, port)
		h.Set(kcorev1.PortForwardRequestIDHeader, "0")
	}
	s, err := conn.CreateStream(h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// say writes text, and nothing after it.
func say(t *testing.T, to io.WriteCloser, text string) {
	t.Helper()
	_, err := io.WriteString(to, text)
	if err = errors.Join(err, to.Close()); err != nil {
		t.Error(err)
	}
}

// hear reads until the end.
func hear(t *testing.T, from io.Reader, want string) {
	t.Helper()
	if got, err := io.ReadAll(from); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
