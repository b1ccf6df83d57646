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

// A server that was stopped for an hour finds nobody lost: each agent has its whole grace to come back.
//
// spec: NODE-3
func TestServerComesBackAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cfg := monoplane.Config{Nodes: 2, DataDir: dir}
		c := start(t, cfg)
		createRunning(t, c.Client(), on("node-0", "a", tolerate(0)), on("node-1", "b", tolerate(0)))
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		c = start(t, cfg)
		for range 24 {
			time.Sleep(5 * time.Second)
			for _, name := range []string{"node-0", "node-1"} {
				if n := getNode(t, c.Client(), name); readiness(n) != "True KubeletReady" || taintsOf(n) != "" {
					t.Fatalf("node %s is %s, with taints %s", name, readiness(n), taintsOf(n))
				}
			}
		}
		for _, name := range []string{"a", "b"} {
			if p := getPod(t, c.Client(), name); p.GetMetadata().GetDeletionTimestamp() != nil || !running(p) {
				t.Errorf("pod %s is %v", name, p)
			}
		}
	})
}

// While a zone is lost its nodes are evicted one after the other; when the last node of the last zone goes, too,
// nobody is evicted any more, whatever the tolerations, until some node has come back and the others had their time
// to.
//
// spec: NODE-3
func TestZonesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 4, Zones: 2})
		api := c.Client()
		var names []string
		for i := range 4 {
			node := fmt.Sprintf("node-%d", i)
			names = append(names, "pod-"+node)
			createRunning(t, api, on(node, "pod-"+node, tolerate(100)))
		}
		evicted := func() (out []string) {
			for _, name := range names {
				if p := getPod(t, api, name); p.GetMetadata().GetDeletionTimestamp() != nil {
					out = append(out, strings.TrimPrefix(name, "pod-"))
				}
			}
			return out
		}
		silence(t, c, "node-0")
		silence(t, c, "node-2")
		time.Sleep(3 * time.Minute) // a minute to be lost, up to 10 s of waiting, 100 s that are tolerated
		if got := evicted(); !slices.Equal(got, []string{"node-0", "node-2"}) {
			t.Errorf("with one zone lost, pods of %v are evicted", got)
		}
		silence(t, c, "node-1")
		silence(t, c, "node-3")
		time.Sleep(time.Hour)
		if got := evicted(); len(got) != 2 {
			t.Errorf("with everything lost, pods of %v are evicted", got)
		}
		for i := range 4 {
			if n := getNode(t, api, fmt.Sprintf("node-%d", i)); taintsOf(n) != "unreachable:NoSchedule" {
				t.Errorf("node %d has taints %s", i, taintsOf(n))
			}
		}
		wake(t, c, "node-1")
		time.Sleep(2 * time.Minute)
		if got := evicted(); len(got) != 2 {
			t.Errorf("2 min after one node is back, pods of %v are evicted", got)
		}
		time.Sleep(2 * time.Minute)
		if got := evicted(); !slices.Equal(got, []string{"node-0", "node-2", "node-3"}) {
			t.Errorf("4 min after one node is back, pods of %v are evicted", got)
		}
		wake(t, c, "node-0")
		wake(t, c, "node-3")
		time.Sleep(time.Minute)
		for name, want := range map[string]bool{names[0]: false, names[1]: true, names[3]: false} {
			if p := getPod(t, api, name); (p != nil) != want {
				t.Errorf("pod %s is there: %t, want %t", name, p != nil, want)
			}
		}
	})
}

// A cluster that was stopped in order, so that its node says that it is not ready, is ready again only when the node
// takes pods: the first one starts at once.
func TestReadyMeansThatNodesTakePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := monoplane.Config{DataDir: t.TempDir()}
		c := start(t, cfg)
		slow := newPod("slow")
		slow.Metadata.Annotations = map[string]string{"fake.monoplane.dev/ignore-term": "true"}
		createRunning(t, c.Client(), slow)
		stopped := make(chan error, 1)
		go func() { stopped <- c.StopPods(t.Context(), nil) }()
		time.Sleep(20 * time.Second)
		if n := getNode(t, c.Client(), "node"); readiness(n) != "False KubeletNotReady" ||
			taintsOf(n) != "not-ready:NoSchedule" {
			t.Errorf("while its pods stop the node is %s, with taints %s", readiness(n), taintsOf(n))
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = start(t, cfg)
		if got := taintsOf(getNode(t, c.Client(), "node")); got != "" {
			t.Errorf("the cluster is ready, and its node has taints %s", got)
		}
		begin := time.Now()
		createRunning(t, c.Client(), newPod("first"))
		if took := time.Since(begin); took > 500*time.Millisecond {
			t.Errorf("the first pod took %v to run", took)
		}
	})
}
