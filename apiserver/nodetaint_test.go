package apiserver_test

import (
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// A node has the taints that its state calls for when it appears, and one that a client makes is not ready, whatever
// it says. spec: NODE-5
func TestNewNodesHaveTheirTaints(t *testing.T) {
	c := start(t)
	ready := func(status string) *corev1.NodeStatus {
		return &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: status}}}
	}
	own := &corev1.Taint{Key: "team", Value: "x", Effect: "NoExecute"}
	for name, x := range map[string]struct {
		spec   *corev1.NodeSpec
		status *corev1.NodeStatus
		want   []string
	}{
		"never":   {nil, nil, nil},
		"ready":   {&corev1.NodeSpec{Taints: []*corev1.Taint{own}}, ready("True"), []string{"team:NoExecute"}},
		"unready": {nil, ready("False"), []string{"node.kubernetes.io/not-ready:NoSchedule"}},
		"cordoned": {&corev1.NodeSpec{Unschedulable: true}, ready("True"),
			[]string{"node.kubernetes.io/unschedulable:NoSchedule"}},
		"tainted": {&corev1.NodeSpec{Taints: []*corev1.Taint{
			own, {Key: "node.kubernetes.io/not-ready", Effect: "NoSchedule"},
		}}, ready("False"), []string{"team:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"}},
	} {
		n := newNode(name)
		n.Spec, n.Status = x.spec, x.status
		check := func(by client, want []string) {
			made := must(by.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: n}))(t)
			var got []string
			for _, taint := range made.GetSpec().GetTaints() {
				got = append(got, taint.GetKey()+":"+taint.GetEffect())
			}
			if !slices.Equal(got, want) {
				t.Errorf("node %s has taints %v, want %v", n.Metadata.Name, got, want)
			}
		}
		check(c.agent(name), x.want)
		if notReady := "node.kubernetes.io/not-ready:NoSchedule"; !slices.Contains(x.want, notReady) {
			x.want = append(x.want, notReady)
		}
		n.Metadata.Name = "of-a-client-" + name
		check(c.admin(), x.want)
	}
}
