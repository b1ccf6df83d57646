package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kcorev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	corev1 "monoplane.dev/api/core/v1"
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

// Who runs a command is recorded whatever the policy says, when it begins and when it has ended, with the code that a
// client is told: over WebSocket, over SPDY, and over gRPC. What was refused is no such act.
//
// spec: CTR-9
func TestStreamsAreAudited(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	policy, log := filepath.Join(filepath.Dir(dir), "policy.yaml"), filepath.Join(filepath.Dir(dir), "audit.log")
	if err := os.WriteFile(policy, []byte(silentPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startIn(t, dir, "--audit-policy-file", policy, "--audit-log-path", log)
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
			if err := s.Send(&corev1.ExecPodRequest{
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
