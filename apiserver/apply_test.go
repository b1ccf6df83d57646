package apiserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// applier applies to one Deployment.
type applier struct {
	t *testing.T
	client
}

// apply applies what follows the name in a Deployment; force is one of the options.
func (a applier) apply(manager, doc string, options ...func(*metav1.PatchRequest)) (*appsv1.Deployment, error) {
	req := &metav1.PatchRequest{
		Namespace: "default", Name: "web", PatchType: "application/apply-patch+yaml", FieldManager: manager,
		Patch: []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n" + doc),
	}
	for _, o := range options {
		o(req)
	}
	return a.Deployments.Patch(ctx(a.t), req)
}

func force(r *metav1.PatchRequest) { r.Force = proto.Bool(true) }

const web = `spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: one
        ports:
        - containerPort: 80
`

// entry returns the fields of a manager's entry; empty for none.
func entry(m *metav1.ObjectMeta, manager, operation, subresource string) string {
	for _, e := range m.GetManagedFields() {
		if e.GetManager() == manager && e.GetOperation() == operation && e.GetSubresource() == subresource {
			return string(e.GetFieldsV1().GetRaw())
		}
	}
	return ""
}

// What is applied is made, merged and taken away by who owns it; what another manager has is a conflict unless forced.
//
// spec: OBJ-9, OBJ-17
func TestApply(t *testing.T) {
	c := start(t)
	a := applier{t, c.admin()}
	d := must(a.apply("one", web))(t)
	const owned = `{"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":` +
		`{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{},"f:ports":` +
		`{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}`
	if got := entry(d.Metadata, "one", "Apply", ""); got != owned || len(d.Metadata.ManagedFields) != 1 {
		t.Errorf("fields of who made it:\n%s\nwant\n%s", got, owned)
	}
	if d.Spec.GetReplicas() != 1 || d.Spec.Template.Spec.Containers[0].Ports[0].Protocol != "TCP" {
		t.Errorf("made without defaults: %v", d.Spec)
	}

	c.clock.Step(time.Minute)
	same := must(a.apply("one", web))(t)
	if !proto.Equal(same, d) {
		t.Errorf("applied again:\n%v\nwas:\n%v", same, d)
	}

	// The defaults are nobody's, so that somebody else may have them.
	d = must(a.apply("two", "spec:\n  replicas: 3\n"))(t)
	if d.Spec.GetReplicas() != 3 || d.Metadata.Generation != 2 ||
		entry(d.Metadata, "two", "Apply", "") != `{"f:spec":{"f:replicas":{}}}` {
		t.Errorf("replicas of another: %v", d)
	}

	_, err := a.apply("two", strings.ReplaceAll(web, "image: one", "image: two"))
	status := apierrors.From(err).Status()
	const path = `.spec.template.spec.containers[name="main"].image`
	if !apierrors.Is(err, apierrors.Conflict) ||
		status.GetMessage() != `Apply failed with 1 conflict: conflict with "one": `+path {
		t.Fatalf("a field of another: %v", err)
	}
	if causes := status.GetDetails().GetCauses(); len(causes) != 1 || causes[0].GetField() != path ||
		causes[0].GetReason() != "FieldManagerConflict" || causes[0].GetMessage() != `conflict with "one"` {
		t.Errorf("causes: %v", causes)
	}
	d = must(a.apply("two", strings.ReplaceAll(web, "image: one", "image: two"), force))(t)
	if d.Spec.Template.Spec.Containers[0].Image != "two" || strings.Contains(entry(d.Metadata, "one", "Apply", ""),
		"f:image") || d.Spec.GetReplicas() != 1 {
		t.Errorf("forced: %v", d)
	}

	// What nobody wants any more goes; what another wants stays.
	d = must(a.apply("one", strings.Replace(web, "        ports:\n        - containerPort: 80\n", "", 1), force))(t)
	if len(d.Spec.Template.Spec.Containers[0].Ports) != 1 {
		t.Errorf("a port that another wants is gone: %v", d.Spec.Template.Spec)
	}
	d = must(a.apply("two", "metadata: {}\n"))(t)
	if c := d.Spec.Template.Spec.Containers[0]; len(c.Ports) != 0 || c.Image != "one" ||
		entry(d.Metadata, "two", "Apply", "") != "" {
		t.Errorf("nothing applied any more: %v", d)
	}
}

// spec: OBJ-9
func TestApplyIsRefused(t *testing.T) {
	c := start(t)
	a := applier{t, c.admin()}
	for _, r := range []struct {
		name, manager, doc string
		change             func(*metav1.PatchRequest)
		want               apierrors.Reason
		says               string
	}{
		{"no manager", "", web, nil, apierrors.Invalid, "fieldManager: Required value: is required for apply patch"},
		{"another kind", "one", "kind: Pod\n", func(r *metav1.PatchRequest) {
			r.Patch = []byte("apiVersion: v1\nkind: Pod\n")
		}, apierrors.BadRequest, "invalid object type"},
		{"no YAML", "one", "", func(r *metav1.PatchRequest) { r.Patch = []byte("{") }, apierrors.BadRequest, "decoding"},
		{"another name", "one", web, func(r *metav1.PatchRequest) { r.Name = "other" }, apierrors.BadRequest,
			"does not match"},
		{"no such field", "one", "spec:\n  foo: 1\n", nil, apierrors.BadRequest, ".spec.foo: field not declared in schema"},
		{"a field twice", "one", "spec:\n  replicas: 1\n  replicas: 2\n", func(r *metav1.PatchRequest) {
			r.FieldValidation = "Strict"
		}, apierrors.BadRequest, "already set"},
		{"an element twice", "one",
			strings.Replace(web, "        ports:\n", "        ports:\n        - containerPort: 80\n", 1), nil,
			apierrors.BadRequest, "duplicate"},
		{"entries", "one", "  managedFields: [{manager: me}]\n" + web, nil, apierrors.BadRequest,
			"metadata.managedFields must be nil"},
		{"a uid that nobody has", "one", "  uid: abc\n" + web, nil, apierrors.Conflict, "uid mismatch"},
		{"a revision of nothing", "one", "  resourceVersion: \"7\"\n" + web, nil, apierrors.Conflict, "modified"},
		{"a generated name", "one", "", func(r *metav1.PatchRequest) {
			r.Patch = []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  generateName: web-\n" + web)
		}, apierrors.Invalid, "metadata.name"},
		{"no valid object", "one", "spec: {}\n", nil, apierrors.Invalid, "spec.selector"},
		{"no such subresource", "one", web, func(r *metav1.PatchRequest) { r.Namespace = "nowhere" }, apierrors.NotFound,
			"nowhere"},
	} {
		change := r.change
		if change == nil {
			change = func(*metav1.PatchRequest) {}
		}
		if _, err := a.apply(r.manager, r.doc, change); !apierrors.Is(err, r.want) ||
			!strings.Contains(fmt.Sprint(err), r.says) {
			t.Errorf("%s: %v, want %s with %q", r.name, err, r.want, r.says)
		}
	}
	dry := func(r *metav1.PatchRequest) { r.DryRun = []string{"All"} }
	if d := must(a.apply("one", web, dry))(t); d.Metadata.Uid == "" {
		t.Errorf("a dry run: %v", d)
	}
	if _, err := a.Deployments.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "web"}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("after a dry run: %v", err)
	}
	d := must(a.apply("one", web))(t)
	if _, err := a.apply("one", "  uid: abc\n"+web); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("another's uid: %v", err)
	}
	if _, err := a.apply("one", "  resourceVersion: \"1\"\n"+web); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("an old resourceVersion: %v", err)
	}
	must(a.apply("one", "  resourceVersion: \""+d.Metadata.ResourceVersion+"\"\n"+web))(t)
}

// Who applies an object as it was read, whole, owns all that an applier can own, beside those who own it already, and
// none of what only the server writes. What the others do not want any more stays then.
//
// spec: OBJ-9, OBJ-17
func TestApplyOfEverything(t *testing.T) {
	c := start(t)
	a := applier{t, c.admin()}
	read := proto.CloneOf(must(a.apply("one", web))(t))
	read.Metadata.ManagedFields = nil
	whole := func(r *metav1.PatchRequest) {
		r.Patch = append([]byte(`{"apiVersion":"apps/v1","kind":"Deployment",`), read.AppendJSON(nil)[1:]...)
	}
	d := must(a.apply("all", "", whole))(t)
	var owned struct {
		Metadata map[string]any `json:"f:metadata"`
		Spec     map[string]any `json:"f:spec"`
		Status   map[string]any `json:"f:status"`
	}
	if err := json.Unmarshal([]byte(entry(d.Metadata, "all", "Apply", "")), &owned); err != nil {
		t.Fatal(err)
	}
	if len(owned.Metadata) != 0 || len(owned.Status) != 0 || owned.Spec["f:replicas"] == nil ||
		owned.Spec["f:strategy"] == nil || owned.Spec["f:template"] == nil {
		t.Errorf("who applies everything owns %+v", owned)
	}
	if !proto.Equal(d.Spec, read.Spec) || d.Metadata.Uid != read.Metadata.Uid || d.Metadata.Generation != 1 {
		t.Errorf("everything applied: %v\nwas %v", d, read)
	}
	d = must(a.apply("one", "metadata: {}\n"))(t)
	if !proto.Equal(d.Spec, read.Spec) || entry(d.Metadata, "one", "Apply", "") != "" {
		t.Errorf("after the other has gone: %v", d)
	}
	if _, err := a.apply("one", strings.ReplaceAll(web, "image: one", "image: two")); !apierrors.Is(err,
		apierrors.Conflict) {
		t.Errorf("another image: %v", err)
	}
}

// Many who own very much are told when it is too much, and the object stays as it was.
//
// spec: OBJ-9, OBJ-17
func TestApplyOfTooMuch(t *testing.T) {
	c := start(t)
	maps := c.admin().ConfigMaps
	var doc strings.Builder
	doc.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n")
	for i := range 12_000 {
		fmt.Fprintf(&doc, "  a-key-of-some-length-%d: \"1\"\n", i)
	}
	var before *corev1.ConfigMap
	for i := range 20 {
		o, err := maps.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "c",
			FieldManager: fmt.Sprint("manager-", i), PatchType: "application/apply-patch+yaml", Patch: []byte(doc.String())})
		if err == nil {
			before = o
			continue
		}
		if !apierrors.Is(err, apierrors.RequestEntityTooLarge) {
			t.Fatalf("manager %d: %v", i, err)
		}
		after := must(maps.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "c"}))(t)
		if i == 0 || !proto.Equal(after, before) {
			t.Errorf("the refused apply of manager %d has changed the object", i)
		}
		return
	}
	t.Error("nobody was refused")
}

// The status and the scale have owners of their own.
//
// spec: OBJ-9, OBJ-10, OBJ-17
func TestApplySubresources(t *testing.T) {
	c := start(t)
	a := applier{t, c.admin()}
	must(a.apply("one", web+"  replicas: 2\nstatus:\n  replicas: 7\n"))(t)
	d := must(a.Deployments.PatchStatus(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
		PatchType: "application/apply-patch+yaml", FieldManager: "two", Patch: []byte(
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"a":"b"}},"spec":{"replicas":9},` +
				`"status":{"conditions":[{"type":"A","status":"True"}]}}`)}))(t)
	if d.Status.GetReplicas() != 0 || d.Spec.GetReplicas() != 2 || len(d.Status.GetConditions()) != 1 ||
		len(d.Metadata.Labels) != 0 || entry(d.Metadata, "two", "Apply", "status") !=
		`{"f:status":{"f:conditions":{"k:{\"type\":\"A\"}":{".":{},"f:status":{},"f:type":{}}}}}` ||
		strings.Contains(entry(d.Metadata, "one", "Apply", ""), "f:status") {
		t.Errorf("the status: %v", d)
	}

	scale := &metav1.PatchRequest{Namespace: "default", Name: "web", PatchType: "application/apply-patch+yaml",
		FieldManager: "two", Patch: []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":5}}`)}
	if _, err := a.Deployments.PatchScale(ctx(t), scale); !apierrors.Is(err, apierrors.Conflict) ||
		!strings.Contains(err.Error(), `conflict with "one": .spec.replicas`) {
		t.Errorf("the scale of another: %v", err)
	}
	scale.Force = proto.Bool(true)
	if s := must(a.Deployments.PatchScale(ctx(t), scale))(t); s.Spec.GetReplicas() != 5 {
		t.Errorf("scaled: %v", s)
	}
	d = must(a.Deployments.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "web"}))(t)
	if d.Spec.GetReplicas() != 5 || entry(d.Metadata, "two", "Apply", "scale") != `{"f:spec":{"f:replicas":{}}}` ||
		strings.Contains(entry(d.Metadata, "one", "Apply", ""), "f:replicas") {
		t.Errorf("after scaling: %v", d)
	}
}

// Objects that kubectl applied by itself are its own when it lets the server apply, as far as nobody else has changed
// them since.
//
// spec: OBJ-9
func TestApplyTakesOverFromClientSide(t *testing.T) {
	c := start(t)
	a := applier{t, c.admin()}
	const annotation = "kubectl.kubernetes.io/last-applied-configuration"
	d := newDeployment("web")
	d.Metadata.Annotations = map[string]string{annotation: `{"apiVersion":"apps/v1","kind":"Deployment",` +
		`"metadata":{"name":"web","namespace":"default"},"spec":{"replicas":2}}`}
	d.Spec.Replicas = proto.Int32(2)
	must(a.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: d,
		FieldManager: "kubectl-client-side-apply"}))(t)

	if _, err := a.apply("other", "spec:\n  replicas: 3\n"); !apierrors.Is(err, apierrors.Conflict) ||
		!strings.Contains(err.Error(), `conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas`) {
		t.Errorf("another manager: %v", err)
	}
	d = must(a.apply("kubectl", "spec:\n  replicas: 3\n"))(t)
	if last := d.Metadata.Annotations[annotation]; d.Spec.GetReplicas() != 3 ||
		!strings.Contains(last, `"replicas":3`) {
		t.Errorf("kubectl: %v", d)
	}
}

// Every write says whose the fields are, from the first on, and what it does not change stays whose it was.
//
// spec: OBJ-17
func TestWritersOwnFields(t *testing.T) {
	c := start(t)
	maps := c.admin().ConfigMaps
	o := must(maps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{FieldManager: "first", Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"a": "1", "b": "1"}}}))(t)
	if got := entry(o.Metadata, "first", "Update", ""); got != `{"f:data":{".":{},"f:a":{},"f:b":{}}}` {
		t.Errorf("made: %s", got)
	}
	c.clock.Step(time.Minute)
	patch := func(manager, doc string) *corev1.ConfigMap {
		return must(maps.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "c", FieldManager: manager,
			PatchType: "application/merge-patch+json", Patch: []byte(doc)}))(t)
	}
	o = patch("second", `{"data":{"b":"2","c":"2"}}`)
	first, second := o.Metadata.ManagedFields[0], o.Metadata.ManagedFields[1]
	if first.GetTime().GetSeconds() != epoch.Unix() || second.GetTime().GetSeconds() != epoch.Unix()+60 ||
		string(first.FieldsV1.Raw) != `{"f:data":{".":{},"f:a":{}}}` ||
		string(second.FieldsV1.Raw) != `{"f:data":{"f:b":{},"f:c":{}}}` {
		t.Errorf("patched: %v", o.Metadata.ManagedFields)
	}
	c.clock.Step(time.Minute)
	if again := patch("third", `{"data":{"b":"2"}}`); !proto.Equal(again, o) {
		t.Errorf("a patch that changes nothing: %v", again)
	}
	asked := proto.CloneOf(o)
	asked.Metadata.ManagedFields, asked.Data["a"] = nil, "3" // who does not know them does not take them away
	o = must(maps.Update(ctx(t), &corev1rpc.UpdateConfigMapRequest{Object: asked, FieldManager: "third"}))(t)
	if entry(o.Metadata, "second", "Update", "") == "" || entry(o.Metadata, "third", "Update", "") !=
		`{"f:data":{"f:a":{}}}` {
		t.Errorf("updated: %v", o.Metadata.ManagedFields)
	}
	for i := range 20 {
		c.clock.Step(time.Minute)
		o = patch(fmt.Sprint("many-", i), fmt.Sprintf(`{"data":{"x%d":"1"}}`, i))
	}
	if n := len(o.Metadata.ManagedFields); n != 10 || !slices.ContainsFunc(o.Metadata.ManagedFields,
		func(e *metav1.ManagedFieldsEntry) bool { return e.GetManager() == "ancient-changes" }) {
		t.Errorf("%d entries: %v", n, o.Metadata.ManagedFields)
	}
	if o = patch("last", `{"metadata":{"managedFields":[{}]}}`); len(o.Metadata.ManagedFields) != 0 {
		t.Errorf("reset: %v", o.Metadata.ManagedFields)
	}
	if o = patch("last", `{"data":{"y":"1"}}`); len(o.Metadata.ManagedFields) != 0 {
		t.Errorf("tracked again after a reset: %v", o.Metadata.ManagedFields)
	}
	o = must(maps.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "c", FieldManager: "applier",
		PatchType: "application/apply-patch+yaml",
		Patch:     []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"z":"1"}}`)}))(t)
	if before := entry(o.Metadata, "before-first-apply", "Update", ""); !strings.Contains(before, `"f:y":{}`) ||
		entry(o.Metadata, "applier", "Apply", "") != `{"f:data":{"f:z":{}}}` {
		t.Errorf("applied first: %v", o.Metadata.ManagedFields)
	}
}

// The parts of the control plane are managers that tools know.
//
// spec: OBJ-17
func TestComponentsOwnFields(t *testing.T) {
	c := start(t)
	d := must(c.admin().Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: newDeployment("web")}))(t)
	told := proto.CloneOf(d)
	told.Status.ObservedGeneration = 1
	told = must(c.controller("deployment").Deployments.UpdateStatus(ctx(t),
		&appsv1rpc.UpdateDeploymentRequest{Object: told}))(t)
	if got := entry(told.Metadata, "kube-controller-manager", "Update", "status"); got !=
		`{"f:status":{"f:observedGeneration":{}}}` || entry(told.Metadata, "unknown", "Update", "") == "" {
		t.Errorf("entries: %v", told.Metadata.ManagedFields)
	}
}
