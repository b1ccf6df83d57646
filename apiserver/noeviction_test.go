package apiserver_test

import (
	"context"
	"slices"
	"testing"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Nothing evicts pods from tainted nodes yet, so whoever asks for that is told, once: with a taint, and with the
// seconds of a toleration other than those that every pod gets. spec: OBJ-4
func TestEvictionIsWarnedAbout(t *testing.T) {
	c := start(t)
	pods, nodes := corev1.NewPodsClient(c.server.Conn(inproc.PassValues())),
		corev1.NewNodesClient(c.server.Conn(inproc.PassValues()))
	told := func(what string, do func(ctx context.Context) error, want ...string) {
		t.Helper()
		collected, warnings := warning.WithCollector(authn.WithUser(ctx(t), adminUser()))
		if err := do(collected); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := warnings.Texts(); !slices.Equal(got, want) {
			t.Errorf("%s: told %q, want %q", what, got, want)
		}
	}
	seconds := func(key string, s int64) *corev1.Toleration {
		return &corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &s}
	}
	create := func(name string, tolerations ...*corev1.Toleration) func(context.Context) error {
		return func(ctx context.Context) error {
			p := newPod(name)
			p.Spec.Tolerations = tolerations
			return second(pods.Create(ctx, &corev1.CreatePodRequest{Object: p}))
		}
	}
	const ignored = "].tolerationSeconds: kept but has no effect in this version: pods are not evicted from tainted nodes"
	told("a plain pod", create("plain"))
	told("for ever", create("ever", &corev1.Toleration{Key: "team", Operator: "Exists"}))
	told("what every pod gets", create("same", seconds("node.kubernetes.io/unreachable", 300)))
	told("a time", create("time", &corev1.Toleration{Key: "team", Operator: "Exists"},
		seconds("node.kubernetes.io/unreachable", 5)),
		"spec.tolerations[1"+ignored)
	told("the same again", func(ctx context.Context) error {
		p := clone(must(c.getPod("time"))(t))
		p.Metadata.Labels = map[string]string{"a": "b"}
		return second(pods.Update(ctx, &corev1.UpdatePodRequest{Object: p}))
	})
	told("another time", func(ctx context.Context) error {
		p := clone(must(c.getPod("time"))(t))
		p.Spec.Tolerations[1].TolerationSeconds = ptr(int64(4))
		return second(pods.Update(ctx, &corev1.UpdatePodRequest{Object: p}))
	}, "spec.tolerations[1"+ignored)

	c.register("n1")
	taint := func(taints ...*corev1.Taint) func(context.Context) error {
		return func(ctx context.Context) error {
			n := clone(must(nodes.Get(ctx, &metav1.GetRequest{Name: "n1"}))(t))
			n.Spec = &corev1.NodeSpec{Taints: taints}
			return second(nodes.Update(ctx, &corev1.UpdateNodeRequest{Object: n}))
		}
	}
	soft, hard := &corev1.Taint{Key: "team", Effect: "NoSchedule"}, &corev1.Taint{Key: "team", Effect: "NoExecute"}
	told("NoSchedule", taint(soft))
	told("NoExecute", taint(soft, hard),
		"spec.taints[1].effect: NoExecute keeps new pods away; pods that run are not evicted in this version")
	told("NoExecute still", taint(hard, soft))
	told("none", taint())
}
