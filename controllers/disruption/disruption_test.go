package disruption_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
	"monoplane.dev/codec/value"
	rules "monoplane.dev/rules/disruption"
)

// Whatever happens to pods and budgets is counted. spec: DISR-1, DISR-5
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.budget("b", &policyv1.PodDisruptionBudgetSpec{MinAvailable: number(2)})
		w.counted("b", "0/2 of 0, 0 allowed, InsufficientPods")
		if w.told("b", "NoPods") == 0 {
			t.Error("nobody was told that a budget selects nothing")
		}
		w.pod("web-0", true, nil)
		w.pod("web-1", true, nil)
		w.counted("b", "2/2 of 2, 0 allowed, InsufficientPods")
		p := w.pod("web-2", false, nil)
		w.counted("b", "2/2 of 3, 0 allowed, InsufficientPods")
		w.ready(p, true)
		w.counted("b", "3/2 of 3, 1 allowed, SufficientPods")
		w.ready(p, false) // an involuntary disruption counts
		w.counted("b", "2/2 of 3, 0 allowed, InsufficientPods")
		w.ready(p, true)
		w.counted("b", "3/2 of 3, 1 allowed, SufficientPods")

		w.edit("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = number(1) })
		w.counted("b", "3/1 of 3, 2 allowed, SufficientPods")
		w.edit("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.Selector.MatchLabels["app"] = "db" })
		w.counted("b", "0/1 of 0, 0 allowed, InsufficientPods")
		w.edit("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.Selector.MatchLabels["app"] = "web" })
		w.counted("b", "3/1 of 3, 2 allowed, SufficientPods")

		other := proto.CloneOf(w.getPod("web-2"))
		other.Metadata.Labels["app"] = "db"
		_, err := w.admin.Pods.Update(t.Context(), &corev1rpc.UpdatePodRequest{Object: other})
		w.must(err)
		w.counted("b", "2/1 of 2, 1 allowed, SufficientPods")

		// A pod that is deleted counts no more, also while it ends. Deletions are not limited.
		_, err = w.admin.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "web-0"})
		w.must(err)
		w.counted("b", "1/1 of 2, 0 allowed, InsufficientPods")
		w.remove("web-0")
		w.counted("b", "1/1 of 1, 0 allowed, InsufficientPods")
		w.remove("web-1")
		w.counted("b", "0/1 of 0, 0 allowed, InsufficientPods")
		w.stop()
	})
}

// Percentages and maxUnavailable are those of the replicas that there should be. spec: DISR-1
func TestCountsByScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		deployment := w.deployment("web", 7)
		old, young := w.replicaSet("old", 3, deployment), w.replicaSet("new", 4, deployment)
		plain := w.replicaSet("plain", 2, nil)
		for i, owner := range []*metav1.OwnerReference{old, old, young, young} {
			w.pod("web-"+string(rune('a'+i)), true, owner)
		}
		w.budget("percent", &policyv1.PodDisruptionBudgetSpec{MinAvailable: text("30%")})
		w.counted("percent", "4/3 of 7, 1 allowed, SufficientPods") // 2.1, rounded up
		w.edit("percent", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = text("100%") })
		w.counted("percent", "4/7 of 7, 0 allowed, InsufficientPods")
		w.edit("percent", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable, s.MaxUnavailable = nil, number(4) })
		w.counted("percent", "4/3 of 7, 1 allowed, SufficientPods")
		w.edit("percent", func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = text("50%") })
		w.counted("percent", "4/3 of 7, 1 allowed, SufficientPods") // 7 less 3.5, rounded up
		w.edit("percent", func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = number(20) })
		w.counted("percent", "4/0 of 7, 4 allowed, SufficientPods")

		// Each controller counts once, and each of several counts.
		w.pod("plain-a", true, plain)
		w.counted("percent", "5/0 of 9, 5 allowed, SufficientPods")

		// A ReplicaSet counts itself when its Deployment is not there, or another one has its name.
		w.remove("plain-a")
		stranger := proto.CloneOf(deployment)
		stranger.Uid = "other"
		w.pod("orphan-a", true, w.replicaSet("orphan", 5, stranger))
		w.counted("percent", "5/0 of 12, 5 allowed, SufficientPods")

		// Pods without a controller cannot be counted, of which the owner is told, and are healthy all the same.
		w.pod("alone", true, nil)
		w.counted("percent", "6/0 of 12, 6 allowed, SufficientPods")
		if w.told("percent", "UnmanagedPods") == 0 {
			t.Error("nobody was told of a pod without a controller")
		}
		w.stop()
	})
}

// While it cannot be told how many pods there should be, nothing may be evicted. spec: DISR-1, DISR-2
func TestCannotBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		set := w.replicaSet("web", 2, nil)
		w.pod("web-0", true, set)
		w.pod("web-1", true, set)
		w.budget("b", &policyv1.PodDisruptionBudgetSpec{MaxUnavailable: number(1)})
		w.counted("b", "2/1 of 2, 1 allowed, SufficientPods")
		for _, c := range []struct {
			owner *metav1.OwnerReference
			why   string
		}{
			{&metav1.OwnerReference{ApiVersion: "v1", Kind: "ConfigMap", Name: "c", Uid: "c", Controller: proto.Bool(true)},
				"configmaps does not implement the scale subresource"},
			{&metav1.OwnerReference{ApiVersion: "example.com/v1", Kind: "Web", Name: "c", Uid: "c",
				Controller: proto.Bool(true)}, `no matches for kind "Web" in version "example.com/v1"`},
			{&metav1.OwnerReference{ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "gone", Uid: "c",
				Controller: proto.Bool(true)}, `found no controllers for pod "strange"`},
		} {
			w.pod("strange", true, c.owner)
			w.counted("b", "2/1 of 2, 0 allowed, SyncFailed")
			if got := rules.Condition(w.getBudget("b").Status).GetMessage(); got != c.why {
				t.Errorf("the condition says %q, want %q", got, c.why)
			}
			revision := w.getBudget("b").Metadata.ResourceVersion
			time.Sleep(time.Hour)
			if now := w.getBudget("b").Metadata.ResourceVersion; now != revision {
				t.Errorf("the budget was written again, from %s to %s, for nothing new", revision, now)
			}
			w.remove("strange")
			w.counted("b", "2/1 of 2, 1 allowed, SufficientPods")
		}
		if w.told("b", "CalculateExpectedPodCountFailed") == 0 {
			t.Error("nobody was told")
		}
		// It is tried again, also when no pod tells that there is something to count by now.
		w.pod("early", true, &metav1.OwnerReference{
			ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Uid: "other", Controller: proto.Bool(true),
		})
		w.counted("b", "2/1 of 2, 0 allowed, SyncFailed")
		w.edit("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable, s.MaxUnavailable = number(1), nil })
		w.counted("b", "3/1 of 3, 2 allowed, SufficientPods")
		w.stop()
	})
}

// A pod that was evicted counts as gone, for two minutes; after that it is there. spec: DISR-1
func TestDisruptedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		for _, name := range []string{"web-0", "web-1", "web-2"} {
			w.pod(name, true, nil)
		}
		w.budget("b", &policyv1.PodDisruptionBudgetSpec{MinAvailable: number(1)})
		w.counted("b", "3/1 of 3, 2 allowed, SufficientPods")
		// Somebody has taken from the budget, and its pod is not seen going.
		b := proto.CloneOf(w.getBudget("b"))
		b.Status.DisruptedPods = map[string]*metav1.Time{"web-0": value.Time(time.Now()), "gone": value.Time(time.Now())}
		b.Status.DisruptionsAllowed = 0
		_, err := w.admin.PodDisruptionBudgets.UpdateStatus(t.Context(),
			&policyv1rpc.UpdatePodDisruptionBudgetRequest{Object: b})
		w.must(err)
		w.counted("b", "2/1 of 3, 1 allowed, SufficientPods")
		if d := w.getBudget("b").Status.DisruptedPods; len(d) != 1 || d["web-0"] == nil {
			t.Errorf("remembered: %v", d)
		}
		time.Sleep(118 * time.Second)
		w.counted("b", "2/1 of 3, 1 allowed, SufficientPods")
		time.Sleep(3 * time.Second)
		w.counted("b", "3/1 of 3, 2 allowed, SufficientPods")
		if d := w.getBudget("b").Status.DisruptedPods; len(d) != 0 || w.told("web-0", "NotDeleted") != 1 {
			t.Errorf("remembered: %v, told %d times", d, w.told("web-0", "NotDeleted"))
		}

		// One whose deletion has begun needs no memory.
		if why := w.evict("web-1"); why != "" {
			t.Fatal(why)
		}
		w.counted("b", "2/1 of 3, 1 allowed, SufficientPods")
		if d := w.getBudget("b").Status.DisruptedPods; len(d) != 0 {
			t.Errorf("remembered: %v", d)
		}
		w.stop()
	})
}

// What said that a pod would go says so no more when nobody has deleted it for two minutes, unless its agent said so,
// or it has ended. spec: DISR-4
func TestStaleConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		mark := func(name, phase, reason string, since time.Time) {
			t.Helper()
			p := proto.CloneOf(w.pod(name, true, nil))
			p.Status.Phase = phase
			p.Status.Conditions = append(p.Status.Conditions, &corev1.PodCondition{
				Type: rules.Target, Status: "True", Reason: reason, LastTransitionTime: value.Time(since),
			})
			_, err := w.server.Agent("n1").Pods.UpdateStatus(t.Context(), &corev1rpc.UpdatePodRequest{Object: p})
			w.must(err)
		}
		begin := time.Now()
		mark("preempted", "Running", rules.ByPreemption, begin)
		mark("tainted", "Running", rules.ByTaint, begin)
		mark("evicted", "Running", rules.ByEviction, begin)
		mark("collected", "Running", rules.ByPodGC, begin)
		mark("short", "Running", rules.ByKubelet, begin)
		mark("ended", "Failed", rules.ByPreemption, begin)
		mark("going", "Running", rules.ByEviction, begin)
		mark("later", "Running", rules.ByEviction, begin.Add(time.Minute))
		_, err := w.admin.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "going"})
		w.must(err)

		expect := func(status string, names ...string) {
			t.Helper()
			for _, name := range names {
				for _, c := range w.getPod(name).Status.Conditions {
					if c.Type != rules.Target {
						continue
					}
					if c.Status != status {
						t.Errorf("after %v %s has %v, want status %s", time.Since(begin), name, c, status)
					}
					if status == "False" && c.Reason+c.Message != "" {
						t.Errorf("%s has a reason for what is not so: %v", name, c)
					}
				}
			}
		}
		stale := []string{"preempted", "tainted", "evicted", "collected"}
		time.Sleep(118 * time.Second)
		expect("True", append(stale, "short", "ended", "going", "later")...)
		time.Sleep(3 * time.Second)
		expect("False", stale...)
		expect("True", "short", "ended", "going", "later")
		time.Sleep(time.Minute)
		expect("False", "later")
		time.Sleep(time.Hour)
		expect("True", "short", "ended", "going")
		w.stop()
	})
}
