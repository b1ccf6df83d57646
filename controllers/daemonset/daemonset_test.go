package daemonset_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/rules/taints"
)

// spec: WORK-1
func TestOnePodPerNode(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(5), StopsIn: seconds(20)}, func(w *world) {
		w.node("n2", func(n *corev1.Node) { n.Metadata.Labels = map[string]string{"disk": "ssd"} })
		d := w.create(func(s *appsv1.DaemonSetSpec) { s.MinReadySeconds = 10 })
		w.wants("3 3 0 0 3 0 3")
		time.Sleep(5 * time.Second)
		w.wants("3 3 0 3 3 0 3")
		time.Sleep(10 * time.Second)
		w.wants("3 3 0 3 3 3 0")
		w.wantsPods("n1:1 n2:1 n3:1")
		if w.made() != 3 {
			w.Errorf("%d requests made 3 pods", w.made())
		}
		p := w.pod("n1")
		m, ref := p.GetMetadata(), controller.ManagerOf(p)
		revision := w.revisions()[0]
		if !strings.HasPrefix(m.GetName(), "web-") || ref.GetKind() != "DaemonSet" || ref.GetUid() != d.Metadata.Uid ||
			m.GetLabels()["controller-revision-hash"] != revision.Metadata.Labels["controller-revision-hash"] ||
			m.GetLabels()["controller-revision-hash"] == "" || m.GetLabels()["pod-template-generation"] != "1" {
			w.Errorf("the pod is %v", m)
		}
		stays := slices.ContainsFunc(p.GetSpec().GetTolerations(), func(t *corev1.Toleration) bool {
			return t.GetKey() == taints.Unreachable && t.TolerationSeconds == nil
		})
		if !stays || p.GetSpec().GetNodeName() != "n1" {
			w.Errorf("the pod is %v", p.GetSpec())
		}

		// Where its pod is deleted, a node has the next one when that is gone.
		w.delete(p)
		w.wantsPods("n1:1- n2:1 n3:1")
		time.Sleep(20 * time.Second)
		w.wantsPods("n1:1? n2:1 n3:1")
		time.Sleep(5 * time.Second)
		w.wantsPods("n1:1 n2:1 n3:1")

		// Another choice of nodes: a new template, and pods go where they do not belong any more.
		w.change(func(s *appsv1.DaemonSetSpec) { s.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
		w.wants("1 1 2 1 0 1 0")
		time.Sleep(time.Minute)
		w.wantsPods("n2:1")
		w.wants("1 1 0 1 1 1 0")

		// Nodes come to match, join and leave.
		w.node("n1", func(n *corev1.Node) { n.Metadata.Labels = map[string]string{"disk": "ssd"} })
		w.node("n4", func(n *corev1.Node) { n.Metadata.Labels = map[string]string{"disk": "ssd"} })
		time.Sleep(time.Minute)
		w.wantsPods("n1:1 n2:1 n4:1")
		w.wants("3 3 0 3 3 3 0")
		_, err := w.c.Nodes.Delete(w.Context(), &metav1.DeleteRequest{Name: "n4"})
		w.must(err)
		w.wants("2 2 0 2 2 2 0")
		w.wantsPods("n1:1 n2:1 n4:1") // the pod was bound, and is PodGC's affair
		w.node("n2", func(n *corev1.Node) { n.Metadata.Labels = nil })
		time.Sleep(time.Minute)
		w.wants("1 1 0 1 1 1 0")
	})
}

// Pods that wait for a node which goes before they are bound go with it. spec: WORK-1
func TestPodsOfLostNodesAreNotKept(t *testing.T) {
	nodes := &controllertest.Nodes{}
	inWorld(t, nodes, func(w *world) {
		place := nodes.Place
		nodes.Place = func(p *corev1.Pod) string {
			if target := place(p); target != "n3" {
				return target
			}
			return "" // the scheduler finds no room
		}
		w.create()
		w.wantsPods("n1:1 n2:1 n3:1?")
		_, err := w.c.Nodes.Delete(w.Context(), &metav1.DeleteRequest{Name: "n3"})
		w.must(err)
		w.wantsPods("n1:1 n2:1")
		w.wants("2 2 0 2 2 2 0")
	})
}

// spec: WORK-1, NODE-3, NODE-5
func TestTaints(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.node("n4", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.create()
		w.wantsPods("n1:1 n2:1 n3:1 n4:1") // a cordon is no reason

		// Who is there stays, but would not come again.
		w.taint("n1", &corev1.Taint{Key: "full", Effect: taints.NoSchedule})
		w.wants("3 3 1 3 3 3 0")
		w.wantsPods("n1:1 n2:1 n3:1 n4:1")
		w.delete(w.pod("n1"))
		time.Sleep(time.Minute)
		w.wantsPods("n2:1 n3:1 n4:1")
		w.wants("3 3 0 3 3 3 0")

		// Nobody stays, but those who tolerate it; and all come back.
		w.taint("n2", &corev1.Taint{Key: "broken", Effect: taints.NoExecute})
		w.taint("n3", &corev1.Taint{Key: taints.Unreachable, Effect: taints.NoExecute})
		time.Sleep(time.Minute)
		w.wantsPods("n3:1 n4:1")
		w.taint("n1")
		w.taint("n2")
		time.Sleep(time.Minute)
		w.wantsPods("n1:1 n2:1 n3:1 n4:1")
		w.wants("4 4 0 4 4 4 0")
		w.change(func(s *appsv1.DaemonSetSpec) {
			s.Template.Spec.Tolerations = []*corev1.Toleration{{Key: "broken", Operator: "Exists"}}
		})
		time.Sleep(time.Minute)
		w.taint("n2", &corev1.Taint{Key: "broken", Effect: taints.NoExecute})
		time.Sleep(time.Minute)
		w.wants("4 4 0 4 4 4 0")
	})
}

// A pod takes 10 s to go and 5 s to start. spec: WORK-1, WORK-5
func TestRollingUpdateInPlace(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(5), StopsIn: seconds(10)}, func(w *world) {
		w.create(steps(0, 2))
		time.Sleep(time.Minute)
		w.image("image:2")
		w.wantsPods("n1:1- n2:1- n3:1")
		w.wants("3 3 0 3 0 3 0") // agents say when pods stop being ready
		time.Sleep(10 * time.Second)
		w.wantsPods("n1:2? n2:2? n3:1")
		w.wants("3 3 0 1 2 1 2")
		time.Sleep(5 * time.Second)
		w.wantsPods("n1:2 n2:2 n3:1-")
		time.Sleep(15 * time.Second)
		w.wantsPods("n1:2 n2:2 n3:2")
		w.wants("3 3 0 3 3 3 0")
	})
}

// Pods that never become ready stop the update, and another one goes on from there.
// spec: WORK-1
func TestRollingUpdateThatFails(t *testing.T) {
	nodes := &controllertest.Nodes{StartsIn: seconds(5), StopsIn: seconds(10), Broken: func(p *corev1.Pod) bool {
		return p.GetSpec().GetContainers()[0].GetImage() == "image:2"
	}}
	inWorld(t, nodes, func(w *world) {
		w.create()
		time.Sleep(time.Minute)
		w.image("image:2")
		time.Sleep(time.Hour)
		w.wantsPods("n1:2? n2:1 n3:1")
		w.wants("3 3 0 2 1 2 1")
		w.image("image:3")
		w.wantsPods("n1:2- n2:1 n3:1")
		time.Sleep(15 * time.Second)
		w.wantsPods("n1:3 n2:1- n3:1")
		time.Sleep(30 * time.Second)
		w.wantsPods("n1:3 n2:3 n3:3")
	})
}

// spec: WORK-1, WORK-5
func TestRollingUpdateBeside(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(5), StopsIn: seconds(10)}, func(w *world) {
		w.create(steps(1, 0), func(s *appsv1.DaemonSetSpec) { s.MinReadySeconds = 5 })
		time.Sleep(time.Minute)
		w.image("image:2")
		for i, want := range []string{
			"n1:1+2? n2:1 n3:1", "n1:1+2 n2:1 n3:1", "n1:1-+2 n2:1+2? n3:1", "n1:1-+2 n2:1+2 n3:1", "n1:2 n2:1-+2 n3:1+2?",
			"n1:2 n2:1-+2 n3:1+2", "n1:2 n2:2 n3:1-+2", "n1:2 n2:2 n3:1-+2", "n1:2 n2:2 n3:2",
		} {
			if got := w.pods(); got != want {
				w.Errorf("after %d s the pods are %q, want %q", 5*i, got, want)
			}
			if s := w.get().GetStatus(); s.GetNumberAvailable() != 3 {
				w.Errorf("after %d s %d are available", 5*i, s.GetNumberAvailable())
			}
			time.Sleep(5 * time.Second)
		}
		w.wants("3 3 0 3 3 3 0")

		// Where the old pod is deleted meanwhile, the node has a new one at once.
		w.delete(w.pod("n2"))
		w.wantsPods("n1:2 n2:2-+2? n3:2")
	})
}

// spec: WORK-1
func TestOnDelete(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(func(s *appsv1.DaemonSetSpec) {
			s.UpdateStrategy = &appsv1.DaemonSetUpdateStrategy{Type: "OnDelete"}
		})
		w.wantsPods("n1:1 n2:1 n3:1")
		w.image("image:2")
		time.Sleep(time.Hour)
		w.wantsPods("n1:1 n2:1 n3:1")
		w.wants("3 3 0 3 0 3 0")
		w.delete(w.pod("n2"))
		w.wantsPods("n1:1 n2:2 n3:1")
		w.wants("3 3 0 3 1 3 0")
	})
}

// What fails on a node is replaced at once, and then after a time that doubles. spec: WORK-1
func TestFailedPodsAreReplaced(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create()
		w.wantsPods("n1:1 n2:1 n3:1")
		begin := time.Now()
		var after []int
		for range 6 {
			p := w.pod("n2")
			w.must(w.nodes.End(w.Context(), p, "Failed"))
			synctest.Wait()
			for w.pods() != "n1:1 n2:1 n3:1" {
				time.Sleep(500 * time.Millisecond)
			}
			after = append(after, int(time.Since(begin)/time.Second))
		}
		if got := fmt.Sprint(after); got != "[0 1 3 7 15 31]" {
			w.Errorf("failed pods were replaced after %v seconds", after)
		}
		// Another template begins anew, on all nodes.
		w.image("image:2")
		time.Sleep(time.Second)
		w.wantsPods("n1:2 n2:2 n3:2")
		begin = time.Now()
		w.must(w.nodes.End(w.Context(), w.pod("n2"), "Failed"))
		w.wantsPods("n1:2 n2:2 n3:2")
		if took := time.Since(begin); took > 0 {
			w.Errorf("the first failure of another template took %v", took)
		}
	})
}

// What ends well is replaced without a delay, and both is told. spec: WORK-1
func TestEndedPodsAreTold(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create()
		w.must(w.nodes.End(w.Context(), w.pod("n1"), "Failed"))
		for range 3 {
			w.must(w.nodes.End(w.Context(), w.pod("n2"), "Succeeded"))
			w.wantsPods("n1:1 n2:1 n3:1")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		l, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		reasons := map[string]int{}
		for _, e := range l.GetItems() {
			if e.GetInvolvedObject().GetKind() == "DaemonSet" {
				reasons[e.GetType()+" "+e.GetReason()]++
			}
		}
		if got := fmt.Sprint(reasons); got != "map[Normal SucceededDaemonPod:3 Normal SuccessfulCreate:7 "+
			"Normal SuccessfulDelete:4 Warning FailedDaemonPod:1]" {
			w.Errorf("told %s", got)
		}
	})
}

// A template that is refused costs few requests, and is tried again. spec: WORK-1
func TestRefusedPods(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.refusing(errors.New("quota"))
		w.create()
		time.Sleep(10 * time.Minute)
		w.wants("3 0 0 0 0 0 3")
		if n := w.made(); n < 10 || n > 40 {
			w.Errorf("%d requests were refused in ten minutes", n)
		}
		w.refusing(nil)
		time.Sleep(time.Minute)
		w.wants("3 3 0 3 3 3 0")
	})
}

// spec: WORK-1
func TestRevisions(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(func(s *appsv1.DaemonSetSpec) { s.RevisionHistoryLimit = new(int32); *s.RevisionHistoryLimit = 2 })
		for i := 1; i <= 5; i++ {
			if i > 1 { // What is changed before the controller has seen it has no revision.
				w.image(fmt.Sprint("image:", i))
			}
			time.Sleep(time.Minute)
			w.wantsPods(fmt.Sprintf("n1:%d n2:%d n3:%d", i, i, i))
		}
		all := w.revisions()
		if len(all) != 3 || all[0].GetRevision() != 3 || all[2].GetRevision() != 5 {
			w.Fatalf("the revisions are %v", all)
		}
		// Back to one that is kept, as kubectl rollout undo does.
		_, err := w.c.DaemonSets.Patch(w.Context(), &metav1.PatchRequest{Namespace: "ns", Name: "web",
			PatchType: "application/strategic-merge-patch+json", Patch: all[1].GetData().GetRaw()})
		w.must(err)
		time.Sleep(time.Minute)
		w.wantsPods("n1:4 n2:4 n3:4")
		back := w.revisions()
		if len(back) != 3 || back[2].GetRevision() != 6 ||
			back[2].GetMetadata().GetName() != all[1].GetMetadata().GetName() {
			w.Errorf("the revisions are %v", back)
		}

		// What is in use stays, and goes with the last pod of it.
		w.change(func(s *appsv1.DaemonSetSpec) {
			s.UpdateStrategy = &appsv1.DaemonSetUpdateStrategy{Type: "OnDelete"}
			*s.RevisionHistoryLimit = 0
		})
		w.image("image:6")
		if all := w.revisions(); len(all) != 2 {
			w.Errorf("the revisions are %v", all)
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			w.delete(w.pod(n))
		}
		if all := w.revisions(); len(all) != 1 || all[0].GetRevision() != 7 {
			w.Errorf("the revisions are %v", all)
		}
	})
}

// Pods that the selector takes and nobody manages are adopted, those that it does not take any more released.
// spec: WORK-1
func TestAdoption(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.stop()
		w.create()
		_, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "orphan", Labels: map[string]string{"app": "web"}},
			Spec: &corev1.PodSpec{NodeName: "n1", Containers: []*corev1.Container{{
				Name: "main", Image: "image:0"}}},
		}})
		w.must(err)
		w.stop = w.start()
		time.Sleep(time.Minute)
		w.wantsPods("n1:1 n2:1 n3:1") // it was of no revision, and is updated like any other
		p := w.pod("n2")
		_, err = w.c.Pods.Patch(w.Context(), &metav1.PatchRequest{Namespace: "ns", Name: p.GetMetadata().GetName(),
			PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"labels":{"app":"mine"}}}`)})
		w.must(err)
		time.Sleep(time.Minute)
		w.wantsPods("n1:1 n2:1 n3:1")
		released, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: p.GetMetadata().GetName()})
		w.must(err)
		if controller.ManagerOf(released) != nil {
			w.Errorf("still managed: %v", released.GetMetadata())
		}
	})
}

// Whatever happens to nodes and pods, to the template and to the controller, each node ends with what it is to have,
// and never has two pods that run unless it may. spec: WORK-1, WORK-5
func TestHistories(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		pace := func(p *corev1.Pod) time.Duration { // the same for the same pod, in whatever order they come
			h := fnv.New64a()
			_, _ = h.Write([]byte(p.GetMetadata().GetName()))
			return time.Duration(h.Sum64()%20_000) * time.Millisecond
		}
		broken := func(p *corev1.Pod) bool { return p.GetSpec().GetContainers()[0].GetImage() == "image:bad" }
		inWorld(t, &controllertest.Nodes{StartsIn: pace, StopsIn: pace, Broken: broken}, func(w *world) {
			beside := r.IntN(2) == 0
			if beside {
				w.create(steps(1+int32(r.IntN(2)), 0))
			} else {
				w.create(steps(0, 1+int32(r.IntN(2))))
			}
			for range 40 {
				w.disturb(r)
				time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
				for at := range strings.FieldsSeq(w.pods()) {
					_, pods, _ := strings.Cut(at, ":")
					running := slices.DeleteFunc(strings.Split(pods, "+"), func(s string) bool { return s[len(s)-1] == 'x' })
					if !beside && len(running) > 1 {
						w.Errorf("seed %d: at once there were %s", seed, at)
					}
				}
			}
			for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
				w.taint(n)
			}
			w.image("image:9")
			time.Sleep(2 * time.Hour)
			w.wantsPods("n1:9 n2:9 n3:9 n4:9 n5:9")
			w.wants("5 5 0 5 5 5 0")
		})
	}
}

// disturb has one thing happen.
func (w *world) disturb(r *rand.Rand) {
	w.Helper()
	name := fmt.Sprint("n", 1+r.IntN(5))
	l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var p *corev1.Pod
	if len(l.GetItems()) > 0 {
		p = l.GetItems()[r.IntN(len(l.GetItems()))]
	}
	switch x := r.IntN(10); {
	case x < 2:
		w.taint(name, &corev1.Taint{Key: "x", Effect: []string{taints.NoSchedule, taints.NoExecute}[r.IntN(2)]})
	case x < 4:
		w.taint(name)
	case x < 5 && p != nil:
		w.delete(p)
	case x < 6 && p != nil && p.GetStatus().GetPhase() == "Running":
		w.must(w.nodes.End(w.Context(), p, []string{"Failed", "Succeeded"}[r.IntN(2)]))
	case x < 8:
		w.image("image:" + []string{"1", "2", "bad"}[r.IntN(3)])
	case x < 9:
		w.stop()
		w.stop = w.start()
	}
}
