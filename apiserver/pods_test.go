package apiserver_test

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-1, OBJ-3, OBJ-5
func TestCreate(t *testing.T) {
	c := start(t)
	p := c.createPod(newPod("web"))
	m := p.Metadata
	if len(m.Uid) != 36 || m.ResourceVersion == "" || m.Generation != 1 ||
		!value.GoTime(m.CreationTimestamp).Equal(epoch) {
		t.Errorf("metadata %v", m)
	}
	if p.Status.Phase != "Pending" || p.Status.QosClass != "BestEffort" {
		t.Errorf("status %v", p.Status)
	}
	_, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: newPod("web")})
	if !apierrors.Is(err, apierrors.AlreadyExists) {
		t.Errorf("second create: %v", err)
	}
	bad := newPod("Bad_Name")
	bad.Spec.Containers[0].Name = "A B"
	bad.Spec.RestartPolicy = "Sometimes"
	_, err = c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: bad})
	if got := len(apierrors.From(err).Status().GetDetails().GetCauses()); !apierrors.Is(err, apierrors.Invalid) ||
		got < 3 {
		t.Errorf("every bad field is named, got %d: %v", got, err)
	}
	other := newPod("x")
	other.Metadata.ResourceVersion = "5"
	_, err = c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: other})
	if !apierrors.Is(err, apierrors.BadRequest) {
		t.Errorf("resourceVersion on create: %v", err)
	}
	_, err = c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Namespace: "kube-system", Object: newPod("x")})
	if !apierrors.Is(err, apierrors.BadRequest) {
		t.Errorf("two namespaces: %v", err)
	}
}

// spec: OBJ-11
func TestGenerateName(t *testing.T) {
	c := start(t)
	seen := map[string]bool{}
	for range 20 {
		p := newPod("")
		p.Metadata.GenerateName = "job-"
		name := c.createPod(p).Metadata.Name
		if len(name) != len("job-")+5 || !strings.HasPrefix(name, "job-") || seen[name] {
			t.Fatalf("name %q", name)
		}
		seen[name] = true
	}
}

// repeating is randomness that comes out alike, so that names collide: every read gives zeros until same reads have
// been made, and then ones.
type repeating struct{ reads, same atomic.Int64 }

func (r *repeating) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0
		if r.reads.Load() >= r.same.Load() {
			p[i] = 1
		}
	}
	r.reads.Add(1)
	return len(p), nil
}

// A generated name that is taken is replaced by another one, which also a dry run finds, until there have been enough
// attempts.
//
// spec: OBJ-11
func TestGenerateNameCollides(t *testing.T) {
	random := &repeating{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Rand = random })
	// create returns the name that was generated, and how often there was something random in it.
	create := func(same int64, dryRun ...string) (name string, reads int64, err error) {
		p := newPod("")
		p.Metadata.GenerateName = "job-"
		random.reads.Store(0)
		random.same.Store(same)
		p, err = c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p, DryRun: dryRun})
		return p.GetMetadata().GetName(), random.reads.Load(), err
	}
	const ever = math.MaxInt64
	taken, once, err := create(ever)
	if err != nil || once == 0 {
		t.Fatalf("%d random reads, %v", once, err)
	}

	if _, reads, err := create(ever); !apierrors.Is(err, apierrors.AlreadyExists) || reads <= 3*once || reads > 100*once {
		t.Errorf("every name is taken: %v after %d random reads, one attempt makes %d", err, reads, once)
	}
	for _, dryRun := range [][]string{{"All"}, nil} {
		name, reads, err := create(3*once, dryRun...)
		if err != nil || !strings.HasPrefix(name, "job-") || name == taken || reads != 4*once {
			t.Errorf("dry run %v: three names are taken: %q after %d random reads, one attempt makes %d: %v", dryRun, name,
				reads, once, err)
		}
	}
	list := must(c.admin().Pods.List(ctx(t), &metav1.ListRequest{Namespace: "default"}))(t)
	if len(list.Items) != 2 {
		t.Errorf("there are %d pods, want 2", len(list.Items))
	}
}

// spec: OBJ-8
func TestDryRun(t *testing.T) {
	c := start(t)
	all := []string{"All"}
	p := must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: newPod("web"), DryRun: all}))(t)
	if p.Spec.RestartPolicy != "Always" {
		t.Errorf("not defaulted: %v", p.Spec)
	}
	if _, err := c.getPod("web"); !apierrors.Is(err, apierrors.NotFound) {
		t.Fatalf("stored: %v", err)
	}
	live := c.createPod(newPod("web"))
	if _, err := c.admin().Pods.Create(ctx(t),
		&corev1rpc.CreatePodRequest{Object: newPod("web"), DryRun: all}); !apierrors.Is(err, apierrors.AlreadyExists) {
		t.Errorf("taken name: %v", err)
	}
	must(c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web", DryRun: all,
		PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}))(t)
	must(c.admin().Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "web", DryRun: all}))(t)
	if now := must(c.getPod("web"))(t); now.Metadata.ResourceVersion != live.Metadata.ResourceVersion {
		t.Error("a dry run has changed the pod")
	}
}

// spec: OBJ-2, OBJ-5
func TestUpdate(t *testing.T) {
	c := start(t)
	p := c.createPod(newPod("web"))
	change := func(f func(*corev1.Pod)) (*corev1.Pod, error) {
		next := clone(p)
		f(next)
		return c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: next})
	}
	first := must(change(func(p *corev1.Pod) {
		p.Metadata.Labels = map[string]string{"a": "b"}
		p.Status = &corev1.PodStatus{Phase: "Failed"}
	}))(t)
	if first.Metadata.Generation != 1 || first.Status.Phase != "Pending" {
		t.Errorf("labels are not spec, and status is not for update: %v", first)
	}
	if _, err := change(func(p *corev1.Pod) {}); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("stale resourceVersion: %v", err)
	}
	second := must(change(func(p *corev1.Pod) {
		p.Metadata.ResourceVersion = ""
		p.Spec.Containers[0].Image = "other"
	}))(t)
	if second.Metadata.Generation != 2 || second.Metadata.Labels != nil {
		t.Errorf("last write wins, and the image is spec: %v", second.Metadata)
	}
	if _, err := change(func(p *corev1.Pod) { p.Metadata.ResourceVersion = ""; p.Metadata.Uid = "other" }); !apierrors.Is(
		err, apierrors.Conflict) {
		t.Errorf("another uid: %v", err)
	}
	if _, err := change(func(p *corev1.Pod) {
		p.Metadata.ResourceVersion = ""
		p.Spec.Containers[0].Command = []string{"x"}
	}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("spec is immutable: %v", err)
	}
	_, err := change(func(p *corev1.Pod) { p.Metadata.CreationTimestamp = value.Time(epoch.Add(time.Hour)) })
	if err == nil {
		t.Error("creationTimestamp changed")
	}
	third := must(setPhase(t, c.admin(), second, "Running"))(t)
	if third.Metadata.Generation != 2 || third.Spec.Containers[0].Image != "other" || third.Status.Phase != "Running" {
		t.Errorf("status write: %v", third)
	}
}

// spec: OBJ-9
func TestPatch(t *testing.T) {
	c := start(t)
	p := c.createPod(newPod("web"))
	patch := func(typ, doc, validation string) (*corev1.Pod, error) {
		return c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
			PatchType: "application/" + typ + "+json", Patch: []byte(doc), FieldValidation: validation})
	}
	out := must(patch("strategic-merge-patch", `{"spec":{"containers":[{"name":"main","image":"new"}]}}`, ""))(t)
	if out.Spec.Containers[0].Image != "new" || out.Spec.Containers[0].Command[0] != "sleep" ||
		out.Metadata.Generation != 2 {
		t.Errorf("strategic: %v", out)
	}
	out = must(patch("json-patch", `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, ""))(t)
	if out.Metadata.Labels["a"] != "b" {
		t.Errorf("json: %v", out)
	}
	if _, err := patch("merge-patch", `{"metadata":{"resourceVersion":"`+p.Metadata.ResourceVersion+`"}}`,
		""); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("stale resourceVersion in the patch: %v", err)
	}
	if _, err := patch("merge-patch", `{"spec":{"foo":1}}`, "Strict"); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("unknown field: %v", err)
	}
	if _, err := patch("merge-patch", `{"metadata":{"name":"other"}}`, ""); !apierrors.Is(err, apierrors.BadRequest) {
		t.Errorf("another name: %v", err)
	}
	if _, err := patch("other-patch", `{}`, ""); !apierrors.Is(err, apierrors.UnsupportedMediaType) {
		t.Errorf("an unknown type: %v", err)
	}
	var header metadata.MD
	_, err := c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"spec":{"foo":1}}`)}, grpc.Header(&header))
	if err != nil || len(header.Get("warning")) != 1 || !strings.Contains(header.Get("warning")[0], "spec.foo") {
		t.Errorf("warning about an unknown field: %v, %v", header, err)
	}
}

// A pod whose spec is known to be right is still checked, and a spec that was refused stays refused.
//
// spec: OBJ-3
func TestCreateOfOneTemplate(t *testing.T) {
	c := start(t)
	create := func(change func(*corev1.Pod)) []string {
		p := newPod("web")
		change(p)
		_, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p, DryRun: []string{"All"}})
		if err == nil {
			return []string{"none"}
		}
		var fields []string
		for _, cause := range apierrors.From(err).Status().GetDetails().GetCauses() {
			fields = append(fields, cause.GetField())
		}
		return fields
	}
	name := func(p *corev1.Pod) { p.Metadata.Name = "Bad_Name" }
	spec := func(p *corev1.Pod) { p.Spec.RestartPolicy = "Sometimes" }
	for i, tc := range []struct {
		change func(*corev1.Pod)
		fields string
	}{
		{func(*corev1.Pod) {}, "none"},
		{name, "metadata.name"},
		{spec, "spec.restartPolicy"},
		{spec, "spec.restartPolicy"},
		{func(p *corev1.Pod) { name(p); spec(p) }, "metadata.name spec.restartPolicy"},
		{func(*corev1.Pod) {}, "none"},
	} {
		if got := strings.Join(create(tc.change), " "); got != tc.fields {
			t.Errorf("pod %d: refused because of %q, want %q", i, got, tc.fields)
		}
	}
}

// Who writes a pod as it was once described leaves out what the server has added, which is put back as in Kubernetes:
// no change at all. spec: OBJ-10, PRIO-2, NODE-3
func TestUpdatePutsDefaultsBack(t *testing.T) {
	c := start(t)
	for name, tolerations := range map[string][]*corev1.Toleration{
		"none": nil,
		"one": {{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute",
			TolerationSeconds: ptr(int64(7))}},
		"all": {{Operator: "Exists"}},
	} {
		described := newPod(name)
		described.Spec.ServiceAccountName = "default"
		described.Spec.Tolerations = tolerations
		made := c.createPod(clone(described))
		again := must(c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: clone(described)}))(t)
		if again.Metadata.ResourceVersion != made.Metadata.ResourceVersion {
			t.Errorf("%s: the same description changed the pod:\n%v\nwas\n%v", name, again, made)
		}
		patched, err := c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{
			Namespace: "default", Name: name, PatchType: "application/json-patch+json",
			Patch: []byte(`[{"op": "add", "path": "/spec/tolerations", "value": [{"key": "own", "operator": "Exists"}]}]`),
		})
		if name == "none" {
			if err != nil || len(patched.GetSpec().GetTolerations()) != 3 ||
				*patched.Spec.Tolerations[2].TolerationSeconds != 300 {
				t.Errorf("%s: %v, %v", name, patched.GetSpec().GetTolerations(), err)
			}
		} else if name == "all" && !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%s: a toleration of the pod's own was taken away: %v", name, err)
		}
	}
}
