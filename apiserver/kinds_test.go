package apiserver_test

import (
	"context"
	"testing"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	eventsv1 "monoplane.dev/api/events/v1"
	eventsv1rpc "monoplane.dev/api/events/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-14, NS-1
func TestNamespaces(t *testing.T) {
	c := start(t)
	all := must(c.admin().Namespaces.List(ctx(t), &metav1.ListRequest{}))(t)
	if len(all.Items) != 4 || all.Items[0].Status.Phase != "Active" || all.Items[0].Spec.Finalizers[0] != "kubernetes" {
		t.Fatalf("system namespaces: %v", all.Items)
	}
	p := newPod("web")
	p.Metadata.Namespace = "team"
	if _, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("missing namespace: %v", err)
	}
	must(c.admin().Namespaces.Create(ctx(t),
		&corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "team"}}}))(t)
	c.register("n1")
	p = c.createPod(p)
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin().Namespaces.Delete(ctx(t), &metav1.DeleteRequest{Name: "default"}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("default deleted: %v", err)
	}
	team := must(c.admin().Namespaces.Delete(ctx(t), &metav1.DeleteRequest{Name: "team"}))(t)
	if team.Status.Phase != "Terminating" || team.Metadata.DeletionTimestamp == nil {
		t.Errorf("terminating: %v", team)
	}
	q := newPod("late")
	q.Metadata.Namespace = "team"
	if _, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: q}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("created in a terminating namespace: %v", err)
	}
	ns := c.controller("namespace")
	finalize := func() error {
		next := clone(team)
		next.Metadata.ResourceVersion, next.Spec.Finalizers = "", nil
		_, err := ns.Namespaces.Finalize(ctx(t), &corev1rpc.UpdateNamespaceRequest{Object: next})
		return err
	}
	must(ns.Pods.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "team"}))(t)
	must(ns.Events.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "team"}))(t)
	must(ns.ServiceAccounts.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "team"}))(t)
	if err := finalize(); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("finalized while the pod's node has not answered: %v", err)
	}
	ended := must(setPhase(t, c.agent("n1"), p, "Failed"))(t)
	must(deletePod(t, c.agent("n1"), ended, ptr(int64(0)), true))(t)
	if err := finalize(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin().Namespaces.Get(ctx(t), &metav1.GetRequest{Name: "team"}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("still there: %v", err)
	}
}

// spec: OBJ-13
func TestEventsInTwoGroups(t *testing.T) {
	c := start(t)
	admin := c.admin()
	made := must(admin.EventsV1.Create(ctx(t),
		&eventsv1rpc.CreateEventRequest{Namespace: "default", Object: &eventsv1.Event{
			Metadata:  &metav1.ObjectMeta{Name: "web.1"},
			EventTime: value.MicroTime(epoch), ReportingController: "example.com/tester", ReportingInstance: "t-1",
			Action: "Testing", Reason: "Tested", Note: "all is well", Type: "Normal",
			Regarding: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", Uid: "u1"},
		}}))(t)
	core := must(admin.Events.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "web.1"}))(t)
	if core.Message != "all is well" || core.InvolvedObject.Name != "web" ||
		core.ReportingComponent != "example.com/tester" || core.Metadata.Uid != made.Metadata.Uid {
		t.Errorf("as core/v1: %v", core)
	}
	patched := must(admin.EventsV1.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web.1",
		PatchType: "application/merge-patch+json",
		Patch:     []byte(`{"series":{"count":2,"lastObservedTime":"2026-03-01T12:00:01.000000Z"}}`)}))(t)
	if patched.Series.GetCount() != 2 || patched.Note != "all is well" {
		t.Errorf("patched: %v", patched)
	}
	for _, selector := range []string{"regarding.name=web", "reason=Tested", "reportingController=example.com/tester",
		"metadata.name=web.1"} {
		if l := must(admin.EventsV1.List(ctx(t), &metav1.ListRequest{FieldSelector: selector}))(t); len(l.Items) != 1 {
			t.Errorf("%s selects %d", selector, len(l.Items))
		}
	}
	for _, selector := range []string{"involvedObject.kind=Pod,involvedObject.namespace=default",
		"source=example.com/tester", "type!=Warning"} {
		if l := must(admin.Events.List(ctx(t), &metav1.ListRequest{FieldSelector: selector}))(t); len(l.Items) != 1 {
			t.Errorf("%s selects %d", selector, len(l.Items))
		}
	}
	if _, err := admin.Events.List(ctx(t), &metav1.ListRequest{FieldSelector: "spec.nodeName=x"}); !apierrors.Is(err,
		apierrors.BadRequest) {
		t.Errorf("unknown field: %v", err)
	}
}

// spec: OBJ-2
func TestLeasesRefuseUnseenUpdates(t *testing.T) {
	c := start(t)
	l := must(c.agent("n1").Leases.Create(ctx(t),
		&coordinationv1rpc.CreateLeaseRequest{Namespace: "kube-node-lease", Object: &coordinationv1.Lease{
			Metadata: &metav1.ObjectMeta{Name: "n1"},
			Spec: &coordinationv1.LeaseSpec{HolderIdentity: ptr("n1"), LeaseDurationSeconds: ptr(int32(40)),
				RenewTime: value.MicroTime(epoch)},
		}}))(t)
	next := clone(l)
	next.Spec.RenewTime = value.MicroTime(epoch.Add(10 * time.Second))
	renewed := must(c.agent("n1").Leases.Update(ctx(t), &coordinationv1rpc.UpdateLeaseRequest{Object: next}))(t)
	if renewed.Metadata.ResourceVersion == l.Metadata.ResourceVersion {
		t.Error("not renewed")
	}
	unseen := clone(next)
	unseen.Metadata.ResourceVersion = ""
	if _, err := c.agent("n1").Leases.Update(ctx(t),
		&coordinationv1rpc.UpdateLeaseRequest{Object: unseen}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("unconditional update: %v", err)
	}
	_, err := c.agent("n1").Leases.Update(ctx(t), &coordinationv1rpc.UpdateLeaseRequest{Object: next})
	if !apierrors.Is(err,
		apierrors.Conflict) {
		t.Errorf("stale update: %v", err)
	}
}

// spec: OBJ-6, OBJ-7
func TestListAndWatch(t *testing.T) {
	c := start(t)
	c.register("n1")
	wctx, cancel := context.WithCancel(ctx(t))
	defer cancel()
	w := must(c.agent("n1").Pods.Watch(wctx, &metav1.WatchRequest{FieldSelector: "spec.nodeName=n1",
		SendInitialEvents: ptr(true), ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true}))(t)
	must(w.Header())(t) // it begins with the state as it is when it is accepted
	p := c.boundPod("web", "n1")
	c.createPod(newPod("other"))
	must(deletePod(t, c.admin(), p, ptr(int64(0)), false))(t)
	var got []string
	for len(got) < 3 {
		batch := must(w.Recv())(t)
		for _, e := range batch.Events {
			got = append(got, e.Type+" "+e.Object.GetMetadata().GetName())
		}
	}
	if got[0] != "BOOKMARK " || got[1] != "ADDED web" || got[2] != "DELETED web" {
		t.Errorf("events %v", got)
	}
	for _, bad := range []*metav1.WatchRequest{
		{SendInitialEvents: ptr(true)}, {ResourceVersionMatch: "NotOlderThan"}, {FieldSelector: "spec.foo=1"},
		{LabelSelector: "a in"},
	} {
		s := must(c.admin().Pods.Watch(wctx, bad))(t)
		if _, err := s.Recv(); err == nil || apierrors.Is(err, apierrors.InternalError) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
