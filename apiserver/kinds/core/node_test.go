package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds"
	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/object"
	"monoplane.dev/rules/taints"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// What was judged before another machine had the name, and left it again, is not stored: nothing in the store itself
// shows that the machine was there.
//
// spec: NODE-7
func TestGuardsAgainstAnotherMachine(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{
		Connect: embedded.Connect(embedded.Config{Dir: t.TempDir(), UnsafeNoFsync: true}), Collections: kinds.Collections(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	deps := registry.Deps{Store: s}.Complete()
	strategy := core.Node(define.Config{Deps: deps}).Strategy
	nodes := registry.New(deps, strategy)
	machine := func(key string) context.Context {
		return authn.WithUser(t.Context(),
			&authn.User{Name: authn.NodePrefix + "n1", Groups: []string{authn.NodesGroup}, UID: key})
	}
	administrator := authn.WithUser(t.Context(), &authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup}})
	n1 := func() *corev1.Node { return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1"}} }
	register := func(by context.Context) {
		t.Helper()
		if _, err := nodes.Create(by, "", n1(), object.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	unregister := func() {
		t.Helper()
		if _, err := nodes.Delete(administrator, &metav1.DeleteRequest{Name: "n1"}); err != nil {
			t.Fatal(err)
		}
	}
	theirs := func() object.Object {
		o := n1()
		nodekey.Set(o.Metadata, "theirs")
		return o
	}
	bound := func() object.Object {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec: &corev1.PodSpec{NodeName: "n1"}}
		nodekey.Set(p.Metadata, "theirs")
		return p
	}
	for _, x := range []struct {
		name          string
		before, since func()
		guards        func(context.Context, object.Object) ([]store.Guard, error)
		object        func() object.Object
	}{
		{"a registration, the other registered", func() {}, func() {
			register(machine("others"))
			unregister()
		}, strategy.Guards, theirs},
		{"a registration, the other took an administrator's node", func() {}, func() {
			register(administrator)
			labelled := n1()
			labelled.Metadata.Labels = map[string]string{"a": "b"}
			labelled.Spec = &corev1.NodeSpec{Taints: []*corev1.Taint{{Key: taints.NotReady, Effect: taints.NoSchedule}}}
			if _, err := nodes.Update(machine("others"), "", "n1", "", labelled, object.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			unregister()
		}, strategy.Guards, theirs},
		{"a pod that is created bound, the other registered", func() { register(machine("theirs")) }, func() {
			unregister()
			register(machine("others"))
		}, pod.New(deps, nil, nil).Strategy().Guards, bound},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.before()
			o := x.object()
			guards, err := x.guards(machine("theirs"), o)
			if err != nil {
				t.Fatal(err)
			}
			x.since()
			m := o.GetMetadata()
			_, err = s.Commit(t.Context(), store.Txn{Guards: guards, Ops: []store.Op{
				{Key: store.Key{Kind: o.ObjectKind(), Namespace: m.GetNamespace(), Name: m.GetName()}, Object: o},
			}})
			if conflict := (*store.ConflictError)(nil); !errors.As(err, &conflict) || !conflict.Guard {
				t.Errorf("stored: %v", err)
			}
		})
	}
}

// spec: OBJ-4, OBJ-5, NODE-5
func TestValidateNode(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			Metadata: kindtest.Meta("n", ""), Spec: &corev1.NodeSpec{ProviderID: "p", PodCIDRs: []string{"10.0.0.0/24"}},
			Status: &corev1.NodeStatus{Capacity: kindtest.Amounts("cpu", "1")},
		}
		if change != nil {
			change(n)
		}
		return n
	}
	kindtest.Judge(t, "good", core.ValidateNode(node(nil)))
	kindtest.Judge(t, "bad", core.ValidateNode(node(func(n *corev1.Node) {
		n.Metadata = kindtest.Meta("N", "default")
		n.Spec.Taints = []*corev1.Taint{
			{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoSchedule"}, {Key: "a b", Value: "c d"},
			{Key: "b", Effect: "x"},
		}
		n.Spec.PodCIDRs = []string{"x", "10.0.0.0/24"}
		n.Status.Capacity = kindtest.Amounts("cpu", "-1", "pods", "1500m")
		n.Status.Addresses = []*corev1.NodeAddress{{Type: "a", Address: "b"}, {Type: "a", Address: "b"}}
	})),
		"Invalid metadata.name", "Forbidden metadata.namespace", "Duplicate metadata.taints[1]",
		"Invalid metadata.taints[2].key", "Invalid metadata.taints[2].value", "Required metadata.taints[2].effect",
		"NotSupported metadata.taints[3].effect", "Invalid status.capacity.cpu", "Invalid status.capacity.pods",
		"Duplicate status.addresses[1]", "Invalid spec.podCIDRs[0]", "Invalid spec.podCIDRs",
	)
	kindtest.Judge(t, "cordoned",
		core.ValidateNodeUpdate(node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), node(nil)))
	kindtest.Judge(t, "another machine", core.ValidateNodeUpdate(node(func(n *corev1.Node) {
		n.Spec = &corev1.NodeSpec{ProviderID: "q", ExternalID: "e"}
	}), node(nil)), "Forbidden spec.podCIDRs", "Forbidden spec.providerID", "Forbidden spec.externalID")
}

func TestDefaultNode(t *testing.T) {
	node := &corev1.Node{
		Spec:   &corev1.NodeSpec{PodCIDR: "10.0.0.0/24"},
		Status: &corev1.NodeStatus{Capacity: kindtest.Amounts("cpu", "2000m")},
	}
	core.DefaultNode(node)
	if kindtest.Show(node.Status.Allocatable) != "map[cpu:2]" || fmt.Sprint(node.Spec.PodCIDRs) != "[10.0.0.0/24]" {
		t.Errorf("node %v", node)
	}
	node.Status.Allocatable["cpu"].String_ = "1"
	if kindtest.Show(node.Status.Capacity) != "map[cpu:2]" {
		t.Error("capacity and allocatable share quantities")
	}
}
