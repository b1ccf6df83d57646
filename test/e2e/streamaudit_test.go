package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	kcorev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/client"
)

// silentPolicy records nothing that need not be recorded.
const silentPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
`

// audited are the events of a request, in order, as "stage code".
type audited struct {
	uri, user, act string
	stages         []string
}

// auditedIn returns the requests in an audit log whose URI contains part.
func auditedIn(t *testing.T, path, part string) (list []*audited) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	byID := map[string]*audited{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // It is being written.
		}
		var e struct {
			AuditID, Stage, RequestURI string
			User                       struct{ Username string }
			ResponseStatus             struct{ Code int }
			Annotations                map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if !strings.Contains(e.RequestURI, part) {
			continue
		}
		a := byID[e.AuditID]
		if a == nil {
			a = &audited{uri: e.RequestURI}
			byID[e.AuditID], list = a, append(list, a)
		}
		a.user, a.act = e.User.Username, e.Annotations["audit.monoplane.dev/act"]
		a.stages = append(a.stages, fmt.Sprint(e.Stage, " ", e.ResponseStatus.Code))
	}
	return list
}

// startAudited starts a server that records what it must, and returns the path of its audit log.
func startAudited(t *testing.T) (c *cluster, log string) {
	t.Helper()
	dir := shortDir(t)
	policy, log := filepath.Join(filepath.Dir(dir), "policy.yaml"), filepath.Join(filepath.Dir(dir), "audit.log")
	if err := os.WriteFile(policy, []byte(silentPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return startIn(t, dir, "--audit-policy-file", policy, "--audit-log-path", log), log
}

// Who runs a command is recorded whatever the policy says, when it begins and when it has ended, with the code that a
// client is told: over WebSocket, over SPDY, and over gRPC. What was refused is no such act.
//
// spec: CTR-9
func TestStreamsAreAudited(t *testing.T) {
	t.Parallel()
	c, log := startAudited(t)
	k := c.kubectl(t, "default")
	k.sleeper(t, "runs")
	config := c.config(t)

	// Each command waits for its input to end, and fails then.
	overREST := func(mark string, executor func(*url.URL) (remotecommand.Executor, error)) func(io.Reader) error {
		return func(in io.Reader) error {
			q, err := scheme.ParameterCodec.EncodeParameters(&kcorev1.PodExecOptions{
				Command: []string{"sh", "-c", ": " + mark + "; cat; exit 3"}, Stdin: true, Stdout: true,
			}, kcorev1.SchemeGroupVersion)
			if err != nil {
				return err
			}
			u, err := url.Parse(c.url + "/api/v1/namespaces/default/pods/runs/exec?" + q.Encode())
			if err != nil {
				return err
			}
			e, err := executor(u)
			if err != nil {
				return err
			}
			return e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
		}
	}
	cl := c.dial(t)
	for _, way := range []struct {
		name, uri string
		started   int
		run       func(in io.Reader) error
	}{
		{"WebSocket", "by-websocket", http.StatusSwitchingProtocols,
			overREST("by-websocket", func(u *url.URL) (remotecommand.Executor, error) {
				return remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
			})},
		{"SPDY", "by-spdy", http.StatusSwitchingProtocols,
			overREST("by-spdy", func(u *url.URL) (remotecommand.Executor, error) {
				return remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
			})},
		{"gRPC", "Pods/Exec", http.StatusOK, func(in io.Reader) error {
			s, err := cl.Pods.Exec(t.Context())
			if err != nil {
				return err
			}
			if err := s.Send(&corev1rpc.ExecPodRequest{
				Namespace: "default", Name: "runs", Command: []string{"sh", "-c", "cat; exit 3"}, Stdin: true, Stdout: true,
			}); err != nil {
				return err
			}
			go func() {
				_, _ = io.Copy(io.Discard, in)
				_ = s.CloseSend()
			}()
			for {
				out, err := s.Recv()
				if err != nil {
					return err
				}
				if st := out.GetStatus(); st != nil {
					return fmt.Errorf("%s", st.GetMessage())
				}
			}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			in, say := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- way.run(in) }()
			begun := fmt.Sprint("ResponseStarted ", way.started)
			eventually(t, "the beginning is recorded", func() (bool, string) {
				list := auditedIn(t, log, way.uri)
				return len(list) == 1 && slices.Equal(list[0].stages, []string{begun}), fmt.Sprintf("%+v", list)
			})
			_ = say.Close()
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "exit code 3") &&
				!strings.Contains(err.Error(), "exit status 3") {
				t.Errorf("the command ends with %v", err)
			}
			var got *audited
			eventually(t, "the end is recorded", func() (bool, string) {
				got = auditedIn(t, log, way.uri)[0]
				return len(got.stages) > 1, fmt.Sprintf("%+v", got)
			})
			if want := []string{begun, fmt.Sprint("ResponseComplete ", way.started)}; !slices.Equal(got.stages, want) ||
				got.user != "monoplane:admin" || got.act != "exec" {
				t.Errorf("%+v, want %v", got, want)
			}
		})
	}
	k.tour(t, []step{{line: "exec none -- true", code: 1}, {line: "exec runs -- true"}})
	eventually(t, "what came after it is recorded", func() (bool, string) {
		list := auditedIn(t, log, "/pods/runs/exec?command=true")
		return len(list) == 1 && len(list[0].stages) == 2, fmt.Sprintf("%+v", list)
	})
	if list := auditedIn(t, log, "/pods/none/"); len(list) > 0 {
		t.Errorf("what was refused is an act: %+v", list[0])
	}
}

// Who joins a container, or has connections forwarded to a pod, is recorded too, from the beginning to the end: over
// WebSocket and SPDY once for all connections of a client, which leave no records of their own, whether somebody
// listens or not. Who hangs up has been answered all the same.
//
// spec: CTR-9
func TestAttachesAndPortForwardsAreAudited(t *testing.T) {
	t.Parallel()
	c, log := startAudited(t)
	c.kubectl(t, "default").sleeper(t, "runs")
	config, cl, port := c.config(t), c.dial(t), echoPort(t)
	at := func(sub, by string) *url.URL {
		u, err := url.Parse(c.url + "/api/v1/namespaces/default/pods/runs/" + sub + "by=" + by)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	// Each begins something, and returns what ends it.
	attach := func(e remotecommand.Executor, err error) func() {
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard}) }()
		return func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a client that hangs up is told %v", err)
			}
		}
	}
	const switched = http.StatusSwitchingProtocols
	for _, way := range []struct {
		name, uri, act string
		began, ended   int
		begin          func() (end func())
	}{
		{"attach over WebSocket", "/runs/attach?stdout=1&by=websocket", "attach", switched, switched, func() func() {
			return attach(remotecommand.NewWebSocketExecutor(config, http.MethodGet,
				at("attach?stdout=1&", "websocket").String()))
		}},
		{"attach over SPDY", "/runs/attach?stdout=1&by=spdy", "attach", switched, switched, func() func() {
			return attach(remotecommand.NewSPDYExecutor(config, http.MethodPost, at("attach?stdout=1&", "spdy")))
		}},
		{"attach over gRPC", "Pods/Attach", "attach", http.StatusOK, http.StatusOK, func() func() {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := cl.Pods.Attach(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&corev1rpc.AttachPodRequest{Namespace: "default", Name: "runs"}); err != nil {
				t.Fatal(err)
			}
			return cancel
		}},
		{"ports over WebSocket", "/runs/portforward?by=websocket", "portforward", switched, switched, func() func() {
			dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at("portforward?", "websocket"), config)
			if err != nil {
				t.Fatal(err)
			}
			return forwardAll(t, dialer, port)
		}},
		{"ports over SPDY", "/runs/portforward?by=spdy", "portforward", switched, switched, func() func() {
			tripper, upgrader, err := spdy.RoundTripperFor(config)
			if err != nil {
				t.Fatal(err)
			}
			return forwardAll(t, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: tripper}, http.MethodPost,
				at("portforward?", "spdy")), port)
		}},
		{"ports over gRPC", "Pods/PortForward", "portforward", http.StatusOK, http.StatusOK, func() func() {
			return forwardOne(t, cl, port)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			var stages []string
			recorded := func(stage string, code int) {
				t.Helper()
				stages = append(stages, fmt.Sprint(stage, " ", code))
				eventually(t, fmt.Sprint(stages, " are recorded"), func() (bool, string) {
					list := auditedIn(t, log, way.uri)
					if len(list) != 1 {
						return false, fmt.Sprint(len(list), " requests")
					}
					got := list[0]
					return got.user == "monoplane:admin" && got.act == way.act && slices.Equal(got.stages, stages),
						fmt.Sprintf("%+v", got)
				})
			}
			end := way.begin()
			recorded("ResponseStarted", way.began)
			end()
			recorded("ResponseComplete", way.ended)
		})
	}
	if list := auditedIn(t, log, "PortForward"); len(list) != 1 {
		t.Errorf("%d calls of gRPC are recorded, want that of the client alone", len(list))
	}
}

// echoPort returns a port of this machine that says what it hears, until that has ended.
func echoPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// forwardAll makes connections to a port, and one to a port where nobody listens. They end with what it returns.
func forwardAll(t *testing.T, dialer httpstream.Dialer, port int) (end func()) {
	t.Helper()
	conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	for id, to := range []int{port, 1, port} {
		var streams []httpstream.Stream
		for _, kind := range []string{kcorev1.StreamTypeError, kcorev1.StreamTypeData} {
			h := http.Header{}
			h.Set(kcorev1.PortHeader, strconv.Itoa(to))
			h.Set(kcorev1.PortForwardRequestIDHeader, strconv.Itoa(id))
			h.Set(kcorev1.StreamType, kind)
			s, err := conn.CreateStream(h)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		errs, data := streams[0], streams[1]
		if to == 1 {
			if text, err := io.ReadAll(errs); err != nil || !strings.Contains(string(text), "connection refused") {
				t.Errorf("nobody listens: %q, %v", text, err)
			}
			continue
		}
		got := make([]byte, 5)
		_, _ = io.WriteString(data, "hello")
		if _, err := io.ReadFull(data, got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	return func() { _ = conn.Close() }
}

// forwardOne makes a connection to a port over gRPC. What it returns ends the sending, without a message that says so:
// the port hears the end of what is said, has said all, and the call ends well.
func forwardOne(t *testing.T, cl *client.Client, port int) (end func()) {
	t.Helper()
	s, err := cl.Pods.PortForward(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []*corev1rpc.PortForwardPodRequest{
		{Namespace: "default", Name: "runs", Ports: []int32{int32(port)}},
		{Input: &corev1.StreamInput{Data: []byte("hello")}},
	} {
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		var data, status string
		for {
			out, err := s.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) || data != "hello" || status != "Success" {
					t.Errorf("the port says %q, and it ends with %q, %v", data, status, err)
				}
				return
			}
			data, status = data+string(out.GetData()), status+out.GetStatus().GetStatus()
		}
	}
}
