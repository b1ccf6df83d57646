package state

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

func pod(uid, node string) *framework.PodInfo {
	return framework.NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p" + uid, Uid: uid},
		Spec: &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{
			Resources: &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: "1"}}},
		}}},
	})
}

func node(name string) *corev1.Node { return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}} }

func cpu(s *State, snapshot *framework.Snapshot, name string) int64 {
	s.Update(snapshot)
	n := snapshot.Node(name)
	if n == nil {
		return -1
	}
	return n.Requested.MilliCPU
}

// spec: SCHED-3
func TestAssumed(t *testing.T) {
	s, snap := New(), framework.NewSnapshot()
	s.SetNode(node("n1"))
	s.SetNode(node("n2"))
	if !s.Assume(pod("1", ""), "n1") || s.Assume(pod("1", ""), "n2") {
		t.Error("a pod is assumed once")
	}
	if cpu(s, snap, "n1") != 1000 || cpu(s, snap, "n2") != 0 || s.Assumed() != 1 {
		t.Error("an assumed pod counts on its node")
	}
	s.SetPod(pod("1", "n2")) // somebody bound it elsewhere
	if cpu(s, snap, "n1") != 0 || cpu(s, snap, "n2") != 1000 || s.Assumed() != 0 {
		t.Error("the binding that is seen wins")
	}
	s.Forget(pod("1", ""))
	if cpu(s, snap, "n2") != 1000 {
		t.Error("a confirmed pod was forgotten")
	}
	s.RemoveNode("n2")
	if cpu(s, snap, "n2") != -1 {
		t.Error("a removed node is still offered")
	}
	s.SetNode(node("n2"))
	if cpu(s, snap, "n2") != 1000 {
		t.Error("the pods of a node that came back do not count")
	}
	if !s.RemovePod("1") || s.RemovePod("1") || cpu(s, snap, "n2") != 0 {
		t.Error("a removed pod counts")
	}
	s.SetPod(pod("2", "later"))
	if cpu(s, snap, "later") != -1 {
		t.Error("a node without an object is offered")
	}
	s.SetNode(node("later"))
	if cpu(s, snap, "later") != 1000 {
		t.Error("a pod that was seen before its node does not count")
	}
}

// A heartbeat renews a node's object and nothing else.
func TestRenewNode(t *testing.T) {
	s, snap := New(), framework.NewSnapshot()
	first, second := node("n1"), node("n1")
	first.Metadata.ResourceVersion, second.Metadata.ResourceVersion = "1", "2"
	s.SetNode(first)
	s.SetPod(pod("1", "n1"))
	s.Update(snap)
	s.RenewNode(second)
	s.RenewNode(node("unknown"))
	if cpu(s, snap, "n1") != 1000 || snap.Node("n1").Node != second || len(snap.Nodes()) != 1 {
		t.Errorf("renewed: %+v", snap.Node("n1"))
	}
}

// Updated step by step the snapshot is what it would be from scratch.
func TestIncrementalSnapshot(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s, snap := New(), framework.NewSnapshot()
		nodes, pods := map[string]bool{}, map[string]string{}
		for step := range 400 {
			n, uid := fmt.Sprint("n", rng.IntN(5)), fmt.Sprint(rng.IntN(20))
			switch rng.IntN(6) {
			case 0:
				s.SetNode(node(n))
				nodes[n] = true
			case 1:
				s.RemoveNode(n)
				delete(nodes, n)
			case 2:
				if s.Assume(pod(uid, ""), n) {
					pods[uid] = n
				}
			case 3:
				s.SetPod(pod(uid, n))
				pods[uid] = n
			case 4:
				s.RemovePod(uid)
				delete(pods, uid)
			default:
				s.Update(snap)
			}
			if step%10 != 0 {
				continue
			}
			s.Update(snap)
			want := map[string]int64{}
			for _, n := range pods {
				want[n] += 1000
			}
			if len(snap.Nodes()) != len(nodes) {
				t.Fatalf("seed %d: %d nodes, want %d", seed, len(snap.Nodes()), len(nodes))
			}
			for n := range nodes {
				if got := snap.Node(n).Requested.MilliCPU; got != want[n] {
					t.Fatalf("seed %d: %s has %d, want %d", seed, n, got, want[n])
				}
			}
		}
	}
}
