package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/taints"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: DEL-1, DEL-2, DEL-6, DEL-7, OBJ-5
func TestGracefulDeletion(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.boundPod("web", "n1")

	begun := must(deletePod(t, c.admin(), p, nil, false))(t)
	if m := begun.Metadata; m.GetDeletionGracePeriodSeconds() != 30 ||
		!value.GoTime(m.DeletionTimestamp).Equal(epoch.Add(30*time.Second)) || m.Generation != 2 {
		t.Fatalf("begun: %v", m)
	}
	longer := must(deletePod(t, c.admin(), p, ptr(int64(60)), false))(t)
	if longer.Metadata.ResourceVersion != begun.Metadata.ResourceVersion {
		t.Errorf("a longer grace has changed the pod: %v", longer.Metadata)
	}
	c.clock.Step(4 * time.Second)
	shorter := must(deletePod(t, c.admin(), p, ptr(int64(10)), false))(t)
	if m := shorter.Metadata; m.GetDeletionGracePeriodSeconds() != 10 ||
		!value.GoTime(m.DeletionTimestamp).Equal(epoch.Add(10*time.Second)) || m.Generation != 2 {
		t.Errorf("shortened: %v", m)
	}
	c.clock.Step(time.Hour)
	if _, err := c.getPod("web"); err != nil {
		t.Fatalf("time alone removes nothing: %v", err)
	}

	agent := c.agent("n1")
	if _, err := deletePod(t, agent, p, ptr(int64(0)), true); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("completed before the terminal phase: %v", err)
	}
	must(setPhase(t, agent, shorter, "Succeeded"))(t)
	gone := must(deletePod(t, agent, p, ptr(int64(0)), true))(t)
	if gone.Metadata.GetDeletionGracePeriodSeconds() != 0 {
		t.Errorf("completed: %v", gone.Metadata)
	}
	if _, err := c.getPod("web"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("still there: %v", err)
	}
	if strings.Contains(c.log.String(), "forced-deletion") {
		t.Error("an ordinary completion is no forced deletion")
	}
	if next := c.createPod(newPod("web")); next.Metadata.Uid == p.Metadata.Uid {
		t.Error("a uid was used twice")
	}
}

// spec: DEL-4, DEL-8, CLI-1
func TestForcedDeletion(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.boundPod("web", "n1")
	var header metadata.MD
	gone := must(c.admin().Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "web",
		GracePeriodSeconds: ptr(int64(0))}, grpc.Header(&header)))(t)
	if m := gone.Metadata; m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds != 0 {
		t.Errorf("answer: %v", m)
	}
	if w := header.Get("warning"); len(w) != 1 || !strings.Contains(w[0], "may go on running") {
		t.Errorf("warnings %v", w)
	}
	for _, want := range []string{"audit=forced-deletion", "user=" + authn.AdminName, "pod=default/web",
		"uid=" + p.Metadata.Uid, "node=n1"} {
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("audit line lacks %q: %s", want, c.log.String())
		}
	}
	if _, err := c.getPod("web"); !apierrors.Is(err, apierrors.NotFound) {
		t.Error("still there")
	}
}

// Who gives up a node to which pods are bound, or says that nothing runs there any more, is warned and recorded, once.
//
// spec: FENCE-4, NODE-4, GC-3
func TestBrokenGlass(t *testing.T) {
	c := start(t)
	admin := c.admin()
	for _, name := range []string{"lost", "held", "one", "two", "dry", "ended", "empty", "out"} {
		c.register(name)
		if name != "empty" && name != "out" {
			c.boundPod("on-"+name, name)
		}
	}
	must(setPhase(t, c.agent("ended"), must(c.getPod("on-ended"))(t), "Failed"))(t)
	remove := func(name string, dryRun ...string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := admin.Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: name, DryRun: dryRun}, o)
			return err
		}
	}
	patch := func(name, p string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := admin.Nodes.Patch(ctx(t), &metav1.PatchRequest{Name: name, Patch: []byte(p),
				PatchType: "application/merge-patch+json"}, o)
			return err
		}
	}
	const tainted = `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}`
	must(admin.Nodes.Patch(ctx(t), &metav1.PatchRequest{Name: "held", PatchType: "application/merge-patch+json",
		Patch: []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`)}))(t)
	const gone, out = "what=delete-node", "what=out-of-service"
	for _, x := range []struct {
		name string
		do   func(grpc.CallOption) error
		want []string // of each line of the audit
	}{
		{"a dry run", remove("dry", "All"), nil},
		{"a node without pods", remove("empty"), nil},
		{"a node with an ended pod", remove("ended"), nil},
		{"a node with a pod", remove("lost"), []string{gone + " node=lost uid="}},
		{"a node that is held", remove("held"), []string{gone + " node=held uid="}},
		{"a node that is held, again", remove("held"), nil},
		{"a node that nothing holds any more", patch("held", `{"metadata":{"finalizers":null}}`), nil},
		{"a taint", patch("out", tainted), []string{out + " node=out uid="}},
		{"a taint that is there", patch("out", `{"metadata":{"labels":{"a":"b"}}}`), nil},
		{"no taint any more", patch("out", `{"spec":{"taints":null}}`), nil},
		{"a new node with the taint", func(o grpc.CallOption) error {
			n := newNode("born-out")
			n.Spec = &corev1.NodeSpec{Taints: []*corev1.Taint{{Key: taints.OutOfService, Effect: taints.NoExecute}}}
			_, err := admin.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: n}, o)
			return err
		}, []string{out + " node=born-out uid="}},
		{"several nodes", func(o grpc.CallOption) error {
			_, err := admin.Nodes.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{
				FieldSelector: "metadata.name!=dry"}, o)
			return err
		}, []string{gone + " node=one uid=", gone + " node=two uid="}},
	} {
		before := len(c.log.String())
		var header metadata.MD
		if err := x.do(grpc.Header(&header)); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		log := c.log.String()[before:]
		if n := strings.Count(log, "audit=break-glass user="+authn.AdminName); n != len(x.want) {
			t.Errorf("%s: %d lines of audit, want %d: %s", x.name, n, len(x.want), log)
		}
		for _, want := range x.want {
			if !strings.Contains(log, want) {
				t.Errorf("%s: audit lacks %q: %s", x.name, want, log)
			}
		}
		warnings := header.Get("warning")
		if len(warnings) != len(x.want) {
			t.Errorf("%s: warnings %q", x.name, warnings)
		}
		for _, w := range warnings {
			if !strings.Contains(w, "without knowing whether their processes still run") {
				t.Errorf("%s: warning %q", x.name, w)
			}
		}
	}
}

// spec: DEL-5, DEL-6
func TestFinalizersAndPreconditions(t *testing.T) {
	c := start(t)
	c.register("n1")
	held := newPod("web")
	held.Metadata.Finalizers = []string{"example.com/hold"}
	p := c.createPod(held)
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	_, err := c.admin().Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "web",
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: ptr("other")}}})
	if !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("another uid: %v", err)
	}
	forced := must(deletePod(t, c.admin(), p, ptr(int64(0)), false))(t)
	if forced.Metadata.GetDeletionGracePeriodSeconds() != 0 || forced.Metadata.DeletionTimestamp == nil {
		t.Errorf("held: %v", forced.Metadata)
	}
	next := clone(must(c.getPod("web"))(t))
	next.Metadata.Finalizers = append(next.Metadata.Finalizers, "example.com/late")
	if _, err := c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: next}); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("a finalizer was added to a terminating pod: %v", err)
	}
	must(c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"finalizers":null}}`)}))(t)
	if _, err := c.getPod("web"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("nothing holds the pod any more: %v", err)
	}
}

// spec: DEL-6
func TestFinalizersDoNotEndGrace(t *testing.T) {
	c := start(t)
	c.register("n1")
	held := newPod("web")
	held.Metadata.Finalizers = []string{"example.com/hold"}
	p := c.createPod(held)
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	must(deletePod(t, c.admin(), p, nil, false))(t)
	must(c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"finalizers":null}}`)}))(t)
	if _, err := c.getPod("web"); err != nil {
		t.Fatalf("the pod's agent has not confirmed anything: %v", err)
	}
}

// spec: DEL-3, DEL-14
func TestDeletionAtOnce(t *testing.T) {
	c := start(t)
	c.register("n1")
	unbound := c.createPod(newPod("unbound"))
	must(deletePod(t, c.admin(), unbound, nil, false))(t)
	if _, err := c.getPod("unbound"); !apierrors.Is(err, apierrors.NotFound) {
		t.Error("an unbound pod goes at once")
	}
	ended := c.boundPod("ended", "n1")
	must(setPhase(t, c.agent("n1"), ended, "Failed"))(t)
	must(deletePod(t, c.admin(), ended, ptr(int64(20)), false))(t)
	if _, err := c.getPod("ended"); !apierrors.Is(err, apierrors.NotFound) {
		t.Error("a terminal pod goes at once")
	}
	zero := newPod("zero")
	zero.Spec.TerminationGracePeriodSeconds = ptr(int64(0))
	p := c.createPod(zero)
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	out := must(deletePod(t, c.admin(), p, nil, false))(t)
	if out.Metadata.GetDeletionGracePeriodSeconds() != 1 {
		t.Errorf("0 in the spec became force: %v", out.Metadata)
	}
}

// spec: DEL-8, DEL-11, GC-1, GC-2, GC-4
func TestWhoMayDelete(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.register("n2")
	p := c.boundPod("web", "n1")
	gc, ns := c.controller("podgc"), c.controller("nodelifecycle")
	zero := ptr(int64(0))
	for name, by := range map[string]client{
		"agent of another node": c.agent("n2"), "own agent, unmarked pod": c.agent("n1"), "controller": ns,
		"scheduler": c.scheduler(),
	} {
		if _, err := deletePod(t, by, p, zero, true); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s forced: %v", name, err)
		}
	}
	if _, err := deletePod(t, gc, p, zero, true); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("podgc forced though the node exists: %v", err)
	}
	if _, err := deletePod(t, ns, p, nil, false); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("a controller deleted without uid: %v", err)
	}
	must(deletePod(t, ns, p, nil, true))(t)
	must(c.admin().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"}))(t)
	must(deletePod(t, gc, p, zero, true))(t)
	if !strings.Contains(c.log.String(), "user=system:controller:podgc") {
		t.Error("podgc's forced deletion is not in the audit")
	}

	done := c.boundPod("done", "n2")
	must(setPhase(t, c.agent("n2"), done, "Succeeded"))(t)
	must(deletePod(t, gc, done, zero, true))(t)
}

// spec: DEL-12
func TestDeleteCollection(t *testing.T) {
	c := start(t)
	c.register("n1")
	for _, name := range []string{"a", "b", "keep"} {
		p := newPod(name)
		if name != "keep" {
			p.Metadata.Labels = map[string]string{"app": "x"}
		}
		p = c.createPod(p)
		if name == "b" {
			if err := c.bind(p, "n1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := must(c.admin().Pods.DeleteCollection(ctx(t),
		&metav1.DeleteCollectionRequest{Namespace: "default", LabelSelector: "app=x"}))(t)
	if len(out.Items) != 2 {
		t.Errorf("answered with %d", len(out.Items))
	}
	if _, err := c.getPod("a"); !apierrors.Is(err, apierrors.NotFound) {
		t.Error("a is unbound and goes at once")
	}
	if b := must(c.getPod("b"))(t); b.Metadata.DeletionTimestamp == nil {
		t.Error("b is not terminating")
	}
	if keep := must(c.getPod("keep"))(t); keep.Metadata.DeletionTimestamp != nil {
		t.Error("keep was not selected")
	}
}

// Of a collection, what others delete meanwhile is gone, and what they create in its place stays: neither is an error.
//
// spec: DEL-12
func TestDeleteCollectionBesideSuccessors(t *testing.T) {
	const maps, last = 400, 100 // those that are listed last are deleted last
	c := start(t)
	create := func(i int) (*corev1.ConfigMap, error) {
		return c.admin().ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%03d", i)}}})
	}
	for i := range maps {
		must(create(i))(t)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := c.admin().ConfigMaps.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default"})
		deleted <- err
	}()
	for err := error(nil); err == nil; { // until it has listed them
		_, err = c.admin().ConfigMaps.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "c000"})
	}
	successors := map[string]string{}
	for i := maps - 1; i >= maps-last; i-- {
		name := fmt.Sprintf("c%03d", i)
		_, err := c.admin().ConfigMaps.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: name})
		if err != nil {
			break // the collection was here
		}
		successors[name] = must(create(i))(t).Metadata.Uid
	}
	if err := <-deleted; err != nil {
		t.Errorf("the collection is not deleted: %v", err)
	}
	for name, uid := range successors {
		o, err := c.admin().ConfigMaps.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: name})
		if err != nil || o.Metadata.Uid != uid {
			t.Errorf("%s was created meanwhile, and is now %v, %v", name, o, err)
		}
	}
	if len(successors) == 0 {
		t.Error("the whole collection was deleted before anybody came: the test does not test much")
	}
}
