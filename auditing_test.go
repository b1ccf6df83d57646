package monoplane_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// lines collects what many goroutines write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// auditEvent is what tests look at.
type auditEvent struct {
	AuditID, Level, Stage, RequestURI, Verb string
	User, ImpersonatedUser                  struct{ Username string }
	ObjectRef                               struct{ Resource, Subresource, Namespace, Name, APIVersion string }
	ResponseStatus                          struct {
		Code            int
		Reason, Message string
	}
	RequestObject, ResponseObject json.RawMessage
	Annotations                   map[string]string
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  users: [monoplane:admin]
  resources: [{group: "", resources: [configmaps, secrets]}]
- level: None
`

// Requests over REST and over gRPC are recorded as the policy wants, with who asked, what was decided and what was
// answered. What must be recorded is, whatever the policy says, and no secret is. The end of the cluster writes all.
//
// spec: DEL-8, FENCE-4
func TestAuditLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &lines{}
		c, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), UnsafeNoFsync: true, Nodes: -1,
			Audit: monoplane.AuditConfig{Policy: []byte(auditPolicy), Writer: out},
		})
		if err != nil {
			t.Fatal(err)
		}
		const namespace = "http://any/api/v1/namespaces/default"
		const maps, secrets = namespace + "/configmaps", namespace + "/secrets"
		res := ask(t, c, "POST", maps, "", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
		id := res.Header.Get("Audit-ID")
		told(t, res, 201)
		told(t, ask(t, c, "POST", secrets, "", `{"metadata":{"name":"s"},"stringData":{"k":"hush-hush"}}`), 201)
		told(t, ask(t, c, "GET", maps+"/none", "", ""), 404)
		told(t, ask(t, c, "GET", "http://any/version", "", ""), 200)
		told(t, ask(t, c, "GET", maps, "of nobody", ""), 401)
		r, err := http.NewRequestWithContext(t.Context(), "GET", maps, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Impersonate-User", "eve")
		if res, err = c.Transport().RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		told(t, res, 403)
		api := c.Client()
		if _, err := api.ConfigMaps.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "a"}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: &corev1.PodSpec{
			ServiceAccountName: "none", Containers: []*corev1.Container{{Name: "c", Image: "i"}}}}
		told(t, ask(t, c, "POST", namespace+"/serviceaccounts", "", `{"metadata":{"name":"none"}}`), 201)
		if _, err := api.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: pod}); err != nil {
			t.Fatal(err)
		}
		told(t, ask(t, c, "DELETE", namespace+"/pods/p?gracePeriodSeconds=0", "", ""), 200)
		// A node is given up, with a pod and without one, and another is said to run nothing any more.
		const nodes = "http://any/api/v1/nodes"
		for _, name := range []string{"lost", "empty", "off"} {
			told(t, ask(t, c, "POST", nodes, "", `{"metadata":{"name":"`+name+`"}}`), 201)
		}
		bound := proto.Clone(pod).(*corev1.Pod)
		bound.Metadata.Name, bound.Spec.NodeName = "bound", "lost"
		if _, err := api.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: bound}); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"empty": "", "lost": `299 - "Pods are bound to the deleted node lost. They are removed soon, without ` +
				`knowing whether their processes still run."`,
		} {
			res := ask(t, c, "DELETE", nodes+"/"+name, "", "")
			if told(t, res, 200); res.Header.Get("Warning") != want {
				t.Errorf("deletion of node %s: warning %q, want %q", name, res.Header.Get("Warning"), want)
			}
		}
		res = ask(t, c, "PUT", nodes+"/off", "", `{"metadata":{"name":"off"},"spec":{"taints":[`+
			`{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}`)
		if told(t, res, 200); !strings.Contains(res.Header.Get("Warning"), "as soon as it is not ready") {
			t.Errorf("taint: warning %q", res.Header.Get("Warning"))
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}

		var got []string
		for line := range strings.Lines(out.String()) {
			var e auditEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			got = append(got, strings.Join([]string{e.Level, e.Stage, e.User.Username, e.ImpersonatedUser.Username, e.Verb,
				e.ObjectRef.Resource, e.ObjectRef.Name, e.ResponseStatus.Reason, e.Annotations["authorization.k8s.io/decision"],
				e.Annotations["audit.monoplane.dev/act"]}, " "))
			if e.AuditID == id && (!strings.Contains(string(e.RequestObject), `"data":{"k":"v"}`) ||
				!strings.Contains(string(e.ResponseObject), `"resourceVersion"`)) {
				t.Errorf("bodies: %s", line)
			}
		}
		const complete = " ResponseComplete monoplane:admin "
		want := []string{
			"RequestResponse" + complete + " create configmaps a  allow ",
			"RequestResponse" + complete + " create secrets s  allow ",
			"RequestResponse" + complete + " get configmaps none NotFound allow ",
			"RequestResponse" + complete + "eve list configmaps  Forbidden forbid impersonation",
			"RequestResponse" + complete + " get configmaps a  allow ",
			"Metadata" + complete + " delete pods p  allow forced-deletion",
			"Metadata" + complete + " delete nodes lost  allow break-glass",
			"Metadata" + complete + " update nodes off  allow break-glass",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if id == "" || !strings.Contains(out.String(), id) {
			t.Errorf("the client was told %q", id)
		}
		if strings.Contains(out.String(), "hush-hush") || strings.Contains(out.String(), "aHVzaC1odXNo") {
			t.Error("a secret is written")
		}
	})
}

// What is wrong with the audit is told before anything is started.
func TestAuditConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "audit.log")
	for _, tc := range []struct {
		cfg  monoplane.AuditConfig
		want string
	}{
		{monoplane.AuditConfig{LogFile: path}, "no policy"},
		{monoplane.AuditConfig{Policy: []byte(auditPolicy)}, "no log"},
		{monoplane.AuditConfig{PolicyFile: path, LogFile: path}, "the audit policy: open "},
		{monoplane.AuditConfig{Policy: []byte("kind: x"), LogFile: path}, "audit policy:1: apiVersion"},
		{monoplane.AuditConfig{Policy: []byte(auditPolicy), LogFile: path}, "audit log: open "},
		{monoplane.AuditConfig{Policy: []byte(auditPolicy), LogFile: path, MaxBytes: -2}, "negative"},
		{monoplane.AuditConfig{Policy: []byte(auditPolicy), LogFile: path, Writer: &lines{}}, "expected one of both"},
	} {
		c, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), UnsafeNoFsync: true, Nodes: -1, Audit: tc.cfg,
		})
		if err == nil {
			_ = c.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.want)
		}
	}
}
