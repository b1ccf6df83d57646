package apiserver_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"

	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// closable is a buffer that an audit log writes to. It is read once the log is closed.
type closable struct{ bytes.Buffer }

func (*closable) Close() error { return nil }

// The audit of a request says what was enforced, what would have violated the level of audit, and why nothing was
// judged, with the annotations of Kubernetes.
func TestPodSecurityIsAudited(t *testing.T) {
	policy, err := audit.ParsePolicy("policy", []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, patch, update]
  resources: [{group: "", resources: [pods]}, {group: apps, resources: [deployments]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	out := &closable{}
	trail, err := audit.NewLog(audit.Config{Policy: policy, Writer: out, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(cfg *apiserver.Config) {
		cfg.Audit = trail
		cfg.PodSecurity = security.Config{Users: []string{"robot"}, RuntimeClasses: []string{"vm"}}
	})
	admin := c.admin()
	robot := c.as(&authn.User{Name: "robot", Groups: []string{authn.AdminsGroup}})
	make := func(as client, p *corev1.Pod) error {
		return second(as.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}))
	}
	if err := make(admin, privilegedPod("free")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.label(t, "enforce", "baseline", "audit", "restricted"); err != nil {
		t.Fatal(err)
	}
	if err := make(admin, privilegedPod("refused")); err == nil {
		t.Error("a privileged pod was let in")
	}
	if err := make(admin, podOfImage("noted", "nginx")); err != nil {
		t.Error(err)
	}
	if err := make(robot, privilegedPod("exempt")); err != nil {
		t.Error(err)
	}
	d := newDeployment("web")
	if err := second(admin.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: d})); err != nil {
		t.Error(err)
	}
	changed := clone(must(c.getPod("noted"))(t))
	changed.Metadata.Annotations = map[string]string{"a": "b"}
	if err := second(admin.Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: changed})); err != nil {
		t.Error(err)
	}
	if err := trail.Close(ctx(t)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			Verb        string
			ObjectRef   struct{ Name string }
			Annotations map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Verb == "" || e.ObjectRef.Name == "" {
			t.Errorf("an event without its object: %s", line)
		}
		violation, _, _ := strings.Cut(e.Annotations[standard+"audit-violations"], ": ")
		got = append(got, strings.Join([]string{e.Verb, e.ObjectRef.Name, e.Annotations[standard+"enforce-policy"],
			violation, e.Annotations[standard+"exempt"]}, "|"))
	}
	const restricted = `would violate PodSecurity "restricted:latest"`
	want := []string{
		"create|free|privileged:latest||",
		"create|refused|baseline:latest|" + restricted + "|",
		"create|noted|baseline:latest|" + restricted + "|",
		"create|exempt|||user",
		"create|web||" + restricted + "|",
		"update|noted|||", // nothing that is judged has changed
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
