package monoplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
)

// silence stops the agent of a node.
func silence(t *testing.T, c *monoplane.Cluster, node string) {
	t.Helper()
	if stopped, err := c.StopNode(t.Context(), node); err != nil || !stopped {
		t.Fatalf("stop node %s: it worked: %t, %v", node, stopped, err)
	}
}

// wake starts it again.
func wake(t *testing.T, c *monoplane.Cluster, node string) {
	t.Helper()
	if started, err := c.StartNode(t.Context(), node); err != nil || !started {
		t.Fatalf("start node %s: it was silent: %t, %v", node, started, err)
	}
}

// readiness is the status of a node's condition Ready, and its reason.
func readiness(n *corev1.Node) string {
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() + " " + c.GetReason()
		}
	}
	return ""
}

// taintsOf returns the taints of a node, without the prefix that all have.
func taintsOf(n *corev1.Node) string {
	var all []string
	for _, t := range n.GetSpec().GetTaints() {
		all = append(all, strings.TrimPrefix(t.GetKey(), "node.kubernetes.io/")+":"+t.GetEffect())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// conditionOf returns a condition of a pod as its status and reason.
func conditionOf(p *corev1.Pod, kind string) string {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return strings.TrimSpace(c.GetStatus() + " " + c.GetReason())
		}
	}
	return ""
}

// tolerate tolerates that a node is lost for so long; for ever below 0.
func tolerate(seconds int64) *corev1.Toleration {
	l := &corev1.Toleration{Operator: "Exists", Effect: "NoExecute"}
	if seconds >= 0 {
		l.TolerationSeconds = proto.Int64(seconds)
	}
	return l
}

// A node whose agent falls silent is lost after its grace: its conditions say that nobody knows how it is, its pods
// are not ready and go on all the same, new pods go elsewhere. Pods are evicted when they have not tolerated that for
// longer, gracefully: none is gone before its agent has ended it, which is when the agent is back, with the whole
// grace. The others have never been disturbed.
//
// spec: NODE-3, NODE-5, LIFE-7, LIFE-11, CLI-3, DISR-4, DEL-7, DEL-10
func TestNodeIsLostAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 3})
		api := c.Client()
		stubborn := on("node-0", "stubborn", tolerate(30))
		stubborn.Metadata.Annotations = map[string]string{"fake.monoplane.dev/ignore-term": "true"}
		createRunning(t, api, on("node-0", "plain"), stubborn, on("node-0", "stays", tolerate(-1)),
			on("node-0", "brief", tolerate(0)), on("node-1", "elsewhere"))
		uid := getPod(t, api, "stays").GetMetadata().GetUid()

		begin := time.Now()
		silence(t, c, "node-0")
		if err := c.Ready(t.Context()); err != nil {
			t.Errorf("the cluster is not ready without the node: %v", err)
		}
		time.Sleep(40 * time.Second)
		if got := readiness(getNode(t, api, "node-0")); got != "True KubeletReady" {
			t.Errorf("after 40 s the node is %s", got)
		}
		time.Sleep(25 * time.Second)
		n := getNode(t, api, "node-0")
		for _, kind := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
			for _, cond := range n.GetStatus().GetConditions() {
				if cond.GetType() == kind && (cond.GetStatus() != "Unknown" || cond.GetReason() != "NodeStatusUnknown" ||
					value.GoTime(cond.GetLastTransitionTime()).Sub(begin) < 40*time.Second) {
					t.Errorf("condition %v", cond)
				}
			}
		}
		if got := taintsOf(n); got != "unreachable:NoExecute unreachable:NoSchedule" {
			t.Errorf("taints: %s", got)
		}
		for name, want := range map[string]string{"plain": "False NodeLost", "stubborn": "False NodeLost",
			"stays": "False NodeLost", "elsewhere": "True"} {
			p := getPod(t, api, name)
			if got := conditionOf(p, "Ready"); got != want || !running(p) || p.GetMetadata().GetDeletionTimestamp() != nil {
				t.Errorf("pod %s is %s, Ready %s, deleted %v; want %s", name, p.GetStatus().GetPhase(), got,
					p.GetMetadata().GetDeletionTimestamp(), want)
			}
		}
		if p := getPod(t, api, "brief"); p.GetMetadata().GetDeletionTimestamp() == nil ||
			conditionOf(p, "DisruptionTarget") != "True DeletionByTaintManager" {
			t.Errorf("the pod that tolerates it for no time is %v", p)
		}
		for i := range 6 {
			name := fmt.Sprintf("new-%d", i)
			createRunning(t, api, newPod(name))
			if node := getPod(t, api, name).GetSpec().GetNodeName(); node == "node-0" {
				t.Errorf("pod %s was bound to the lost node", name)
			}
		}
		time.Sleep(30 * time.Second)
		if p := getPod(t, api, "stubborn"); p.GetMetadata().GetDeletionTimestamp() == nil || !running(p) {
			t.Errorf("after its 30 s the pod is %v", p)
		}
		time.Sleep(6 * time.Minute)
		for _, name := range []string{"plain", "stubborn", "brief"} {
			p := getPod(t, api, name)
			if p.GetMetadata().GetDeletionTimestamp() == nil || p.GetMetadata().GetDeletionGracePeriodSeconds() != 30 ||
				!running(p) || conditionOf(p, "DisruptionTarget") != "True DeletionByTaintManager" {
				t.Errorf("pod %s is %v", name, p)
			}
		}

		begin = time.Now()
		wake(t, c, "node-0")
		if err := waitFor(t.Context(), api, "plain", gone); err != nil {
			t.Fatal(err)
		}
		if err := waitFor(t.Context(), api, "stubborn", gone); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 30*time.Second || took > 45*time.Second {
			t.Errorf("the pod that ignores TERM was ended after %v; it had 30 s", took)
		}
		n = getNode(t, api, "node-0")
		if readiness(n) != "True KubeletReady" || taintsOf(n) != "" {
			t.Errorf("the node that is back is %s, with taints %s", readiness(n), taintsOf(n))
		}
		p := getPod(t, api, "stays")
		if p.GetMetadata().GetUid() != uid || conditionOf(p, "Ready") != "True" || restarts(p) != 0 ||
			conditionOf(p, "DisruptionTarget") != "" {
			t.Errorf("the pod that stays is %v", p)
		}
		reasons := eventReasons(t, api)
		for _, want := range []string{"node-0 NodeNotReady", "plain NodeNotReady", "plain TaintManagerEviction",
			"brief TaintManagerEviction"} {
			if !slices.Contains(reasons, want) {
				t.Errorf("events %v lack %q", reasons, want)
			}
		}
		if slices.Contains(reasons, "stays TaintManagerEviction") || slices.Contains(reasons, "elsewhere NodeNotReady") {
			t.Errorf("events of pods that nothing happened to: %v", reasons)
		}
	})
}

// eventReasons returns the events as the name of what they are about and their reason.
func eventReasons(t *testing.T, c *client.Client) []string {
	t.Helper()
	list, err := c.Events.List(t.Context(), &metav1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.GetItems() {
		out = append(out, e.GetInvolvedObject().GetName()+" "+e.GetReason())
	}
	return out
}
