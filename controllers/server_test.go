package controllers_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/namespace"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/controllers/serviceaccount"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs controllers until the test ends.
func run(t *testing.T, controllers ...interface{ Run(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range controllers {
		g.Go(func() error { return c.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// gone waits until get says NotFound.
func gone(t *testing.T, get func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := get(ctx)
		if apierrors.Is(err, apierrors.NotFound) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still there: %v", err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, c *client.Client, namespace, name string, finalizers ...string) *corev1.Pod {
	t.Helper()
	p, err := c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}})
	must(t, err)
	return p
}

// bind puts the pod on a node as the scheduler does.
func bind(t *testing.T, as func(string, ...string) *client.Client, p *corev1.Pod, node string) {
	t.Helper()
	m := p.GetMetadata()
	_, err := as(authn.SchedulerName).Pods.Bind(t.Context(), &corev1rpc.BindPodRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Object: &corev1.Binding{Metadata: &metav1.ObjectMeta{Uid: m.GetUid()},
			Target: &corev1.ObjectReference{Kind: "Node", Name: node}},
	})
	must(t, err)
}

func node(t *testing.T, as func(string, ...string) *client.Client, name string) {
	t.Helper()
	_, err := as(authn.NodePrefix+name, authn.NodesGroup).Nodes.Create(t.Context(),
		&corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}})
	must(t, err)
}

// PodGC may do what GC-1 and GC-2 ask of it, as its own identity against the server's own rules.
// spec: GC-1, GC-2, DEL-8
func TestPodGC(t *testing.T) {
	as := apitest.Start(t).As
	admin := as(authn.AdminName, authn.AdminsGroup)
	node(t, as, "n1")
	orphan := createPod(t, admin, "default", "orphan")
	bind(t, as, orphan, "n1")
	createPod(t, admin, "default", "held", "example.com/hold")
	_, err := admin.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "held"})
	must(t, err)
	_, err = admin.Nodes.Delete(t.Context(), &metav1.DeleteRequest{Name: "n1"})
	must(t, err)

	w, err := admin.Pods.Watch(t.Context(), &metav1.WatchRequest{
		FieldSelector: "metadata.name=orphan", ResourceVersion: orphan.GetMetadata().GetResourceVersion(),
	})
	must(t, err)
	shared := controller.NewShared(as(authn.ControllerPrefix+controller.SharedRole().Name), nil)
	gc, err := podgc.New(podgc.Config{
		Client: as(authn.ControllerPrefix + "podgc"), Shared: shared,
		Period: 20 * time.Millisecond, Quarantine: 40 * time.Millisecond,
	})
	must(t, err)
	run(t, gc, shared)
	gone(t, func(ctx context.Context) error {
		_, err := admin.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "orphan"})
		return err
	})
	var last *corev1.Pod
	for deleted := false; !deleted; {
		batch, err := w.Recv()
		must(t, err)
		for _, e := range batch.GetEvents() {
			last = e.GetObject()
			deleted = deleted || e.GetType() == "DELETED"
		}
	}
	marked := false
	for _, c := range last.GetStatus().GetConditions() {
		marked = marked || c.GetType() == "DisruptionTarget" && c.GetReason() == "DeletionByPodGC"
	}
	if last.GetStatus().GetPhase() != "Failed" || !marked {
		t.Errorf("the orphan went as %v", last.GetStatus())
	}
	held, err := admin.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "held"})
	must(t, err)
	if held.GetStatus().GetPhase() != "Failed" {
		t.Errorf("the unscheduled pod is %v", held.GetStatus())
	}
}

// spec: NS-1
func TestNamespace(t *testing.T) {
	as := apitest.Start(t).As
	admin := as(authn.AdminName, authn.AdminsGroup)
	ns, err := namespace.New(namespace.Config{Client: as(authn.ControllerPrefix + "namespace")})
	must(t, err)
	sa, err := serviceaccount.New(serviceaccount.Config{Client: as(authn.ControllerPrefix + "serviceaccount")})
	must(t, err)
	run(t, ns, sa)
	_, err = admin.Namespaces.Create(t.Context(),
		&corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "ns"}}})
	must(t, err)
	node(t, as, "n1")
	pod := createPod(t, admin, "ns", "a")
	bind(t, as, pod, "n1")
	_, err = admin.Namespaces.Delete(t.Context(), &metav1.DeleteRequest{Name: "ns"})
	must(t, err)

	w, err := admin.Pods.Watch(t.Context(), &metav1.WatchRequest{Namespace: "ns"})
	must(t, err)
	for marked := false; !marked; {
		batch, err := w.Recv()
		must(t, err)
		for _, e := range batch.GetEvents() {
			m := e.GetObject().GetMetadata()
			marked = marked || m.GetDeletionTimestamp() != nil && m.GetDeletionGracePeriodSeconds() == 30
		}
	}
	// The node's agent completes the deletion.
	zero, uid := int64(0), pod.GetMetadata().GetUid()
	agent := as(authn.NodePrefix+"n1", authn.NodesGroup)
	_, err = agent.Pods.UpdateStatus(t.Context(), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "a", Uid: uid}, Status: &corev1.PodStatus{Phase: "Succeeded"},
	}})
	must(t, err)
	_, err = agent.Pods.Delete(t.Context(), &metav1.DeleteRequest{
		Namespace: "ns", Name: "a",
		Options: &metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	must(t, err)
	gone(t, func(ctx context.Context) error {
		_, err := admin.Namespaces.Get(ctx, &metav1.GetRequest{Name: "ns"})
		return err
	})
	_, err = admin.ServiceAccounts.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "default"})
	must(t, err)
}

// A builtin namespace whose deletion has begun, as older versions allowed, goes and comes back, and the heartbeats
// that are kept in it are missing no longer than that.
// spec: OBJ-14
func TestBuiltinNamespacesComeBack(t *testing.T) {
	server := apitest.Start(t)
	as, st := server.As, server.Store
	admin := as(authn.AdminName, authn.AdminsGroup)
	old, err := admin.Namespaces.Get(t.Context(), &metav1.GetRequest{Name: "kube-node-lease"})
	must(t, err)
	terminating := object.Clone(old)
	terminating.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
	terminating.Metadata.DeletionGracePeriodSeconds = new(int64)
	terminating.Status.Phase = "Terminating"
	revision, err := strconv.ParseInt(old.Metadata.ResourceVersion, 10, 64)
	must(t, err)
	_, err = st.Commit(t.Context(), store.Txn{Ops: []store.Op{{
		Key: store.Key{Kind: corev1.NamespaceKind, Name: "kube-node-lease"}, Object: terminating, Expect: revision,
	}}})
	must(t, err)
	c := as(authn.ControllerPrefix + "namespace")
	_, err = c.Namespaces.Create(t.Context(),
		&corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "x"}}})
	if !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("the namespace controller makes any namespace: %v", err)
	}
	ns, err := namespace.New(namespace.Config{Client: c})
	must(t, err)
	run(t, ns)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := admin.Namespaces.Watch(ctx, &metav1.WatchRequest{FieldSelector: "metadata.name=kube-node-lease"})
	must(t, err)
	for back := false; !back; {
		batch, err := w.Recv()
		must(t, err)
		for _, e := range batch.GetEvents() {
			m := e.GetObject().GetMetadata()
			back = back || m.GetUid() != old.Metadata.Uid && m.GetDeletionTimestamp() == nil
		}
	}
}
