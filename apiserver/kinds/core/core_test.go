package core_test

import (
	"fmt"
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-4, OBJ-5, OBJ-13, NODE-5, NS-1
func TestOtherKinds(t *testing.T) {
	moment := &metav1.MicroTime{Seconds: 1}
	node := func(f func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{Metadata: kindtest.Meta("n", ""), Spec: &corev1.NodeSpec{ProviderID: "p", PodCIDRs: []string{"10.0.0.0/24"}}, Status: &corev1.NodeStatus{Capacity: kindtest.Amounts("cpu", "1")}}
		if f != nil {
			f(n)
		}
		return n
	}
	deleted := &metav1.ObjectMeta{Name: "n", DeletionTimestamp: &metav1.Time{Seconds: 1}}
	immutable := true
	event := func(f func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{Metadata: kindtest.Meta("e", "default"), InvolvedObject: &corev1.ObjectReference{Namespace: "default"}}
		f(e)
		return e
	}
	for _, c := range []struct {
		name string
		got  []apierrors.Cause
		want []string
	}{
		{"node", core.ValidateNode(node(nil)), nil},
		{"bad node", core.ValidateNode(node(func(n *corev1.Node) {
			n.Metadata = kindtest.Meta("N", "default")
			n.Spec.Taints = []*corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoSchedule"}, {Key: "a b", Value: "c d"}, {Key: "b", Effect: "x"}}
			n.Spec.PodCIDRs = []string{"x", "10.0.0.0/24"}
			n.Status.Capacity = kindtest.Amounts("cpu", "-1", "pods", "1500m")
			n.Status.Addresses = []*corev1.NodeAddress{{Type: "a", Address: "b"}, {Type: "a", Address: "b"}}
		})), []string{
			"Invalid metadata.name", "Forbidden metadata.namespace", "Duplicate metadata.taints[1]", "Invalid metadata.taints[2].key",
			"Invalid metadata.taints[2].value", "Required metadata.taints[2].effect", "NotSupported metadata.taints[3].effect",
			"Invalid status.capacity.cpu", "Invalid status.capacity.pods", "Duplicate status.addresses[1]",
			"Invalid spec.podCIDRs[0]", "Invalid spec.podCIDRs",
		}},
		{"node update", core.ValidateNodeUpdate(node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), node(nil)), nil},
		{"bad node update", core.ValidateNodeUpdate(node(func(n *corev1.Node) {
			n.Spec = &corev1.NodeSpec{ProviderID: "q", ExternalID: "e"}
		}), node(nil)), []string{"Forbidden spec.podCIDRs", "Forbidden spec.providerID", "Forbidden spec.externalID"}},
		{"namespace", core.ValidateNamespace(&corev1.Namespace{Metadata: kindtest.Meta("ns", "")}), nil},
		{"namespaces are labels", core.ValidateNamespace(&corev1.Namespace{Metadata: kindtest.Meta("a.b", "")}), []string{"Invalid metadata.name"}},
		{"long namespace", core.ValidateNamespace(&corev1.Namespace{Metadata: kindtest.Meta(strings.Repeat("a", 64), "")}), []string{"Invalid metadata.name"}},
		{"namespace phase", core.ValidateNamespaceStatusUpdate(&corev1.Namespace{Metadata: deleted, Status: &corev1.NamespaceStatus{Phase: "Active"}},
			&corev1.Namespace{Metadata: deleted}), []string{"Invalid status.Phase"}},
		{"namespace finalizers", core.ValidateNamespaceFinalizeUpdate(
			&corev1.Namespace{Metadata: kindtest.Meta("n", ""), Spec: &corev1.NamespaceSpec{Finalizers: []string{"x", "example.com/y", "kubernetes"}}},
			&corev1.Namespace{Metadata: kindtest.Meta("n", "")}), []string{"Invalid spec.finalizers[0]"}},
		{"ConfigMap", core.ValidateConfigMap(&corev1.ConfigMap{Metadata: kindtest.Meta("c", "d"), Data: map[string]string{"a": strings.Repeat("x", 1<<20)}}), nil},
		{"bad ConfigMap", core.ValidateConfigMap(&corev1.ConfigMap{
			Metadata: kindtest.Meta("c", "d"), Data: map[string]string{"a b": "", "k": strings.Repeat("x", 1<<20)}, BinaryData: map[string][]byte{"k": []byte("x")},
		}), []string{"Invalid data[a b]", "Invalid data[k]", "TooLong []"}},
		{"immutable ConfigMap", core.ValidateConfigMapUpdate(
			&corev1.ConfigMap{Metadata: kindtest.Meta("c", "d"), Data: map[string]string{"a": "b"}},
			&corev1.ConfigMap{Metadata: kindtest.Meta("c", "d"), Immutable: &immutable, BinaryData: map[string][]byte{"x": nil}}),
			[]string{"Forbidden immutable", "Forbidden data", "Forbidden binaryData"}},
		{"service account", core.ValidateServiceAccount(&corev1.ServiceAccount{Metadata: kindtest.Meta("A", "d")}), []string{"Invalid metadata.name"}},
		{"service account renamed", core.ValidateServiceAccountUpdate(&corev1.ServiceAccount{Metadata: kindtest.Meta("b", "d")}, &corev1.ServiceAccount{Metadata: kindtest.Meta("a", "d")}), []string{"Invalid metadata.name"}},
		{"event", core.ValidateEvent(event(func(*corev1.Event) {})), nil},
		{"event names are free", core.ValidateEvent(event(func(e *corev1.Event) { e.Metadata.Name = "Pod_x.17A" })), nil},
		{"event names are parts of paths", core.ValidateEvent(event(func(e *corev1.Event) { e.Metadata.Name = "a/b%" })), []string{"Invalid metadata.name", "Invalid metadata.name"}},
		{"event elsewhere", core.ValidateEvent(event(func(e *corev1.Event) { e.InvolvedObject.Namespace = "other" })), []string{"Invalid involvedObject.namespace"}},
		{"event with a time", core.ValidateEvent(event(func(e *corev1.Event) { e.EventTime, e.Reason = moment, strings.Repeat("x", 200) })), []string{
			"Required reportingComponent", "Invalid reportingComponent", "Invalid reportingComponent", "Required reportingInstance", "Required action", "Invalid reason",
		}},
		{"generateName", core.ValidateConfigMap(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "a-x", GenerateName: "a-", Namespace: "d"}}), nil},
		{"bad generateName", core.ValidateConfigMap(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{GenerateName: "A-", Namespace: "d"}}),
			[]string{"Invalid metadata.generateName", "Required metadata.name"}},
		{"two controllers", core.ValidateNamespace(&corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "a", OwnerReferences: []*metav1.OwnerReference{
			{ApiVersion: "v1", Kind: "K", Name: "a", Uid: "1", Controller: &immutable}, {ApiVersion: "a/v1", Kind: "K", Name: "b", Uid: "2", Controller: &immutable},
		}}}), []string{"Invalid metadata.ownerReferences"}},
		{"contradicting finalizers", core.ValidateNamespace(&corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "a", Finalizers: []string{"orphan", "foregroundDeletion"}}}),
			[]string{"Invalid metadata.finalizers"}},
	} {
		if got, want := kindtest.Faults(c.got), kindtest.Lines(c.want...); got != want {
			t.Errorf("%s: faults:\n%swant:\n%s", c.name, got, want)
		}
	}
}

func TestDefaults(t *testing.T) {
	ns := &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "n"}, Status: &corev1.NamespaceStatus{Phase: "Odd"}}
	for range 2 {
		core.DefaultNewNamespace(ns)
	}
	if ns.Metadata.Labels["kubernetes.io/metadata.name"] != "n" || fmt.Sprint(ns.Spec.Finalizers) != "[kubernetes]" || ns.Status.Phase != "Active" {
		t.Errorf("namespace %v", ns)
	}
	node := &corev1.Node{Spec: &corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}, Status: &corev1.NodeStatus{Capacity: kindtest.Amounts("cpu", "2000m")}}
	core.DefaultNode(node)
	if kindtest.Show(node.Status.Allocatable) != "map[cpu:2]" || fmt.Sprint(node.Spec.PodCIDRs) != "[10.0.0.0/24]" {
		t.Errorf("node %v", node)
	}
	node.Status.Allocatable["cpu"].String_ = "1"
	if kindtest.Show(node.Status.Capacity) != "map[cpu:2]" {
		t.Error("capacity and allocatable share quantities")
	}
}
