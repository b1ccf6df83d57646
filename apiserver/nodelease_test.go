package apiserver_test

import (
	"sync"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/client/inproc"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func newLease(node *corev1.Node) *coordinationv1.Lease {
	m := node.GetMetadata()
	return &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Namespace: "kube-node-lease", Name: m.GetName(),
			OwnerReferences: []*metav1.OwnerReference{
				{ApiVersion: "v1", Kind: "Node", Name: m.GetName(), Uid: m.GetUid()},
			}},
		Spec: &coordinationv1.LeaseSpec{HolderIdentity: ptr(m.GetName())},
	}
}

// hasLease says whether a node's lease exists.
func (c *cluster) hasLease(name string) bool {
	c.t.Helper()
	_, err := c.admin().Leases.Get(ctx(c.t), &metav1.GetRequest{Namespace: "kube-node-lease", Name: name})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		c.t.Fatal(err)
	}
	return err == nil
}

// A node's Lease goes with the Node, at the same revision, whichever way the Node goes, and while it is being renewed.
// The Lease of another, or one that something holds, stays. spec: NODE-1, NODE-4
func TestLeaseGoesWithItsNode(t *testing.T) {
	c := start(t)
	admin := c.admin()
	make := func(name string, change func(l *coordinationv1.Lease)) {
		t.Helper()
		n := must(admin.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode(name)}))(t)
		l := newLease(n)
		change(l)
		must(admin.Leases.Create(ctx(t), &coordinationv1rpc.CreateLeaseRequest{Namespace: "kube-node-lease", Object: l}))(t)
	}
	remove := func(name string) {
		t.Helper()
		must(admin.Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: name}))(t)
	}
	for name, tc := range map[string]struct {
		change func(l *coordinationv1.Lease)
		stays  bool
	}{
		"plain":    {func(*coordinationv1.Lease) {}, false},
		"older":    {func(l *coordinationv1.Lease) { l.Metadata.OwnerReferences[0].Uid = "that-of-a-predecessor" }, false},
		"nobodys":  {func(l *coordinationv1.Lease) { l.Metadata.OwnerReferences = nil }, true},
		"anothers": {func(l *coordinationv1.Lease) { l.Metadata.OwnerReferences[0].Name = "x" }, true},
		"held":     {func(l *coordinationv1.Lease) { l.Metadata.Finalizers = []string{"example.com/hold"} }, true},
	} {
		make(name, tc.change)
		remove(name)
		if got := c.hasLease(name); got != tc.stays {
			t.Errorf("%s: the lease is there: %v, want %v", name, got, tc.stays)
		}
	}

	t.Run("after a finalizer", func(t *testing.T) {
		make("slow", func(*coordinationv1.Lease) {})
		n := c.node("slow").Clone()
		n.Metadata.Finalizers = []string{"example.com/hold"}
		must(admin.Nodes.Update(ctx(t), &corev1rpc.UpdateNodeRequest{Object: n}))(t)
		remove("slow")
		if !c.hasLease("slow") {
			t.Fatal("the lease went before its node")
		}
		n = c.node("slow").Clone()
		n.Metadata.Finalizers = nil
		must(admin.Nodes.Update(ctx(t), &corev1rpc.UpdateNodeRequest{Object: n}))(t)
		if c.hasLease("slow") {
			t.Error("the lease is still there")
		}
	})

	t.Run("without a warning that it stays", func(t *testing.T) {
		for range 10 { // the caches may or may not have seen yet that it has gone
			make("quiet", func(*coordinationv1.Lease) {})
			must(admin.Leases.List(ctx(t), &metav1.ListRequest{}))(t) // they know that it is there
			for _, dry := range [][]string{{"All"}, nil} {
				collected, warnings := warning.WithCollector(authn.WithUser(ctx(t), adminUser()))
				nodes := corev1rpc.NewNodesClient(c.server.Conn(inproc.PassValues()))
				must(nodes.Delete(collected, &metav1.DeleteRequest{Name: "quiet", DryRun: dry}))(t)
				if texts := warnings.Texts(); len(texts) > 0 {
					t.Errorf("dry run %v: %q", dry, texts)
				}
			}
		}
	})

	t.Run("by collection", func(t *testing.T) {
		make("one", func(*coordinationv1.Lease) {})
		make("two", func(*coordinationv1.Lease) {})
		must(admin.Nodes.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{}))(t)
		if c.hasLease("one") || c.hasLease("two") {
			t.Error("a lease is still there")
		}
	})

	t.Run("at one revision", func(t *testing.T) {
		make("watched", func(*coordinationv1.Lease) {})
		since := c.node("watched").Metadata.ResourceVersion
		remove("watched")
		if c.hasLease("watched") {
			t.Fatal("the lease is still there")
		}
		nodes := must(admin.Nodes.Watch(ctx(t),
			&metav1.WatchRequest{ResourceVersion: since, FieldSelector: "metadata.name=watched"}))(t)
		leases := must(admin.Leases.Watch(ctx(t),
			&metav1.WatchRequest{ResourceVersion: since, FieldSelector: "metadata.name=watched"}))(t)
		node, lease := must(nodes.Recv())(t).Events, must(leases.Recv())(t).Events
		if len(lease) == 1 && lease[0].Type == "ADDED" {
			lease = append(lease, must(leases.Recv())(t).Events...)
		}
		if len(node) != 1 || len(lease) != 2 || node[0].Type != "DELETED" || lease[1].Type != "DELETED" ||
			node[0].Object.Metadata.ResourceVersion != lease[1].Object.Metadata.ResourceVersion {
			t.Errorf("node %v, lease %v", node, lease)
		}
	})

	t.Run("while it is renewed", func(t *testing.T) {
		c.register("n1")
		agent := c.agent("n1")
		for range 20 {
			n := c.node("n1")
			l := must(agent.Leases.Create(ctx(t),
				&coordinationv1rpc.CreateLeaseRequest{Namespace: "kube-node-lease", Object: newLease(n)}))(t)
			var renewals sync.WaitGroup
			renewals.Go(func() {
				var err error
				for i := int32(1); err == nil && i <= 10; i++ { // a deletion tries again more often than that
					next := l.Clone()
					next.Spec.LeaseTransitions = &i
					l, err = agent.Leases.Update(ctx(t), &coordinationv1rpc.UpdateLeaseRequest{
						Namespace: "kube-node-lease", Name: "n1", Object: next,
					})
				}
			})
			_, err := admin.Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"})
			renewals.Wait()
			if err != nil || c.hasLease("n1") {
				t.Fatalf("deleted with %v; the lease is there: %v", err, c.hasLease("n1"))
			}
			c.register("n1")
		}
	})
}
