package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Nothing collects what a deleted object owned, so whoever deletes an owner is told what stays; who deletes anything
// else, or wants the dependents to stay, is told nothing. spec: OBJ-12
func TestDeletedOwnersHaveDependents(t *testing.T) {
	c := start(t)
	pods, maps := corev1.NewPodsClient(c.server.Conn(inproc.PassValues())),
		corev1.NewConfigMapsClient(c.server.Conn(inproc.PassValues()))
	owned := func(name string, owner *corev1.Pod) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: name, Namespace: "default", OwnerReferences: []*metav1.OwnerReference{
			{ApiVersion: "v1", Kind: "Pod", Name: owner.Metadata.Name, Uid: owner.Metadata.Uid},
		}}
	}
	c.createPod(newPod("single"))
	owner := c.createPod(newPod("owner"))
	for _, name := range []string{"a", "b"} {
		p := newPod(name)
		p.Metadata = owned(name, owner)
		c.createPod(p)
	}
	must(c.admin().ConfigMaps.Create(ctx(t),
		&corev1.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: owned("c", owner)}}))(t)
	must(maps.List(authn.WithUser(ctx(t), adminUser()), &metav1.ListRequest{}))(t) // the caches know it now

	told := func(req *metav1.DeleteRequest) []string {
		t.Helper()
		collected, warnings := warning.WithCollector(authn.WithUser(ctx(t), adminUser()))
		req.Namespace = "default"
		must(pods.Delete(collected, req))(t)
		return warnings.Texts()
	}
	all := []string{"All"}
	const want = `pods "owner" is the owner of 1 configmaps, 2 pods, which stay: dependents are not deleted with ` +
		`their owner in this version`
	for _, x := range []struct {
		req  *metav1.DeleteRequest
		want string
	}{
		{&metav1.DeleteRequest{Name: "owner", DryRun: all}, want},
		{&metav1.DeleteRequest{Name: "owner", DryRun: all, PropagationPolicy: ptr("Background")}, want},
		{&metav1.DeleteRequest{Name: "owner", DryRun: all, PropagationPolicy: ptr("Orphan")}, ""},
		{&metav1.DeleteRequest{Name: "owner", DryRun: all, Options: &metav1.DeleteOptions{OrphanDependents: ptr(true)}}, ""},
		{&metav1.DeleteRequest{Name: "single", PropagationPolicy: ptr("Background")}, ""},
		{&metav1.DeleteRequest{Name: "a", PropagationPolicy: ptr("Background")}, ""},
		{&metav1.DeleteRequest{Name: "owner", PropagationPolicy: ptr("Background")},
			strings.Replace(want, "2 pods", "1 pods", 1)},
	} {
		got := strings.Join(told(x.req), "; ")
		if got != x.want {
			t.Errorf("%v: %q, want %q", x.req, got, x.want)
		}
		if x.req.Name == "a" {
			must(pods.List(authn.WithUser(ctx(t), adminUser()), &metav1.ListRequest{}))(t)
		}
	}

	// A collection is told of each.
	next := c.createPod(newPod("owner"))
	p := newPod("d")
	p.Metadata = owned("d", next)
	c.createPod(p)
	must(pods.List(authn.WithUser(ctx(t), adminUser()), &metav1.ListRequest{}))(t)
	collected, warnings := warning.WithCollector(authn.WithUser(ctx(t), adminUser()))
	must(pods.DeleteCollection(collected,
		&metav1.DeleteCollectionRequest{Namespace: "default", FieldSelector: "metadata.name=owner"}))(t)
	if texts := warnings.Texts(); len(texts) != 1 || !strings.Contains(texts[0], `"owner" is the owner of 1 pods`) {
		t.Errorf("%q", texts)
	}
}
