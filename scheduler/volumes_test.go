package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/persistentvolume"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/test/objects"
)

// runStorage runs the binding controller until stop is called.
func runStorage(t testing.TB, c *client.Client) (stop func()) {
	t.Helper()
	shared := controller.NewShared(c, nil)
	ctrl, err := persistentvolume.New(persistentvolume.Config{Client: c, Shared: shared})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, ctrl) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func lateClass(name, provisioner string) *storagev1rpc.CreateStorageClassRequest {
	late := "WaitForFirstConsumer"
	return &storagev1rpc.CreateStorageClassRequest{Object: &storagev1.StorageClass{
		Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &late,
	}}
}

func claimOf(namespace, name, class, mode string) *corev1rpc.CreatePersistentVolumeClaimRequest {
	return &corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: namespace, Object: &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{mode}, StorageClassName: &class,
			Resources: &corev1.VolumeResourceRequirements{Requests: quantities("storage=1Gi")},
		},
	}}
}

func localVolume(name, class, host string) *corev1rpc.CreatePersistentVolumeRequest {
	return &corev1rpc.CreatePersistentVolumeRequest{Object: &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: quantities("storage=1Gi"), AccessModes: []string{"ReadWriteOnce"}, StorageClassName: class,
			PersistentVolumeReclaimPolicy: "Retain",
			PersistentVolumeSource:        &corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
					MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: "In",
						Values: []string{host}}},
				}}}},
		},
	}}
}

// The whole way through the real server, each with its own identity: a pod has its volume made on its node, another
// takes a static one, and of two that want a volume for themselves one waits.
// spec: SCHED-4, ATT-2
func TestVolumesOnRealServer(t *testing.T) {
	as := apitest.Start(t).As
	registerNode(t, as, "n1")
	registerNode(t, as, "n2")
	admin := as(authn.AdminName, authn.AdminsGroup)
	ctx := t.Context()
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(admin.StorageClasses.Create(ctx, lateClass("local", "monoplane.dev/local")))
	ok(admin.StorageClasses.Create(ctx, lateClass("static", "kubernetes.io/no-provisioner")))
	ok(admin.PersistentVolumeClaims.Create(ctx, claimOf("default", "made", "local", "ReadWriteOncePod")))
	ok(admin.PersistentVolumeClaims.Create(ctx, claimOf("default", "taken", "static", "ReadWriteOnce")))
	ok(admin.PersistentVolumes.Create(ctx, localVolume("disk", "static", "n2")))
	ok(admin.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Object: objects.Use(realPod("a"), "made")}))
	ok(admin.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Object: objects.Use(realPod("b"), "taken")}))
	t.Cleanup(runStorage(t, as(authn.ControllerPrefix+"persistentvolume")))
	runScheduler(t, scheduler.Config{Client: as(authn.SchedulerName), Seed: 1})
	nodes := await(t, admin, 2)
	made, err := admin.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "made"})
	ok(made, err)
	v, err := admin.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: made.GetSpec().GetVolumeName()})
	ok(v, err)
	host := v.GetSpec().GetNodeAffinity().GetRequired().GetNodeSelectorTerms()[0].GetMatchExpressions()[0].GetValues()[0]
	if host != nodes["a"] || nodes["b"] != "n2" ||
		made.GetMetadata().GetAnnotations()["volume.kubernetes.io/selected-node"] != nodes["a"] {
		t.Errorf("pods are on %v, the volume on %s", nodes, host)
	}
	second, err := admin.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Object: objects.Use(realPod("c"), "made")})
	ok(second, err)
	w, err := admin.Pods.Watch(ctx, &metav1.WatchRequest{FieldSelector: "metadata.name=c",
		ResourceVersion: second.GetMetadata().GetResourceVersion()})
	ok(w, err)
	batch, err := w.Recv()
	ok(batch, err)
	// The volume keeps the other node away; on this one the pod that has the claim is in the way, and is as important.
	const want = "Unschedulable: 0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with " +
		"ReadWriteOncePod access mode already " +
		"in-use by another pod. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
	if got := reason(batch.GetEvents()[0].GetObject()); got != want {
		t.Errorf("condition %q", got)
	}
	zero := int64(0)
	ok(admin.Pods.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: "a", GracePeriodSeconds: &zero}))
	for batch.GetEvents()[0].GetObject().GetSpec().GetNodeName() == "" {
		batch, err = w.Recv()
		ok(batch, err)
	}
	if got := batch.GetEvents()[0].GetObject().GetSpec().GetNodeName(); got != host {
		t.Errorf("the second pod is on %s, its volume on %s", got, host)
	}
}

// Whatever fails on the way: every pod that is bound has its claims bound to volumes of its node, no volume is taken
// twice, and when all is quiet as many pods run as there are volumes.
// spec: SCHED-3, SCHED-4, ATT-2
func TestVolumesUnderChaos(t *testing.T) {
	const pods, volumes = 8, 6
	for seed := range uint64(played()) { //nolint:gosec // not negative
		rng, mu := rand.New(rand.NewPCG(seed, 4)), sync.Mutex{}
		roll := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n)
		}
		inWorld(t, scheduler.Config{}, func(w *world) {
			ctx := context.Background()
			defer runStorage(w, w.c)()
			for i := range 3 {
				w.addNode(newNode(fmt.Sprint("n", i)))
			}
			w.must(w.c.StorageClasses.Create(ctx, lateClass("static", "kubernetes.io/no-provisioner")))
			w.must(w.c.StorageClasses.Create(ctx, lateClass("local", "monoplane.dev/local")))
			for i := range volumes {
				w.must(w.c.PersistentVolumes.Create(ctx, localVolume(fmt.Sprint("v", i), "static", fmt.Sprint("n", i%3))))
			}
			for i := range pods {
				w.must(w.c.PersistentVolumeClaims.Create(ctx, claimOf("ns", fmt.Sprint("s", i), "static", "ReadWriteOnce")))
				w.must(w.c.PersistentVolumeClaims.Create(ctx, claimOf("ns", fmt.Sprint("l", i), "local", "ReadWriteOnce")))
			}
			w.server.React(func(_ context.Context, _ string, req any) error {
				if _, event := req.(*corev1rpc.CreateEventRequest); event {
					return nil
				}
				switch roll(15) {
				case 0:
					return apierrors.New(apierrors.ServiceUnavailable, "chaos")
				case 1:
					time.Sleep(time.Duration(roll(2000)) * time.Millisecond) // virtual
				}
				return nil
			})
			for i := range pods {
				p := objects.Use(newPod(fmt.Sprint("p", i)), fmt.Sprint("s", i))
				if i%2 == 0 {
					objects.Use(p, fmt.Sprint("l", i))
				}
				for {
					if _, err := w.c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p}); err == nil {
						break
					}
				}
				if roll(3) == 0 {
					w.server.Cut()
				}
			}
			time.Sleep(2 * time.Minute) // virtual
			w.server.React(nil)
			time.Sleep(20 * time.Minute) // virtual: a wait for a volume lasts ten minutes at most
			synctest.Wait()
			w.checkVolumes(seed, volumes)
		})
		if t.Failed() {
			return
		}
	}
}

func (w *world) checkVolumes(seed uint64, want int) {
	w.Helper()
	ctx := context.Background()
	list, err := w.c.Pods.List(ctx, &metav1.ListRequest{})
	w.must(nil, err)
	bound, owner := 0, map[string]string{}
	for _, p := range list.GetItems() {
		node := p.GetSpec().GetNodeName()
		if node == "" {
			continue
		}
		bound++
		for _, v := range p.GetSpec().GetVolumes() {
			name := v.GetVolumeSource().GetPersistentVolumeClaim().GetClaimName()
			o, err := w.c.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: name})
			w.must(nil, err)
			volume := o.GetSpec().GetVolumeName()
			if o.GetStatus().GetPhase() != "Bound" || owner[volume] != "" {
				w.Errorf("seed %d: claim %s of a bound pod is %v; the volume was seen with %q", seed, name, o, owner[volume])
				continue
			}
			owner[volume] = name
			pv, err := w.c.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: volume})
			w.must(nil, err)
			term := pv.GetSpec().GetNodeAffinity().GetRequired().GetNodeSelectorTerms()[0]
			host := term.GetMatchExpressions()[0].GetValues()[0]
			if host != node {
				w.Errorf("seed %d: pod %s is on %s, its volume %s on %s", seed, p.GetMetadata().GetName(), node, volume, host)
			}
		}
	}
	if bound != want {
		for _, p := range list.GetItems() {
			w.Logf("%s: %q %s", p.GetMetadata().GetName(), p.GetSpec().GetNodeName(), reason(p))
		}
		w.Errorf("seed %d: %d pods are bound, there are volumes for %d", seed, bound, want)
	}
}

// Nobody makes the volumes of 100 pods: others are bound all the same, and those give up in time and say so.
func TestSlowProvisionerHoldsNobodyUp(t *testing.T) {
	inWorld(t, scheduler.Config{Binders: 1}, func(w *world) {
		ctx := context.Background()
		defer runStorage(w, w.c)()
		w.addNode(newNode("n1", "cpu=4", "pods=1000"))
		w.must(w.c.StorageClasses.Create(ctx, lateClass("ext", "example.com/slow")))
		for i := range 100 {
			w.must(w.c.PersistentVolumeClaims.Create(ctx, claimOf("ns", fmt.Sprint("c", i), "ext", "ReadWriteOnce")))
			w.addPod(objects.Use(newPod(fmt.Sprint("slow", i)), fmt.Sprint("c", i)))
		}
		synctest.Wait()
		w.addPod(newPod("plain"))
		if got := w.nodeOf("plain"); got != "n1" {
			t.Errorf("the plain pod is on %q", got)
		}
		time.Sleep(10*time.Minute + 15*time.Second) // virtual
		l, err := w.c.Events.List(ctx, &metav1.ListRequest{})
		w.must(nil, err)
		told := false
		for _, e := range l.GetItems() {
			told = told || e.GetInvolvedObject().GetName() == "slow0" && e.GetReason() == "FailedScheduling" &&
				e.GetMessage() == `running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded`
		}
		if !told || w.nodeOf("slow0") != "" {
			t.Error("the pod without its volume was told nothing")
		}
	})
}
