package core_test

import (
	"fmt"
	"strings"
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-4, NS-1
func TestValidateNamespace(t *testing.T) {
	named := func(name string) *corev1.Namespace { return &corev1.Namespace{Metadata: kindtest.Meta(name, "")} }
	kindtest.Judge(t, "good", core.ValidateNamespace(named("ns")))
	kindtest.Judge(t, "names are labels", core.ValidateNamespace(named("a.b")), "Invalid metadata.name")
	kindtest.Judge(t, "a long name", core.ValidateNamespace(named(strings.Repeat("a", 64))), "Invalid metadata.name")

	deleted := &metav1.ObjectMeta{Name: "n", DeletionTimestamp: &metav1.Time{Seconds: 1}}
	kindtest.Judge(t, "active while it is deleted", core.ValidateNamespaceStatusUpdate(
		&corev1.Namespace{Metadata: deleted, Status: &corev1.NamespaceStatus{Phase: "Active"}},
		&corev1.Namespace{Metadata: deleted},
	), "Invalid status.Phase")

	held := named("n")
	held.Spec = &corev1.NamespaceSpec{Finalizers: []string{"x", "example.com/y", "kubernetes"}}
	kindtest.Judge(t, "an unknown finalizer", core.ValidateNamespaceFinalizeUpdate(held, named("n")),
		"Invalid spec.finalizers[0]")
}

func TestDefaultNamespace(t *testing.T) {
	ns := &corev1.Namespace{Metadata: kindtest.Meta("n", ""), Status: &corev1.NamespaceStatus{Phase: "Odd"}}
	for range 2 {
		core.DefaultNewNamespace(ns)
	}
	if name := ns.Metadata.Labels["kubernetes.io/metadata.name"]; name != "n" || ns.Status.Phase != "Active" {
		t.Errorf("namespace %v", ns)
	}
	if fmt.Sprint(ns.Spec.Finalizers) != "[kubernetes]" {
		t.Errorf("finalizers %v", ns.Spec.Finalizers)
	}
}
