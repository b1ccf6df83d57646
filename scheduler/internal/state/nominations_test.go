package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"monoplane.dev/scheduler/framework"
)

// kept says for whom room is kept on a node: "uid uid".
func kept(s *State, snapshot *framework.Snapshot, node string) string {
	s.Update(snapshot)
	n := snapshot.Node(node)
	if n == nil {
		return "no node"
	}
	var uids []string
	for _, p := range n.Nominated {
		uids = append(uids, p.UID)
	}
	slices.Sort(uids)
	return strings.Join(uids, " ")
}

// spec: PREEMPT-2
func TestNominations(t *testing.T) {
	s, snap := New(), framework.NewSnapshot()
	s.SetNode(node("n1"))
	s.SetNode(node("n2"))
	want := func(when, one, two string, on1, on2 int64) {
		t.Helper()
		if k1, k2 := kept(s, snap, "n1"), kept(s, snap, "n2"); k1 != one || k2 != two {
			t.Errorf("%s: room is kept for %q and %q, want %q and %q", when, k1, k2, one, two)
		}
		if c1, c2 := cpu(s, snap, "n1"), cpu(s, snap, "n2"); c1 != on1 || c2 != on2 {
			t.Errorf("%s: %d and %d in use, want %d and %d", when, c1, c2, on1, on2)
		}
	}
	p := pod("1", "")
	s.Nominate(p, "n1")
	want("nominated", "1", "", 0, 0)
	if n := snap.NominatedNode("1"); n == nil || n.Name != "n1" {
		t.Errorf("the snapshot says %v", n)
	}
	s.Nominate(p, "n2")
	want("elsewhere", "", "1", 0, 0)
	if !s.Assume(p, "n1") {
		t.Error("it cannot be assumed")
	}
	want("assumed on another node", "", "", 1000, 0)
	s.Forget(p)
	want("the binding failed", "", "1", 0, 0)
	s.Assume(p, "n2")
	want("assumed there", "", "", 0, 1000)
	s.Nominate(p, "n1")
	want("nominated while it is assumed", "", "", 0, 1000)
	s.Forget(p)
	want("and forgotten", "1", "", 0, 0)
	newer := pod("1", "")
	s.RenewNominated(newer)
	want("in a newer state", "1", "", 0, 0)
	if snap.Node("n1").Nominated[0] != newer || s.NominatedTo("n1")[0] != newer {
		t.Error("the older state is kept")
	}
	s.RenewNominated(pod("2", ""))
	want("a stranger is renewed", "1", "", 0, 0)
	s.SetPod(pod("1", "n2"))
	want("bound elsewhere", "", "", 0, 1000)
	if s.Nominated("1") != "" || snap.NominatedNode("1") != nil {
		t.Error("a bound pod is nominated")
	}
	s.Nominate(pod("3", ""), "n1")
	if !s.RemovePod("3") || s.RemovePod("3") {
		t.Error("the end of a nominated pod gives room back, once")
	}
	want("deleted", "", "", 0, 1000)
	s.Nominate(pod("4", ""), "later")
	s.SetNode(node("later"))
	if got := kept(s, snap, "later"); got != "4" {
		t.Errorf("on a node that came later room is kept for %q", got)
	}
	s.RemoveNode("later")
	if got := kept(s, snap, "later"); got != "no node" || snap.NominatedNode("4") != nil {
		t.Errorf("on a node that went: %q", got)
	}
	s.Nominate(pod("4", ""), "")
	if len(s.nodes) != 2 {
		t.Errorf("%d nodes are left", len(s.nodes))
	}
}

// A pod is doomed until it is not any more, whatever else happens to it.
// spec: PREEMPT-4
func TestDoom(t *testing.T) {
	s, snap := New(), framework.NewSnapshot()
	s.SetNode(node("n1"))
	s.SetPod(pod("1", "n1"))
	doomed := func() bool {
		s.Update(snap)
		return snap.Node("n1").Pods()[0].Doomed
	}
	s.Doom("1", true)
	s.Doom("nobody", true)
	if !doomed() {
		t.Error("not doomed")
	}
	s.SetPod(pod("1", "n1"))
	if !doomed() {
		t.Error("an update saves it")
	}
	s.Renew(pod("1", "n1").Pod)
	if !doomed() {
		t.Error("a status update saves it")
	}
	if s.Doom("1", false); doomed() {
		t.Error("doomed for ever")
	}
}

// Whatever happens in whatever order, a pod takes room exactly once: as a pod where it is assumed or bound, else where
// it is nominated. The snapshot, updated step by step, says the same as the state.
//
// spec: PREEMPT-2, SCHED-3
func TestRoomIsKeptOnce(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		s, snap := New(), framework.NewSnapshot()
		nodes := []string{"n0", "n1", "n2", "n3"}
		there := map[string]bool{}
		type place struct {
			node    string
			assumed bool
		}
		pods, nominated := map[string]place{}, map[string]string{}
		for step := range 500 {
			uid, n := fmt.Sprint(rng.IntN(12)), nodes[rng.IntN(len(nodes))]
			switch rng.IntN(10) {
			case 0:
				s.SetNode(node(n))
				there[n] = true
			case 1:
				s.RemoveNode(n)
				delete(there, n)
			case 2, 3:
				s.Nominate(pod(uid, ""), n)
				nominated[uid] = n
			case 4:
				s.Nominate(pod(uid, ""), "")
				delete(nominated, uid)
			case 5:
				if s.Assume(pod(uid, ""), n) {
					pods[uid] = place{n, true}
				}
			case 6:
				if s.Forget(pod(uid, "")); pods[uid].assumed {
					delete(pods, uid)
				}
			case 7:
				if rng.IntN(2) == 0 {
					s.SetPod(pod(uid, n))
					pods[uid] = place{n, false}
				} else {
					s.RemovePod(uid)
					delete(pods, uid)
				}
				delete(nominated, uid)
			case 8:
				s.RenewNominated(pod(uid, ""))
				s.Doom(uid, rng.IntN(2) == 0)
			default:
				s.Update(snap)
			}
			if step%5 != 0 {
				continue
			}
			for _, n := range nodes {
				want := "no node"
				used := int64(-1)
				if there[n] {
					var uids []string
					used = 0
					for uid, at := range nominated {
						if _, counted := pods[uid]; at == n && !counted {
							uids = append(uids, uid)
						}
					}
					for _, p := range pods {
						if p.node == n {
							used += 1000
						}
					}
					slices.Sort(uids)
					want = strings.Join(uids, " ")
				}
				if got := kept(s, snap, n); got != want {
					t.Fatalf("seed %d, step %d: on %s room is kept for %q, want %q", seed, step, n, got, want)
				}
				if got := cpu(s, snap, n); got != used {
					t.Fatalf("seed %d, step %d: on %s %d are in use, want %d", seed, step, n, got, used)
				}
			}
			for uid := range 12 {
				uid := fmt.Sprint(uid)
				want := nominated[uid]
				if got := s.Nominated(uid); got != want {
					t.Fatalf("seed %d, step %d: %s is nominated to %q, want %q", seed, step, uid, got, want)
				}
				if n := snap.NominatedNode(uid); (n != nil) != there[want] || n != nil && n.Name != want {
					t.Fatalf("seed %d, step %d: the snapshot nominates %s to %v, want %q", seed, step, uid, n, want)
				}
			}
		}
	}
}
