package apiserver_test

import (
	"crypto/rand"
	"maps"
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// condition is what a binding asks of the pod and the node.
type condition struct{ podRevision, nodeUID, nodeRevision string }

func (c *cluster) bindIf(p *corev1.Pod, node string, if_ condition, dryRun ...string) error {
	_, err := c.scheduler().Pods.Bind(ctx(c.t), &corev1rpc.BindPodRequest{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, DryRun: dryRun,
		Object: &corev1.Binding{
			Metadata: &metav1.ObjectMeta{Uid: p.Metadata.Uid, ResourceVersion: if_.podRevision},
			Target:   &corev1.ObjectReference{Kind: "Node", Name: node, Uid: if_.nodeUID, ResourceVersion: if_.nodeRevision},
		},
	})
	return err
}

// touch writes the node without changing anything that matters.
func (c *cluster) touch(name string) {
	c.t.Helper()
	next := clone(c.node(name))
	next.Metadata.Annotations = map[string]string{"example.com/at": next.Metadata.ResourceVersion}
	must(c.admin().Nodes.Update(ctx(c.t), &corev1rpc.UpdateNodeRequest{Object: next}))(c.t)
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	return must(c.admin().Nodes.Get(ctx(c.t), &metav1.GetRequest{Name: name}))(c.t)
}

// A binding holds for the pod and the node that it names by uid and revision. spec: SCHED-3
func TestBindPreconditions(t *testing.T) {
	c := start(t)
	c.register("n1")
	old := c.node("n1").Metadata
	c.touch("n1")
	node := c.node("n1").Metadata
	before := c.createPod(newPod("web"))
	relabelled := clone(before)
	relabelled.Metadata.Labels = map[string]string{"a": "b"}
	pod := must(c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: relabelled}))(t)
	revision := pod.Metadata.ResourceVersion

	for _, x := range []struct {
		name string
		if_  condition
		want string
	}{
		{"another node of the name", condition{nodeUID: "other"},
			`nodes "n1": Precondition failed: UID in precondition: other, UID in object meta: ` + node.Uid},
		{"another node of the name, at the right revision", condition{nodeUID: "other", nodeRevision: node.ResourceVersion},
			"UID in precondition"},
		{"an older node", condition{nodeRevision: old.ResourceVersion},
			`nodes "n1": Precondition failed: ResourceVersion in precondition: ` +
				old.ResourceVersion + ", ResourceVersion in object meta: " + node.ResourceVersion},
		{"an older node of the right uid", condition{nodeUID: node.Uid, nodeRevision: old.ResourceVersion},
			"ResourceVersion in precondition"},
		{"an older pod", condition{podRevision: before.Metadata.ResourceVersion},
			`pods "web": Precondition failed: ResourceVersion in precondition: ` +
				before.Metadata.ResourceVersion + ", ResourceVersion in object meta: " + revision},
		{"a right pod and an older node", condition{podRevision: revision, nodeRevision: old.ResourceVersion}, `nodes "n1"`},
		{"a revision that is none", condition{nodeRevision: "x"}, `nodes "n1"`},
	} {
		for _, dryRun := range [][]string{nil, {"All"}} {
			err := c.bindIf(pod, "n1", x.if_, dryRun...)
			if !apierrors.Is(err, apierrors.Conflict) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s (dry run %v): %v, want %q", x.name, dryRun, err, x.want)
			}
		}
	}
	if p := must(c.getPod("web"))(t); p.Spec.NodeName != "" || p.Metadata.ResourceVersion != revision {
		t.Errorf("a refused binding changed the pod: %v", p)
	}
	right := condition{revision, node.Uid, node.ResourceVersion}
	if err := c.bindIf(pod, "n1", right, "All"); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if err := c.bindIf(pod, "n1", right); err != nil {
		t.Fatal(err)
	}
	if p := must(c.getPod("web"))(t); p.Spec.NodeName != "n1" {
		t.Errorf("bound: %v", p)
	}
}

// A pod has the labels that say where its node is, however it came there, and those of its binding.
//
// spec: SCHED-3
func TestLabelsOfThePlace(t *testing.T) {
	c := start(t)
	c.register("n1")
	const zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
	n := clone(c.node("n1"))
	n.Metadata.Labels = map[string]string{zone: "z1", region: "r1", "kubernetes.io/os": "linux"}
	must(c.admin().Nodes.Update(ctx(t), &corev1rpc.UpdateNodeRequest{Object: n}))(t)
	labelled := func(name string) *corev1.Pod {
		p := newPod(name)
		p.Metadata.Labels = map[string]string{"app": "a", zone: "elsewhere"}
		return p
	}
	check := func(how string, p *corev1.Pod, want map[string]string) {
		t.Helper()
		if !maps.Equal(p.Metadata.Labels, want) {
			t.Errorf("%s: %v, want %v", how, p.Metadata.Labels, want)
		}
	}

	made := c.createPod(labelled("bound"))
	check("not bound", made, map[string]string{"app": "a", zone: "elsewhere"})
	must(c.scheduler().Pods.Bind(ctx(t), &corev1rpc.BindPodRequest{
		Namespace: "default", Name: "bound",
		Object: &corev1.Binding{
			Metadata: &metav1.ObjectMeta{Uid: made.Metadata.Uid, Labels: map[string]string{"app": "b", zone: "binding"}},
			Target:   &corev1.ObjectReference{Kind: "Node", Name: "n1"},
		},
	}))(t)
	check("bound", must(c.getPod("bound"))(t), map[string]string{"app": "b", zone: "z1", region: "r1"})

	there := labelled("there")
	there.Spec.NodeName = "n1"
	check("created there", c.createPod(there), map[string]string{"app": "a", zone: "z1", region: "r1"})
	there = labelled("nowhere")
	there.Spec.NodeName = "n2"
	check("created on a node that is not there", c.createPod(there), map[string]string{"app": "a", zone: "elsewhere"})
}

// between is randomness that runs a function at its next use, once. A binding uses randomness after it has read the
// node and before it commits.
type between struct{ f func() }

func (b *between) Read(p []byte) (int, error) {
	if f := b.f; f != nil {
		b.f = nil
		f()
	}
	return rand.Read(p)
}

// The preconditions are compared in the transaction itself: what changes after the binding was judged counts.
// spec: SCHED-3
func TestBindPreconditionsInTheTransaction(t *testing.T) {
	race := &between{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Rand = race })
	c.register("n1")
	replace := func() {
		must(c.admin().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"}))(t)
		c.register("n1")
	}
	for _, x := range []struct {
		name   string
		change func()
		asks   func(pod *corev1.Pod, node *corev1.Node) condition
		lost   bool
	}{
		{"the node changes, its revision was named", func() { c.touch("n1") },
			func(_ *corev1.Pod, n *corev1.Node) condition {
				return condition{nodeRevision: n.Metadata.ResourceVersion}
			}, true},
		{"the node changes, its uid was named", func() { c.touch("n1") },
			func(_ *corev1.Pod, n *corev1.Node) condition { return condition{nodeUID: n.Metadata.Uid} }, false},
		{"the node is replaced, its uid was named", replace,
			func(_ *corev1.Pod, n *corev1.Node) condition { return condition{nodeUID: n.Metadata.Uid} }, true},
		{"the node is replaced, nothing was named", replace,
			func(*corev1.Pod, *corev1.Node) condition { return condition{} }, false},
		{"the pod changes, its revision was named", nil,
			func(p *corev1.Pod, _ *corev1.Node) condition {
				return condition{podRevision: p.Metadata.ResourceVersion}
			}, true},
		{"the pod changes, nothing was named", nil,
			func(*corev1.Pod, *corev1.Node) condition { return condition{} }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := c.createPod(newPod("web"))
			defer func() { must(deletePod(t, c.admin(), p, ptr(int64(0)), false))(t) }()
			n, ran := c.node("n1"), false
			race.f = func() {
				ran = true
				if x.change != nil {
					x.change()
					return
				}
				next := clone(p)
				next.Metadata.Labels = map[string]string{"a": "b"}
				must(c.admin().Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: next}))(t)
			}
			err := c.bindIf(p, "n1", x.asks(p, n))
			switch {
			case !ran:
				t.Error("nothing was tested")
			case x.lost && (!apierrors.Is(err, apierrors.Conflict) || !strings.Contains(err.Error(), "Precondition failed")):
				t.Errorf("got %v", err)
			case !x.lost && err != nil:
				t.Errorf("the binding did not follow: %v", err)
			}
			if bound := must(c.getPod("web"))(t).Spec.NodeName != ""; bound == x.lost {
				t.Errorf("bound: %v", bound)
			}
		})
	}
}
