package scheduler_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/test/objects"
)

// A pod that waits for one in a namespace with a label is placed when the namespace gets it, and a later one may not
// follow when the namespace has lost it.
//
// spec: SCHED-2, SCHED-4
func TestNamespaceLabels(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		ctx := context.Background()
		namespace, err := w.c.Namespaces.Get(ctx, &metav1.GetRequest{Name: "ns"})
		w.must(nil, err)
		team := func(value string) {
			n := object.Clone(namespace)
			n.Metadata.ResourceVersion, n.Metadata.Labels = "", map[string]string{"team": value}
			namespace, err = w.c.Namespaces.Update(ctx, &corev1rpc.UpdateNamespaceRequest{Object: n})
			w.must(nil, err)
			synctest.Wait() // it comes by another watch than pods do
		}
		waiting := func(name string) *corev1.Pod {
			p := newPod(name)
			objects.AddPodTerm(p, "near", "kubernetes.io/hostname:app=web")
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector =
				&metav1.LabelSelector{MatchLabels: map[string]string{"team": "1"}}
			return p
		}
		w.addNode(newNode("n1"))
		w.addNode(newNode("n2"))
		web := newPod("web")
		web.Metadata.Labels = map[string]string{"app": "web"}
		w.addPod(web)
		if w.nodeOf("web") == "" {
			t.Fatal("web has no node")
		}
		w.addPod(waiting("first"))
		if on := w.nodeOf("first"); on != "" {
			t.Fatalf("first is on %s before the namespace has the label", on)
		}
		team("2")
		time.Sleep(15 * time.Second) // virtual; the pod is not tried
		if on := w.nodeOf("first"); on != "" {
			t.Fatalf("first is on %s with another label", on)
		}
		team("1")
		time.Sleep(15 * time.Second) // virtual
		if on := w.nodeOf("first"); on != w.nodeOf("web") {
			t.Errorf("first is on %q, want %s", on, w.nodeOf("web"))
		}
		team("2")
		w.addPod(waiting("late"))
		if on := w.nodeOf("late"); on != "" {
			t.Errorf("late is on %s after the namespace lost the label", on)
		}
	})
}
