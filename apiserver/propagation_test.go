package apiserver_test

import (
	"slices"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	foreground = "foregroundDeletion"
	orphan     = "orphan"
)

// What a deletion says about dependents is kept as a finalizer in the write that marks the object, and can be changed
// until it is gone. spec: OBJ-12, OBJ-8, DEL-5, DEL-6
func TestPropagationIsAFinalizer(t *testing.T) {
	c := start(t)
	maps := c.admin().ConfigMaps
	create := func(name string, finalizers ...string) *corev1.ConfigMap {
		return must(maps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default", Finalizers: finalizers}}}))(t)
	}
	remove := func(name string, opts *metav1.DeleteOptions) error {
		_, err := maps.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: name, Options: opts})
		return err
	}
	expect := func(name string, finalizers ...string) *metav1.ObjectMeta {
		t.Helper()
		o, err := maps.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: name})
		if finalizers == nil {
			if !apierrors.Is(err, apierrors.NotFound) {
				t.Errorf("%s is still there: %v, %v", name, o.GetMetadata(), err)
			}
			return nil
		}
		m := o.GetMetadata()
		if err != nil || !slices.Equal(m.GetFinalizers(), finalizers) || m.GetDeletionTimestamp() == nil ||
			m.DeletionGracePeriodSeconds == nil {
			t.Errorf("%s: %v, %v, want finalizers %v", name, m, err, finalizers)
		}
		return m
	}
	policy := func(p string) *metav1.DeleteOptions { return &metav1.DeleteOptions{PropagationPolicy: &p} }
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	create("plain")
	ok(remove("plain", nil))
	expect("plain")

	create("background")
	ok(remove("background", policy("Background")))
	expect("background")

	o := create("foreground", "example.com/hold")
	dry := policy("Foreground")
	dry.DryRun = []string{"All"}
	ok(remove("foreground", dry))
	if now := must(maps.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "foreground"}))(t); now.Metadata.
		ResourceVersion != o.Metadata.ResourceVersion {
		t.Errorf("a dry run has changed it: %v", now.Metadata)
	}
	another := policy("Foreground")
	another.Preconditions = &metav1.Preconditions{Uid: ptr("another")}
	if err := remove("foreground", another); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("another's uid: %v", err)
	}
	ok(remove("foreground", policy("Foreground")))
	begun := expect("foreground", "example.com/hold", foreground)
	// The same again, or nothing about dependents, changes nothing.
	ok(remove("foreground", policy("Foreground")))
	ok(remove("foreground", nil))
	if m := expect("foreground", "example.com/hold", foreground); m.GetResourceVersion() != begun.GetResourceVersion() {
		t.Errorf("written again: %v", m)
	}
	ok(remove("foreground", &metav1.DeleteOptions{OrphanDependents: ptr(true)}))
	expect("foreground", "example.com/hold", orphan)
	ok(remove("foreground", policy("Background")))
	expect("foreground", "example.com/hold")

	// What was held for its dependents alone goes when they do not count any more.
	create("mind")
	ok(remove("mind", policy("Orphan")))
	expect("mind", orphan)
	ok(remove("mind", policy("Background")))
	expect("mind")

	// One that had the finalizer before keeps it without being asked.
	create("early", orphan)
	ok(remove("early", nil))
	expect("early", orphan)

	create("one")
	create("two")
	must(maps.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default",
		FieldSelector: "metadata.name=one", PropagationPolicy: ptr("Foreground")}))(t)
	expect("one", foreground)
	both := policy("Orphan")
	both.OrphanDependents = ptr(true)
	if err := remove("two", both); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("both forms at once: %v", err)
	}

	ns := must(c.admin().Namespaces.Create(ctx(t), &corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{
		Metadata: &metav1.ObjectMeta{Name: "ns"}}}))(t)
	ns = must(c.admin().Namespaces.Delete(ctx(t), &metav1.DeleteRequest{Name: ns.Metadata.Name,
		PropagationPolicy: ptr("Foreground")}))(t)
	if !slices.Equal(ns.Metadata.Finalizers, []string{foreground}) || ns.Status.Phase != "Terminating" {
		t.Errorf("namespace: %v", ns)
	}
}

// A pod's grace and what is to become of its dependents do not get in each other's way. spec: OBJ-12, DEL-2, DEL-6
func TestPropagationOfPods(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.boundPod("web", "n1")
	remove := func(opts *metav1.DeleteOptions) *corev1.Pod {
		t.Helper()
		return must(c.admin().Pods.Delete(ctx(t), &metav1.DeleteRequest{
			Namespace: "default", Name: "web", Options: opts}))(t)
	}
	begun := remove(&metav1.DeleteOptions{PropagationPolicy: ptr("Foreground")})
	if m := begun.Metadata; !slices.Equal(m.Finalizers, []string{foreground}) ||
		m.GetDeletionGracePeriodSeconds() != 30 || m.Generation != 2 {
		t.Fatalf("begun: %v", m)
	}
	// A request that does not shorten the grace changes nothing, its policy included.
	same := remove(&metav1.DeleteOptions{PropagationPolicy: ptr("Orphan")})
	if m := same.Metadata; m.ResourceVersion != begun.Metadata.ResourceVersion || m.Finalizers[0] != foreground {
		t.Errorf("the same grace: %v", m)
	}
	shorter := remove(&metav1.DeleteOptions{PropagationPolicy: ptr("Orphan"), GracePeriodSeconds: ptr(int64(10))})
	if m := shorter.Metadata; !slices.Equal(m.Finalizers, []string{orphan}) || m.GetDeletionGracePeriodSeconds() != 10 {
		t.Errorf("a shorter grace: %v", m)
	}
	// The agent is done; the pod waits for its dependents.
	must(setPhase(t, c.agent("n1"), p, "Succeeded"))(t)
	done := must(deletePod(t, c.agent("n1"), p, ptr(int64(0)), true))(t)
	if m := done.Metadata; !slices.Equal(m.Finalizers, []string{orphan}) || m.GetDeletionGracePeriodSeconds() != 0 {
		t.Errorf("done: %v", m)
	}
	held := remove(&metav1.DeleteOptions{PropagationPolicy: ptr("Background"), GracePeriodSeconds: ptr(int64(0))})
	if m := held.Metadata; m.ResourceVersion != done.Metadata.ResourceVersion ||
		!slices.Equal(m.Finalizers, []string{orphan}) {
		t.Errorf("without grace it is too late to choose: %v", m)
	}
	must(c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"finalizers":null}}`)}))(t)
	if _, err := c.getPod("web"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("still there: %v", err)
	}

	// Events own nothing. Whoever deletes is warned of nothing.
	must(c.admin().Events.Create(ctx(t), &corev1rpc.CreateEventRequest{Object: &corev1.Event{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "e"}, Reason: "R", Type: "Normal",
		InvolvedObject: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}}}))(t)
	events := corev1rpc.NewEventsClient(c.server.Conn(inproc.PassValues()))
	collected, warnings := warning.WithCollector(authn.WithUser(ctx(t), adminUser()))
	must(events.Delete(collected, &metav1.DeleteRequest{Namespace: "default", Name: "e",
		PropagationPolicy: ptr("Foreground")}))(t)
	if _, err := c.admin().Events.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "e"}); !apierrors.Is(err,
		apierrors.NotFound) || len(warnings.Texts()) > 0 {
		t.Errorf("the event is still there: %v; warnings %q", err, warnings.Texts())
	}
}

// The pods of a ReplicationController stay unless the request says otherwise, as they always did. spec: OBJ-12
func TestReplicationControllersOrphan(t *testing.T) {
	c := start(t)
	rcs := c.admin().ReplicationControllers
	must(rcs.Create(ctx(t), &corev1rpc.CreateReplicationControllerRequest{Object: &corev1.ReplicationController{
		Metadata: &metav1.ObjectMeta{Name: "rc", Namespace: "default"},
		Spec: &corev1.ReplicationControllerSpec{
			Selector: map[string]string{"a": "b"},
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
			},
		},
	}}))(t)
	if _, err := rcs.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "rc"}); err != nil {
		t.Fatal(err)
	}
	left := must(rcs.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "rc"}))(t)
	if got := left.GetMetadata().GetFinalizers(); !slices.Equal(got, []string{orphan}) {
		t.Errorf("finalizers %v, want [%s]", got, orphan)
	}
}
