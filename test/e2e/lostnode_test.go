package e2e_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// quickly makes a server notice lost nodes soon, on a slow machine too.
var quickly = []string{"--node-monitor-grace-period", "10s", "--node-monitor-period", "500ms"}

// node runs `monoplane node` and returns what it says.
func (c *cluster) node(t *testing.T, action, name string) string {
	t.Helper()
	r := monoplane(t, nil, "node", action, name, "--data-dir", c.dir)
	if r.code != 0 {
		t.Fatalf("monoplane node %s %s ended with code %d: %s%s", action, name, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// A node whose agent is stopped is seen to be lost, as kubectl shows it: its pods are NodeLost, new ones go elsewhere,
// and what does not tolerate that goes, once the agent is back to end it. The others go on.
//
// spec: NODE-3, NODE-5, LIFE-7, CLI-3, FENCE-1
func TestLostNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, append([]string{"--runtime", "fake", "--nodes", "3", "--node-name", "n"}, quickly...)...)
	p, k := c.pods(t, "default"), c.kubectl(t, "default")
	zero := int64(0)
	brief, stays := sleeper("brief"), sleeper("stays")
	brief.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &zero}}
	for _, pod := range []*corev1.Pod{brief, stays} {
		pod.Spec.NodeName = "n-1"
		p.create(t, pod)
		p.untilPhase(t, pod.Name, corev1.PodRunning)
	}
	if out := c.node(t, "stop", "n-1"); !strings.Contains(out, "has ended") {
		t.Errorf("stop: %s", out)
	}
	if out := c.node(t, "stop", "n-1"); !strings.Contains(out, "already") {
		t.Errorf("stop again: %s", out)
	}
	k.until(t, "get node n-1", `n-1 +NotReady `)
	k.until(t, "get pod stays", `stays +1/1 +NodeLost `)
	k.until(t, "describe node n-1", `(?s)unreachable:NoExecute.*Ready +Unknown .*NodeStatusUnknown.*NodeNotReady`)
	gone := p.until(t, "brief", "that its deletion has begun", func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil
	})
	if gone.Status.Phase != corev1.PodRunning || gone.DeletionGracePeriodSeconds == nil ||
		*gone.DeletionGracePeriodSeconds == 0 {
		t.Errorf("the evicted pod: %v", gone)
	}
	k.until(t, "get events", `TaintManagerEviction +pod/brief`)
	p.until(t, "brief", "what its deletion waits for", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Reason == "NodeLost" && strings.Contains(c.Message, "its deletion waits until the node is back")
		})
	})

	if out := c.node(t, "start", "n-1"); !strings.Contains(out, "is back") {
		t.Errorf("start: %s", out)
	}
	p.untilGone(t, gone)
	k.until(t, "get node n-1", `n-1 +Ready `)
	k.until(t, "get pod stays", `stays +1/1 +Running +0 `)
	if r := monoplane(t, nil, "node", "stop", "other", "--data-dir", c.dir); r.code == 0 ||
		!strings.Contains(r.stderr, "n-0, n-1, n-2") {
		t.Errorf("a node that is not there: %d %s", r.code, r.stderr)
	}
}

// The processes of a real node go on while its agent is stopped, and are adopted when it is back. A cluster's only
// node is not evicted: it is more likely the control plane that is cut off.
//
// spec: NODE-2, NODE-3
func TestAgentIsStopped(t *testing.T) {
	t.Parallel()
	c := newCluster(t, append([]string{"--node-name", "n"}, quickly...)...)
	p, k := c.pods(t, "default"), c.kubectl(t, "default")
	before := p.run(t, sleeper("a"))
	c.node(t, "stop", "n")
	k.until(t, "get pod a", `a +1/1 +NodeLost `)
	c.node(t, "start", "n")
	k.until(t, "get pod a", `a +1/1 +Running +0 `)
	after := p.untilPhase(t, "a", corev1.PodRunning)
	if a, b := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; after.UID != before.UID ||
		a.ContainerID != b.ContainerID || after.DeletionTimestamp != nil {
		t.Errorf("before: %v\nafter: %v", before.Status, after.Status)
	}
	n, err := c.client(t).CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			t.Errorf("the only node has taint %v", taint)
		}
	}
	// Who stops the server stops the pods of the node, too: the end of the test sees to it that nothing is left.
	c.node(t, "stop", "n")
	if r := monoplane(t, nil, "down", "--data-dir", c.dir); r.code != 0 {
		t.Errorf("down: code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if code := c.waitExit(t); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}
}
