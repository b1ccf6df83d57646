package statefulset_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

// Members come one after the other, each when those before it are available, and go in reverse, each when the one
// before it is gone. spec: WORK-2
func TestOrdered(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(10), StopsIn: seconds(5)}, func(w *world) {
		w.create(3)
		w.wantsPods("0:1")
		time.Sleep(9 * time.Second)
		w.wantsPods("0:1")
		time.Sleep(time.Second)
		w.wantsPods("0:1+ 1:1")
		w.wants("2 1 1 2 2")
		time.Sleep(10 * time.Second)
		w.wantsPods("0:1+ 1:1+ 2:1")
		time.Sleep(10 * time.Second)
		w.wants("3 3 3 3 3")

		m := w.pod("web-2").GetMetadata()
		l := m.GetLabels()
		if l["statefulset.kubernetes.io/pod-name"] != "web-2" || l["apps.kubernetes.io/pod-index"] != "2" ||
			l["controller-revision-hash"] != w.get().GetStatus().GetCurrentRevision() || l["app"] != "web" {
			w.Errorf("labels %v", l)
		}
		if s := w.pod("web-2").GetSpec(); s.GetHostname() != "web-2" || s.GetSubdomain() != "db" {
			w.Errorf("found as %s.%s", s.GetHostname(), s.GetSubdomain())
		}

		w.scale(1)
		w.wantsPods("0:1+ 1:1+ 2:1+-")
		time.Sleep(4 * time.Second)
		w.wantsPods("0:1+ 1:1+ 2:1+-")
		time.Sleep(time.Second)
		w.wantsPods("0:1+ 1:1+-")
		time.Sleep(5 * time.Second)
		w.wantsPods("0:1+")
		w.wants("1 1 1 1 1")
		want := []string{
			"SuccessfulCreate: Create Pod web-0 in StatefulSet web successful",
			"SuccessfulCreate: Create Pod web-1 in StatefulSet web successful",
			"SuccessfulCreate: Create Pod web-2 in StatefulSet web successful",
			"SuccessfulDelete: Delete Pod web-2 in StatefulSet web successful",
			"SuccessfulDelete: Delete Pod web-1 in StatefulSet web successful",
		}
		if told := w.told(); !slices.Equal(told, want) {
			w.Errorf("told:\n%s", strings.Join(told, "\n"))
		}
	})
}

// In parallel all members come and go at once; a template is rolled out one by one all the same. spec: WORK-2
func TestParallel(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(10), StopsIn: seconds(5)}, func(w *world) {
		w.create(4, atOnce)
		w.wantsPods("0:1 1:1 2:1 3:1")
		time.Sleep(10 * time.Second)
		w.wants("4 4 4 4 4")
		w.image("image:2")
		w.wantsPods("0:1+ 1:1+ 2:1+ 3:1+-")
		time.Sleep(5 * time.Second)
		w.wantsPods("0:1+ 1:1+ 2:1+ 3:2")
		time.Sleep(10 * time.Second)
		w.wantsPods("0:1+ 1:1+ 2:1+- 3:2+")
		time.Sleep(time.Minute)
		w.scale(1)
		w.wantsPods("0:2+ 1:2+- 2:2+- 3:2+-")
		time.Sleep(time.Minute)
		w.wantsPods("0:2+")
		w.wants("1 1 1 1 1")
	})
}

// A new template is rolled out from the last member on, each when the one before it is available again, and not below
// the partition. spec: WORK-2
func TestRollingUpdate(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(10), StopsIn: seconds(5)}, func(w *world) {
		w.create(3, rolling(1, 0))
		time.Sleep(30 * time.Second)
		w.wants("3 3 3 3 3")
		w.image("image:2")
		w.wantsPods("0:1+ 1:1+ 2:1+-")
		w.wants("3 3 3 2 0 rolling")
		time.Sleep(5 * time.Second)
		w.wantsPods("0:1+ 1:1+ 2:2")
		time.Sleep(10 * time.Second)
		w.wantsPods("0:1+ 1:1+- 2:2+")
		time.Sleep(15 * time.Second)
		w.wantsPods("0:1+ 1:2+ 2:2+")
		w.wants("3 3 3 1 2 rolling")
		w.remove("web-0") // below the partition a member comes back as it was
		time.Sleep(time.Minute)
		w.wantsPods("0:1+ 1:2+ 2:2+")

		w.change(rolling(0, 0))
		time.Sleep(15 * time.Second)
		w.wantsPods("0:2+ 1:2+ 2:2+")
		w.wants("3 3 3 3 3")

		// Back: the revision of the earlier template is the newest again.
		w.image("image:1")
		time.Sleep(time.Minute)
		w.wantsPods("0:1+ 1:1+ 2:1+")
		l, err := w.c.ControllerRevisions.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		numbers := map[int64]bool{}
		for _, r := range l.GetItems() {
			numbers[r.GetRevision()] = r.GetMetadata().GetName() == w.get().GetStatus().GetCurrentRevision()
		}
		if len(numbers) != 2 || numbers[2] || !numbers[3] {
			w.Errorf("revisions %v", l.GetItems())
		}
	})
}

// As many members as may be unavailable are replaced at a time, and none while as many are. spec: WORK-2
func TestMaxUnavailable(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(10), StopsIn: seconds(5)}, func(w *world) {
		w.create(5, atOnce, rolling(1, 2))
		time.Sleep(10 * time.Second)
		w.image("image:2")
		w.wantsPods("0:1+ 1:1+ 2:1+ 3:1+- 4:1+-")
		time.Sleep(5 * time.Second)
		w.wantsPods("0:1+ 1:1+ 2:1+ 3:2 4:2")
		time.Sleep(10 * time.Second)
		w.wantsPods("0:1+ 1:1+- 2:1+- 3:2+ 4:2+")
		time.Sleep(15 * time.Second)
		w.wantsPods("0:1+ 1:2+ 2:2+ 3:2+ 4:2+")
		w.remove("web-4")
		w.remove("web-3")
		synctest.Wait() // what the cache does not know yet does not count
		w.change(rolling(0, 2))
		w.wantsPods("0:1+ 1:2+ 2:2+ 3:2+- 4:2+-")
		time.Sleep(time.Minute)
		w.wantsPods("0:2+ 1:2+ 2:2+ 3:2+ 4:2+")
		w.wants("5 5 5 5 5")
	})
}

// With OnDelete a member gets the new template when somebody deletes it. spec: WORK-2
func TestOnDelete(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(2, func(s *appsv1.StatefulSetSpec) {
			s.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"}
		})
		w.wants("2 2 2 2 2")
		w.image("image:2")
		time.Sleep(time.Hour)
		w.wantsPods("0:1+ 1:1+")
		w.remove("web-0")
		time.Sleep(time.Second)
		w.wantsPods("0:2+ 1:1+")
		w.wants("2 2 2 1 1 rolling")
	})
}

// A member that never becomes ready holds up those after it, and the rollout; when it does all goes on.
// spec: WORK-2
func TestBrokenMember(t *testing.T) {
	var broken atomic.Bool
	nodes := &controllertest.Nodes{StartsIn: seconds(1), StopsIn: seconds(1)}
	nodes.Broken = func(p *corev1.Pod) bool { return broken.Load() && p.GetMetadata().GetName() == "web-1" }
	inWorld(t, nodes, func(w *world) {
		broken.Store(true)
		w.create(3)
		time.Sleep(time.Hour)
		w.wantsPods("0:1+ 1:1")
		w.wants("2 1 1 2 2")
		w.image("image:2")
		time.Sleep(time.Hour)
		w.wantsPods("0:1+ 1:1") // as in Kubernetes: somebody has to delete it
		broken.Store(false)
		w.remove("web-1")
		time.Sleep(time.Minute)
		w.wantsPods("0:2+ 1:2+ 2:2+")
		w.wants("3 3 3 3 3")
	})
}

// What has ended is replaced, whatever came of it. spec: WORK-2
func TestEndedMembersAreReplaced(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StopsIn: seconds(1)}, func(w *world) {
		w.create(2)
		for _, phase := range []string{"Failed", "Succeeded"} {
			synctest.Wait()
			before := w.pod("web-1")
			w.must(w.nodes.End(w.Context(), before, phase))
			time.Sleep(time.Minute)
			w.wantsPods("0:1+ 1:1+")
			if w.pod("web-1").GetMetadata().GetUid() == before.GetMetadata().GetUid() {
				w.Errorf("the one that is %s is still there", phase)
			}
		}
	})
}

// The member of a lost node stays, going, and no successor is made: it may still run. When somebody says that the node
// is out of service its object goes, and a successor comes. spec: WORK-2, GC-3, NODE-3
func TestLostNode(t *testing.T) {
	const lost = "n2"
	nodes := &controllertest.Nodes{}
	nodes.StopsIn = func(p *corev1.Pod) time.Duration {
		if p.GetSpec().GetNodeName() == lost {
			return 1000 * time.Hour // its agent is not heard of any more
		}
		return time.Second
	}
	inWorld(t, nodes, func(w *world) {
		w.create(3)
		w.wantsPods("0:1+ 1:1+ 2:1+")
		p := w.pod("web-1")
		if p.GetSpec().GetNodeName() != lost {
			w.Fatalf("web-1 is on %s", p.GetSpec().GetNodeName())
		}
		w.remove("web-1") // as the controller of taints does
		synctest.Wait()   // a rollout that begins before the controller sees this may take the last member first
		w.image("image:2")
		time.Sleep(24 * time.Hour)
		w.wantsPods("0:1+ 1:1+- 2:1+")
		if w.pod("web-1").GetMetadata().GetUid() != p.GetMetadata().GetUid() {
			w.Error("web-1 was replaced")
		}

		n, err := w.c.Nodes.Get(w.Context(), &metav1.GetRequest{Name: lost})
		w.must(err)
		n = object.Clone(n)
		n.Spec = &corev1.NodeSpec{Unschedulable: true, Taints: []*corev1.Taint{{
			Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: "NoExecute"}}}
		n, err = w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Object: n})
		w.must(err)
		n = object.Clone(n)
		n.Status = &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: "Unknown"}}}
		_, err = w.c.Nodes.UpdateStatus(w.Context(), &corev1rpc.UpdateNodeRequest{Object: n})
		w.must(err)
		time.Sleep(time.Minute)
		now := w.pod("web-1")
		if now.GetMetadata().GetUid() == p.GetMetadata().GetUid() {
			w.Error("web-1 was not replaced")
		}
	})
}

// Members are numbered from ordinals.start on; those outside go. spec: WORK-2
func TestOrdinals(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		from := func(n int32) func(*appsv1.StatefulSetSpec) {
			return func(s *appsv1.StatefulSetSpec) { s.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
		}
		w.create(3, from(5))
		w.wantsPods("5:1+ 6:1+ 7:1+")
		w.change(from(6))
		time.Sleep(time.Second)
		w.wantsPods("6:1+ 7:1+ 8:1+")
	})
}

// A member counts as available when it has been ready for minReadySeconds; the next waits for it.
func TestMinReadySeconds(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(1)}, func(w *world) {
		w.create(2, func(s *appsv1.StatefulSetSpec) { s.MinReadySeconds = 30 })
		time.Sleep(20 * time.Second)
		w.wantsPods("0:1+")
		w.wants("1 1 0 1 1")
		time.Sleep(15 * time.Second)
		w.wantsPods("0:1+ 1:1+")
		w.wants("2 2 1 2 2")
		time.Sleep(30 * time.Second)
		w.wants("2 2 2 2 2")
	})
}

// Claims are made before their pods, outlive them, and go with what the policy says. spec: WORK-2, VOL-1
func TestClaims(t *testing.T) {
	for _, x := range []struct {
		withSet, withPod             bool
		before, scaled, gone, theEnd string
	}{
		{false, false, "data-web-0 data-web-1", "data-web-0 data-web-1", "data-web-0 data-web-1", "data-web-0 data-web-1"},
		{
			true, false, "data-web-0<StatefulSet data-web-1<StatefulSet", "data-web-0<StatefulSet data-web-1<StatefulSet",
			"data-web-0<StatefulSet data-web-1<StatefulSet", "",
		},
		{false, true, "data-web-0 data-web-1", "data-web-0 data-web-1<Pod", "data-web-0", "data-web-0"},
		{
			true, true, "data-web-0<StatefulSet data-web-1<StatefulSet", "data-web-0<StatefulSet data-web-1<Pod",
			"data-web-0<StatefulSet", "",
		},
	} {
		t.Run(fmt.Sprintf("with the set %t, with the pod %t", x.withSet, x.withPod), func(t *testing.T) {
			inWorld(t, &controllertest.Nodes{StopsIn: seconds(10)}, func(w *world) {
				w.create(2, claims(x.withSet, x.withPod))
				w.wantsPods("0:1+ 1:1+")
				w.wantsClaims(x.before)
				p := w.pod("web-1")
				if v := p.GetSpec().GetVolumes()[0]; v.GetName() != "data" ||
					v.GetVolumeSource().GetPersistentVolumeClaim().GetClaimName() != "data-web-1" {
					w.Errorf("volumes %v", p.GetSpec().GetVolumes())
				}
				c, err := w.c.PersistentVolumeClaims.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "data-web-1"})
				w.must(err)
				if l := c.GetMetadata().GetLabels(); l["app"] != "web" || l["disk"] != "fast" {
					w.Errorf("labels of a claim: %v", l)
				}
				w.scale(1)
				w.wantsClaims(x.scaled)
				time.Sleep(time.Minute)
				w.unprotect()
				w.wantsClaims(x.gone)
				_, err = w.c.StatefulSets.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "web"})
				w.must(err)
				time.Sleep(time.Minute)
				w.unprotect()
				w.wantsPods("")
				w.wantsClaims(x.theEnd)
			})
		})
	}
}

// unprotect lets claims go that nobody uses, as the controller of volumes does.
func (w *world) unprotect() {
	w.Helper()
	synctest.Wait()
	l, err := w.c.PersistentVolumeClaims.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	for _, c := range l.GetItems() {
		if c.GetMetadata().GetDeletionTimestamp() != nil {
			_, err := w.c.PersistentVolumeClaims.Patch(w.Context(), &metav1.PatchRequest{
				Namespace: "ns", Name: c.GetMetadata().GetName(), PatchType: "application/merge-patch+json",
				Patch: []byte(`{"metadata":{"finalizers":null}}`),
			})
			w.must(err)
		}
	}
	time.Sleep(time.Second)
}

// Who scales up again before the claim of the earlier pod is gone waits for it: the new pod gets a new claim, and not
// one that is about to go. spec: WORK-2
func TestWaitsForClaimsThatGo(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StopsIn: seconds(10)}, func(w *world) {
		w.create(2, claims(false, true))
		w.wantsPods("0:1+ 1:1+")
		w.scale(1)
		synctest.Wait()
		w.scale(2)
		time.Sleep(time.Hour)
		w.wantsPods("0:1+")
		w.wantsClaims("data-web-0 data-web-1<Pod")
		w.unprotect()
		time.Sleep(time.Minute)
		w.wantsPods("0:1+ 1:1+")
		w.wantsClaims("data-web-0 data-web-1")
	})
}

// A pod that nobody manages and the selector takes becomes a member, and gets the labels of its identity. One that
// lacks the volumes of its claims cannot: the server refuses to change them, and it is told.
func TestAdoption(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		make := func(name string) {
			_, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "web"}},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:0"}}},
			}})
			w.must(err)
		}
		make("web-0")
		make("web-00") // not the name of a member
		make("web-x")
		w.create(1, func(s *appsv1.StatefulSetSpec) {
			s.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"}
		})
		time.Sleep(time.Minute)
		w.wantsPods("00:0+ 0:0+ x:0+")
		m := w.pod("web-0").GetMetadata()
		if controller.ManagerOf(w.pod("web-0")).GetUid() != w.get().GetMetadata().GetUid() ||
			m.GetLabels()["statefulset.kubernetes.io/pod-name"] != "web-0" {
			w.Errorf("not a member: %v", m)
		}
		if controller.ManagerOf(w.pod("web-00")) != nil {
			w.Error("web-00 was adopted")
		}
	})
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		_, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web-0", Labels: map[string]string{"app": "web"}},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:0"}}},
		}})
		w.must(err)
		w.create(2, claims(false, false))
		time.Sleep(time.Minute)
		w.wantsPods("0:0+")
		if told := strings.Join(w.told(), "\n"); !strings.Contains(told, "FailedUpdate: Update Pod web-0") {
			w.Errorf("told:\n%s", told)
		}
	})
}

// A pod that is refused costs few requests, and is told; when it can be made it is. spec: WORK-2
func TestRefusals(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.refuse(corev1rpc.Pods_Create_FullMethodName)
		w.create(3, atOnce)
		time.Sleep(10 * time.Minute)
		w.wants("0 0 0 0 0")
		if calls := w.refuse(""); calls > 60 {
			w.Errorf("%d requests in ten minutes", calls)
		}
		time.Sleep(time.Minute)
		w.wants("3 3 3 3 3")
		told := strings.Join(w.told(), "\n")
		if !strings.Contains(told, "FailedCreate: Create Pod web-0 in StatefulSet web") {
			w.Errorf("told:\n%s", told)
		}
	})
}

// One of the same name that comes after another waits for its pods to go, and makes its own then. spec: WORK-2
func TestSuccessorOfASet(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StopsIn: seconds(20)}, func(w *world) {
		first := w.create(2)
		w.wantsPods("0:1+ 1:1+")
		_, err := w.c.StatefulSets.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "web"})
		w.must(err)
		synctest.Wait()
		w.create(2)
		time.Sleep(19 * time.Second)
		w.wantsPods("0:1+- 1:1+-")
		time.Sleep(time.Minute)
		w.wantsPods("0:1+ 1:1+")
		for _, name := range []string{"web-0", "web-1"} {
			if controller.ManagerOf(w.pod(name)).GetUid() == first.GetMetadata().GetUid() {
				w.Errorf("%s is still of the first", name)
			}
		}
	})
}

// Revisions that no pod is of go, the oldest first, but for as many as are kept.
func TestHistoryIsLimited(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(1, func(s *appsv1.StatefulSetSpec) { s.RevisionHistoryLimit = proto.Int32(2) })
		for i := 1; i <= 6; i++ {
			if i > 1 { // What is changed before the controller has seen it has no revision.
				w.image(fmt.Sprint("image:", i))
			}
			time.Sleep(time.Minute)
		}
		l, err := w.c.ControllerRevisions.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		var numbers []int64
		for _, r := range l.GetItems() {
			numbers = append(numbers, r.GetRevision())
		}
		slices.Sort(numbers)
		if !slices.Equal(numbers, []int64{4, 5, 6}) {
			w.Errorf("revisions %v", numbers)
		}
	})
}
