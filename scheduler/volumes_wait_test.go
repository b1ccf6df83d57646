package scheduler_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/test/objects"
)

// waiting puts a pod on n1 whose volume somebody else is to make, and waits until it waits for that.
func (w *world) waiting(pod, claim string) {
	w.Helper()
	ctx := context.Background()
	w.addNode(newNode("n1"))
	w.must(w.c.StorageClasses.Create(ctx, lateClass("ext", "example.com/slow")))
	w.must(w.c.PersistentVolumeClaims.Create(ctx, claimOf("ns", claim, "ext", "ReadWriteOnce")))
	synctest.Wait()
	w.addPod(objects.Use(newPod(pod), claim))
	if w.nodeOf(pod) != "" || w.claim(claim).GetMetadata().GetAnnotations()[storage.SelectedNode] != "n1" {
		w.Fatal("the pod does not wait for its volume")
	}
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.Helper()
	synctest.Wait()
	o, err := w.c.PersistentVolumeClaims.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(nil, err)
	return o
}

// makeVolume does what the provisioner and the controller do.
func (w *world) makeVolume(claim string) {
	w.Helper()
	ctx := context.Background()
	o := object.Clone(w.claim(claim))
	v := localVolume("made", "ext", "n1")
	v.Object.Spec.ClaimRef = storage.Reference(o)
	w.must(w.c.PersistentVolumes.Create(ctx, v))
	o.Spec.VolumeName = "made"
	storage.Annotate(o, storage.BindCompleted, "yes")
	w.must(w.c.PersistentVolumeClaims.Update(ctx, &corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o}))
}

// A pod that waits for its volume asks the server next to nothing, and goes on as soon as the volume is there.
func TestVolumeWaitEndsAtOnce(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.waiting("p", "c")
		var asked atomic.Int64
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.PersistentVolumeClaims_Get_FullMethodName {
				asked.Add(1)
			}
			return nil
		})
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if n := asked.Load(); n == 0 || n > 12 {
			t.Errorf("the claim was read %d times in a minute", n)
		}
		began := time.Now()
		w.makeVolume("c")
		if got := w.nodeOf("p"); got != "n1" || time.Since(began) != 0 {
			t.Errorf("the pod is on %q after %v", got, time.Since(began))
		}
	})
}

// The wait ends with the pod: what waits for the same volumes need not wait for it to be noticed.
func TestVolumeWaitEndsWithThePod(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.waiting("p", "c")
		var noticed atomic.Bool
		w.server.React(func(_ context.Context, method string, req any) error {
			if r, ok := req.(*metav1.GetRequest); ok && method == corev1rpc.Pods_Get_FullMethodName && r.GetName() == "p" {
				noticed.Store(true)
			}
			return nil
		})
		w.force("p")
		if synctest.Wait(); !noticed.Load() {
			t.Error("nobody has looked what became of the pod")
		}
	})
}

// A claim or volume that is taken away ends the wait, too, and the pod says why.
func TestVolumeWaitFails(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.waiting("p", "c")
		began := time.Now()
		w.must(w.c.PersistentVolumeClaims.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: "c"}))
		synctest.Wait()
		if !w.told("p", `running PreBind plugin "VolumeBinding": binding volumes: persistentvolumeclaim "c" is being `+
			`deleted`) || time.Since(began) != 0 {
			t.Errorf("it is not told after %v", time.Since(began))
		}
	})
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.waiting("p", "c")
		began := time.Now()
		o := object.Clone(w.claim("c")) // the provisioner cannot make it there
		delete(o.Metadata.Annotations, storage.SelectedNode)
		w.must(w.c.PersistentVolumeClaims.Update(context.Background(),
			&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o}))
		synctest.Wait()
		if !w.told("p", `running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"`) ||
			time.Since(began) != 0 {
			t.Errorf("it is not told after %v", time.Since(began))
		}
	})
}

// Nobody tells of the change when the watch is lost; it is seen all the same, a little later.
func TestVolumeWaitWithoutWatch(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.waiting("p", "c")
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.PersistentVolumeClaims_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "no watch")
			}
			return nil
		})
		w.server.Cut()
		synctest.Wait()
		w.makeVolume("c")
		time.Sleep(6 * time.Second) // virtual
		if got := w.nodeOf("p"); got != "n1" {
			t.Errorf("the pod is on %q", got)
		}
	})
}

// A volume that was chosen for a pod which fails to be bound is free for another that was refused meanwhile, without
// the five minutes after which everybody is tried again.
// spec: SCHED-3, SCHED-6
func TestFailedBindingFreesVolumes(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		ctx := context.Background()
		defer runStorage(w, w.c)()
		w.addNode(newNode("n1"))
		w.must(w.c.StorageClasses.Create(ctx, lateClass("static", "kubernetes.io/no-provisioner")))
		w.must(w.c.PersistentVolumes.Create(ctx, localVolume("v", "static", "n1")))
		for _, c := range []string{"one", "two"} {
			w.must(w.c.PersistentVolumeClaims.Create(ctx, claimOf("ns", c, "static", "ReadWriteOnce")))
		}
		synctest.Wait()
		var once atomic.Bool
		w.server.React(func(_ context.Context, _ string, req any) error {
			if r, ok := req.(*corev1rpc.UpdatePersistentVolumeRequest); !ok || r.GetObject().GetSpec().GetClaimRef() == nil ||
				once.Swap(true) {
				return nil
			}
			time.Sleep(3 * time.Second) // virtual: the other pod is refused meanwhile, and this one deleted
			return apierrors.New(apierrors.ServiceUnavailable, "chaos")
		})
		w.addPod(objects.Use(newPod("a"), "one"))
		w.addPod(objects.Use(newPod("b"), "two"))
		const want = "Unschedulable: 0/1 nodes are available: 1 node(s) didn't find available persistent volumes to " +
			"bind. preemption: " +
			"0/1 nodes are available: 1 Preemption is not helpful for scheduling."
		if got := reason(w.pod("b")); got != want {
			t.Fatalf("the other pod: %q", got)
		}
		w.force("a")
		time.Sleep(5 * time.Second) // virtual
		if got := w.nodeOf("b"); got != "n1" {
			t.Errorf("the other pod is on %q: %s", got, reason(w.pod("b")))
		}
	})
}

// So is the room of a pod whose end the binding hears of before the watch does.
// spec: SCHED-3, SCHED-6
func TestBindingOfGonePodFreesRoom(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.addNode(newNode("n1", "cpu=1", "pods=10"))
		var once, deaf atomic.Bool
		w.server.React(func(_ context.Context, method string, req any) error {
			if method == corev1rpc.Pods_Watch_FullMethodName && deaf.Load() {
				return apierrors.New(apierrors.ServiceUnavailable, "no watch")
			}
			if method != corev1rpc.Pods_Bind_FullMethodName || once.Swap(true) {
				return nil
			}
			time.Sleep(3 * time.Second) // virtual: the other pod is refused meanwhile
			deaf.Store(true)
			w.server.Cut()
			w.force("a")
			return nil
		})
		w.addPod(newPod("a", "cpu=1"))
		w.addPod(newPod("b", "cpu=1"))
		if synctest.Wait(); reason(w.pod("b")) == "" {
			t.Fatal("the other pod is not refused")
		}
		time.Sleep(5 * time.Second) // virtual: the binding fails
		deaf.Store(false)
		time.Sleep(time.Minute) // virtual
		if got := w.nodeOf("b"); got != "n1" {
			t.Errorf("the other pod is on %q: %s", got, reason(w.pod("b")))
		}
	})
}
