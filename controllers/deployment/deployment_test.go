package deployment_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

const fine = "MinimumReplicasAvailable=True NewReplicaSetAvailable=True"

// A rolling update goes by steps as large as maxSurge and maxUnavailable allow. spec: WORK-1
func TestRollingUpdate(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(10), StopsIn: seconds(5)}, func(w *world) {
		w.create(10, steps(3, 2))
		w.wantsSets("1: r1 10/10/0")
		w.wants("10 10 0 0 10 MinimumReplicasUnavailable=False ReplicaSetUpdated=True")
		time.Sleep(10 * time.Second)
		w.wants("10 10 10 10 0 " + fine)
		if got := w.get().GetMetadata().GetAnnotations()["deployment.kubernetes.io/revision"]; got != "1" {
			w.Errorf("revision %q", got)
		}

		w.image("image:2")
		w.wantsSets("1: r1 8/8/8, 2: r2 5/5/0")
		w.wants("13 5 8 8 5 MinimumReplicasAvailable=True ReplicaSetUpdated=True")
		time.Sleep(10 * time.Second)
		w.wantsSets("1: r1 3/3/3, 2: r2 10/10/5")
		time.Sleep(10 * time.Second)
		w.wantsSets("1: r1 0/0/0, 2: r2 10/10/10")
		w.wants("10 10 10 10 0 " + fine)

		told := w.told()
		name := regexp.MustCompile(`web-[a-z0-9]+`)
		for i, text := range told {
			told[i] = name.ReplaceAllString(text, "SET")
		}
		want := []string{
			"ScalingReplicaSet: Scaled up replica set SET from 0 to 10",
			"ScalingReplicaSet: Scaled up replica set SET from 0 to 3",
			"ScalingReplicaSet: Scaled down replica set SET from 10 to 8",
			"ScalingReplicaSet: Scaled up replica set SET from 3 to 5",
		}
		if len(told) < len(want) || !slices.Equal(told[:len(want)], want) {
			w.Errorf("told:\n%s", strings.Join(told, "\n"))
		}

		// Back to the earlier template: its set is the new one again, with a new revision.
		w.image("image:1")
		time.Sleep(time.Minute)
		w.wantsSets("1: r3 10/10/10, 2: r2 0/0/0")
		l, err := w.c.ReplicaSets.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		for _, rs := range l.GetItems() {
			a := rs.GetMetadata().GetAnnotations()
			if a["team"] != "a" || a["deployment.kubernetes.io/desired-replicas"] != "10" ||
				a["deployment.kubernetes.io/max-replicas"] != "13" {
				w.Errorf("annotations of a set: %v", a)
			}
			hash := rs.GetMetadata().GetLabels()["pod-template-hash"]
			if hash == "" || rs.GetMetadata().GetName() != "web-"+hash || rs.GetSpec().GetSelector().
				GetMatchLabels()["pod-template-hash"] != hash {
				w.Errorf("set %v", rs.GetMetadata())
			}
			if rs.GetSpec().GetReplicas() == 10 && a["deployment.kubernetes.io/revision-history"] != "1" {
				w.Errorf("history: %v", a)
			}
		}
	})
}

// Recreate waits until the last old pod is gone. spec: WORK-1
func TestRecreate(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(1), StopsIn: seconds(20)}, func(w *world) {
		w.create(3, func(s *appsv1.DeploymentSpec) { s.Strategy = &appsv1.DeploymentStrategy{Type: "Recreate"} })
		time.Sleep(time.Second)
		w.wants("3 3 3 3 0 " + fine)
		w.image("image:2")
		w.wantsSets("1: r1 0/0/0")
		time.Sleep(19 * time.Second)
		w.wantsSets("1: r1 0/0/0")
		time.Sleep(time.Second)
		w.wantsSets("1: r1 0/0/0, 2: r2 3/3/0")
		time.Sleep(time.Second)
		w.wants("3 3 3 3 0 " + fine)
	})
}

// What is scaled in the midst of a rollout is so in proportion.
func TestScalesInProportion(t *testing.T) {
	broken := func(p *corev1.Pod) bool { return strings.HasSuffix(p.GetSpec().GetContainers()[0].GetImage(), ":2") }
	inWorld(t, &controllertest.Nodes{Broken: broken}, func(w *world) {
		w.create(10, steps(3, 2))
		w.wantsSets("1: r1 10/10/10")
		w.image("image:2")
		w.wantsSets("1: r1 8/8/8, 2: r2 5/5/0")
		w.scale(15)
		w.wantsSets("1: r1 11/11/11, 2: r2 7/7/0")
		w.scale(0)
		w.wantsSets("1: r1 0/0/0, 2: r2 0/0/0")
	})
}

// While a Deployment is paused its template is not rolled out, and it is scaled. The time does not count as lack of
// progress.
func TestPause(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(2, func(s *appsv1.DeploymentSpec) { s.ProgressDeadlineSeconds = proto.Int32(60) })
		w.wants("2 2 2 2 0 " + fine)
		pause := func(on bool) { w.change(func(d *appsv1.Deployment) { d.Spec.Paused = on }) }
		pause(true)
		w.image("image:2")
		w.scale(4)
		time.Sleep(10 * time.Minute)
		w.wantsSets("1: r1 4/4/4")
		w.wants("4 0 4 4 0 DeploymentPaused=Unknown MinimumReplicasAvailable=True")
		pause(false)
		time.Sleep(time.Second)
		w.wantsSets("1: r1 0/0/0, 2: r2 4/4/4")
		w.wants("4 4 4 4 0 " + fine)
	})
}

// A rollout that makes no progress is said to have failed, and goes on when it can.
func TestProgressDeadline(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	nodes := &controllertest.Nodes{}
	nodes.Broken = func(p *corev1.Pod) bool {
		return broken.Load() && strings.HasSuffix(p.GetSpec().GetContainers()[0].GetImage(), ":2")
	}
	inWorld(t, nodes, func(w *world) {
		w.create(4, steps(1, 0), func(s *appsv1.DeploymentSpec) { s.ProgressDeadlineSeconds = proto.Int32(100) })
		w.wants("4 4 4 4 0 " + fine)
		w.image("image:2")
		time.Sleep(99 * time.Second)
		w.wants("5 1 4 4 1 MinimumReplicasAvailable=True ReplicaSetUpdated=True")
		time.Sleep(10 * time.Second)
		w.wants("5 1 4 4 1 MinimumReplicasAvailable=True ProgressDeadlineExceeded=False")
		broken.Store(false)
		all, _ := w.pods()
		for _, p := range all {
			if strings.HasSuffix(p.GetSpec().GetContainers()[0].GetImage(), ":2") {
				w.must(nodes.End(w.Context(), p, "Failed"))
			}
		}
		time.Sleep(time.Minute)
		w.wants("4 4 4 4 0 " + fine)
		w.wantsSets("1: r1 0/0/0, 2: r2 4/4/4")
	})
}

// Old sets beyond the limit go, the oldest first.
func TestHistoryIsLimited(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(1, func(s *appsv1.DeploymentSpec) { s.RevisionHistoryLimit = proto.Int32(2) })
		for i := 2; i <= 5; i++ {
			w.image(fmt.Sprint("image:", i))
			time.Sleep(time.Minute)
		}
		w.wantsSets("3: r3 0/0/0, 4: r4 0/0/0, 5: r5 1/1/1")
	})
}

// A name that another set has makes the next one another.
func TestCollision(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(1)
		w.wants("1 1 1 1 0 " + fine)
		l, err := w.c.ReplicaSets.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		taken := object.Clone(l.GetItems()[0])
		_, err = w.c.Deployments.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "web"})
		w.must(err)
		_, err = w.c.ReplicaSets.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: taken.Metadata.Name})
		w.must(err)
		_, err = w.c.ReplicaSets.Create(w.Context(), &appsv1rpc.CreateReplicaSetRequest{Object: &appsv1.ReplicaSet{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: taken.Metadata.Name},
			Spec: &appsv1.ReplicaSetSpec{Replicas: new(int32), Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "other"}}, Spec: taken.Spec.Template.Spec,
			}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}},
		}})
		w.must(err)
		w.create(1)
		time.Sleep(time.Minute)
		d := w.get()
		if d.GetStatus().GetCollisionCount() != 1 || d.GetStatus().GetAvailableReplicas() != 1 {
			w.Errorf("status %v", d.GetStatus())
		}
	})
}

// Sets that nobody manages and that the selector takes are adopted.
func TestAdoptsSets(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		_, err := w.c.ReplicaSets.Create(w.Context(), &appsv1rpc.CreateReplicaSetRequest{Object: &appsv1.ReplicaSet{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "before", Labels: map[string]string{"app": "web"}},
			Spec: &appsv1.ReplicaSetSpec{Replicas: proto.Int32(2),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Template: &corev1.PodTemplateSpec{
					Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
					Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
				}},
		}})
		w.must(err)
		// The controller has to know the set, or it makes one of its own, as Kubernetes does.
		time.Sleep(time.Second)
		w.create(2)
		time.Sleep(time.Second)
		w.wantsSets("1: r1 2/2/2")
		w.wants("2 2 2 2 0 " + fine)
		if all, _ := w.pods(); len(all) != 2 {
			w.Errorf("%d pods", len(all))
		}
	})
}

// What admission refuses is a condition of the Deployment, that a set cannot be made as that its pods cannot.
func TestRefusals(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.refuse(appsv1rpc.ReplicaSets_Create_FullMethodName)
		w.create(2)
		time.Sleep(10 * time.Minute)
		w.wants("0 0 0 0 0 MinimumReplicasUnavailable=False ReplicaSetCreateError=False")
		if calls := w.refuse(corev1rpc.Pods_Create_FullMethodName); calls > 60 {
			w.Errorf("%d requests in ten minutes", calls)
		}
		time.Sleep(2 * time.Minute)
		w.wants("0 0 0 0 2 FailedCreate=True MinimumReplicasUnavailable=False NewReplicaSetCreated=True")
		w.refuse("")
		time.Sleep(2 * time.Minute)
		w.wants("2 2 2 2 0 " + fine)
	})
}

// Whatever happens, what is wanted is there in the end; on the way there are never more pods than surge allows, and
// the controllers by themselves never take away what keeps enough of them available.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			surge, missing := int32(rng.IntN(3)), int32(rng.IntN(3))
			missing = max(missing, 1-surge)
			quiet := rng.IntN(2) == 0 // nobody deletes pods, and none fail
			nodes := &controllertest.Nodes{StartsIn: seconds(2), StopsIn: seconds(3)}
			inWorld(t, nodes, func(w *world) {
				const n = 5
				w.create(n, steps(surge, missing))
				time.Sleep(10 * time.Second)
				version := 1
				for range 50 {
					switch rng.IntN(6) {
					case 0:
						version = 1 + rng.IntN(4)
						w.image(fmt.Sprint("image:", version))
					case 1:
						w.server.Cut()
					case 3:
						w.stop()
						w.stop = w.start()
					case 2:
						if all, _ := w.pods(); !quiet && len(all) > 0 {
							_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns",
								Name: all[rng.IntN(len(all))].GetMetadata().GetName()})
							w.must(err)
						}
					default:
						time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
					}
					synctest.Wait()
					all, available := w.pods()
					if int32(len(all)) > n+surge {
						w.Fatalf("%d pods of %d and %d more", len(all), n, surge)
					}
					if quiet && int32(available) < n-missing {
						w.Fatalf("%d of %d pods are available, and %d may be missing", available, n, missing)
					}
				}
				time.Sleep(10 * time.Minute)
				w.wants(fmt.Sprintf("%d %d %d %d 0 %s", n, n, n, n, fine))
				if all, _ := w.pods(); len(all) != n {
					w.Errorf("%d pods in the end", len(all))
				}
				if got := w.sets(); !strings.Contains(got, fmt.Sprintf("%d: r", version)) {
					w.Errorf("sets %s, want version %d", got, version)
				}
			})
		})
	}
}
