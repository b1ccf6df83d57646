package validation_test

import (
	"strings"
	"testing"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
)

func meta(name, namespace string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: name, Namespace: namespace}
}

// spec: OBJ-4, OBJ-5, OBJ-13, NODE-5, NS-1
func TestOtherKinds(t *testing.T) {
	moment := &metav1.MicroTime{Seconds: 1}
	node := func(f func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{Metadata: meta("n", ""), Spec: &corev1.NodeSpec{ProviderID: "p", PodCIDRs: []string{"10.0.0.0/24"}}, Status: &corev1.NodeStatus{Capacity: amounts("cpu", "1")}}
		if f != nil {
			f(n)
		}
		return n
	}
	deleted := &metav1.ObjectMeta{Name: "n", DeletionTimestamp: &metav1.Time{Seconds: 1}}
	immutable := true
	event := func(f func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{Metadata: meta("e", "default"), InvolvedObject: &corev1.ObjectReference{Namespace: "default"}}
		f(e)
		return e
	}
	newStyle := func(f func(*eventsv1.Event)) *eventsv1.Event {
		e := &eventsv1.Event{
			Metadata: meta("e", "default"), Regarding: &corev1.ObjectReference{Namespace: "default"}, EventTime: moment, Type: "Normal",
			ReportingController: "example.com/c", ReportingInstance: "i", Action: "a", Reason: "r",
		}
		f(e)
		return e
	}
	for _, c := range []struct {
		name string
		got  []apierrors.Cause
		want []string
	}{
		{"node", validation.Node(node(nil)), nil},
		{"bad node", validation.Node(node(func(n *corev1.Node) {
			n.Metadata = meta("N", "default")
			n.Spec.Taints = []*corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoSchedule"}, {Key: "a b", Value: "c d"}, {Key: "b", Effect: "x"}}
			n.Spec.PodCIDRs = []string{"x", "10.0.0.0/24"}
			n.Status.Capacity = amounts("cpu", "-1", "pods", "1500m")
			n.Status.Addresses = []*corev1.NodeAddress{{Type: "a", Address: "b"}, {Type: "a", Address: "b"}}
		})), []string{
			"Invalid metadata.name", "Forbidden metadata.namespace", "Duplicate metadata.taints[1]", "Invalid metadata.taints[2].key",
			"Invalid metadata.taints[2].value", "Required metadata.taints[2].effect", "NotSupported metadata.taints[3].effect",
			"Invalid status.capacity.cpu", "Invalid status.capacity.pods", "Duplicate status.addresses[1]",
			"Invalid spec.podCIDRs[0]", "Invalid spec.podCIDRs",
		}},
		{"node update", validation.NodeUpdate(node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), node(nil)), nil},
		{"bad node update", validation.NodeUpdate(node(func(n *corev1.Node) {
			n.Spec = &corev1.NodeSpec{ProviderID: "q", ExternalID: "e"}
		}), node(nil)), []string{"Forbidden spec.podCIDRs", "Forbidden spec.providerID", "Forbidden spec.externalID"}},
		{"namespace", validation.Namespace(&corev1.Namespace{Metadata: meta("ns", "")}), nil},
		{"namespaces are labels", validation.Namespace(&corev1.Namespace{Metadata: meta("a.b", "")}), []string{"Invalid metadata.name"}},
		{"long namespace", validation.Namespace(&corev1.Namespace{Metadata: meta(strings.Repeat("a", 64), "")}), []string{"Invalid metadata.name"}},
		{"namespace phase", validation.NamespaceStatusUpdate(&corev1.Namespace{Metadata: deleted, Status: &corev1.NamespaceStatus{Phase: "Active"}},
			&corev1.Namespace{Metadata: deleted}), []string{"Invalid status.Phase"}},
		{"namespace finalizers", validation.NamespaceFinalizeUpdate(
			&corev1.Namespace{Metadata: meta("n", ""), Spec: &corev1.NamespaceSpec{Finalizers: []string{"x", "example.com/y", "kubernetes"}}},
			&corev1.Namespace{Metadata: meta("n", "")}), []string{"Invalid spec.finalizers[0]"}},
		{"ConfigMap", validation.ConfigMap(&corev1.ConfigMap{Metadata: meta("c", "d"), Data: map[string]string{"a": strings.Repeat("x", 1<<20)}}), nil},
		{"bad ConfigMap", validation.ConfigMap(&corev1.ConfigMap{
			Metadata: meta("c", "d"), Data: map[string]string{"a b": "", "k": strings.Repeat("x", 1<<20)}, BinaryData: map[string][]byte{"k": []byte("x")},
		}), []string{"Invalid data[a b]", "Invalid data[k]", "TooLong []"}},
		{"immutable ConfigMap", validation.ConfigMapUpdate(
			&corev1.ConfigMap{Metadata: meta("c", "d"), Data: map[string]string{"a": "b"}},
			&corev1.ConfigMap{Metadata: meta("c", "d"), Immutable: &immutable, BinaryData: map[string][]byte{"x": nil}}),
			[]string{"Forbidden immutable", "Forbidden data", "Forbidden binaryData"}},
		{"service account", validation.ServiceAccount(&corev1.ServiceAccount{Metadata: meta("A", "d")}), []string{"Invalid metadata.name"}},
		{"service account renamed", validation.ServiceAccountUpdate(&corev1.ServiceAccount{Metadata: meta("b", "d")}, &corev1.ServiceAccount{Metadata: meta("a", "d")}), []string{"Invalid metadata.name"}},
		{"lease", validation.Lease(&coordinationv1.Lease{Metadata: meta("l", "d"), Spec: &coordinationv1.LeaseSpec{
			LeaseDurationSeconds: ptr(int32(0)), LeaseTransitions: ptr(int32(-1)), PreferredHolder: ptr("a"),
		}}), []string{"Invalid spec.leaseDurationSeconds", "Invalid spec.leaseTransitions", "Forbidden spec.preferredHolder"}},
		{"lease without spec", validation.LeaseUpdate(&coordinationv1.Lease{Metadata: meta("l", "d")}, &coordinationv1.Lease{Metadata: meta("l", "d")}), nil},
		{"event", validation.Event(event(func(*corev1.Event) {})), nil},
		{"event names are free", validation.Event(event(func(e *corev1.Event) { e.Metadata.Name = "Pod_x.17A" })), nil},
		{"event names are parts of paths", validation.Event(event(func(e *corev1.Event) { e.Metadata.Name = "a/b%" })), []string{"Invalid metadata.name", "Invalid metadata.name"}},
		{"event elsewhere", validation.Event(event(func(e *corev1.Event) { e.InvolvedObject.Namespace = "other" })), []string{"Invalid involvedObject.namespace"}},
		{"event with a time", validation.Event(event(func(e *corev1.Event) { e.EventTime, e.Reason = moment, strings.Repeat("x", 200) })), []string{
			"Required reportingComponent", "Invalid reportingComponent", "Invalid reportingComponent", "Required reportingInstance", "Required action", "Invalid reason",
		}},
		{"new event", validation.EventsEvent(newStyle(func(*eventsv1.Event) {})), nil},
		{"bad new event", validation.EventsEvent(newStyle(func(e *eventsv1.Event) {
			e.Type, e.DeprecatedCount, e.Series = "Odd", 1, &eventsv1.EventSeries{Count: 1}
			e.DeprecatedSource = &corev1.EventSource{Host: "h"}
		})), []string{"Invalid series.count", "Required series.lastObservedTime", "Invalid type", "Invalid count", "Invalid source"}},
		{"series of a new event", validation.EventsEventUpdate(newStyle(func(e *eventsv1.Event) {
			e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: moment}
		}), newStyle(func(*eventsv1.Event) {})), nil},
		{"other change of a new event", validation.EventsEventUpdate(newStyle(func(e *eventsv1.Event) { e.Note, e.Reason = "n", "q" }), newStyle(func(*eventsv1.Event) {})),
			[]string{"Invalid reason", "Invalid message"}},
		{"binding", validation.Binding(&corev1.Binding{Target: &corev1.ObjectReference{Kind: "Node", Name: "n"}}), nil},
		{"bad binding", validation.Binding(&corev1.Binding{Target: &corev1.ObjectReference{Kind: "Pod"}}), []string{"Required target.name", "NotSupported target.kind"}},
		{"delete options", validation.DeleteOptions(&metav1.DeleteOptions{PropagationPolicy: ptr("x"), OrphanDependents: ptr(true), DryRun: []string{"Some"}}),
			[]string{"Invalid propagationPolicy", "NotSupported propagationPolicy", "NotSupported dryRun"}},
		{"write options", validation.WriteOptions(object.WriteOptions{FieldManager: strings.Repeat("a", 129), FieldValidation: "x", DryRun: []string{""}}),
			[]string{"TooLong fieldManager", "NotSupported dryRun", "NotSupported fieldValidation"}},
		{"good write options", validation.WriteOptions(object.WriteOptions{FieldManager: "kubectl-create", FieldValidation: "Strict", DryRun: []string{"All"}}), nil},
		{"generateName", validation.ConfigMap(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "a-x", GenerateName: "a-", Namespace: "d"}}), nil},
		{"bad generateName", validation.ConfigMap(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{GenerateName: "A-", Namespace: "d"}}),
			[]string{"Invalid metadata.generateName", "Required metadata.name"}},
		{"two controllers", validation.Namespace(&corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "a", OwnerReferences: []*metav1.OwnerReference{
			{ApiVersion: "v1", Kind: "K", Name: "a", Uid: "1", Controller: &immutable}, {ApiVersion: "a/v1", Kind: "K", Name: "b", Uid: "2", Controller: &immutable},
		}}}), []string{"Invalid metadata.ownerReferences"}},
		{"contradicting finalizers", validation.Namespace(&corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "a", Finalizers: []string{"orphan", "foregroundDeletion"}}}),
			[]string{"Invalid metadata.finalizers"}},
	} {
		if got, want := fields(c.got), lines(c.want...); got != want {
			t.Errorf("%s: faults:\n%swant:\n%s", c.name, got, want)
		}
	}
}
