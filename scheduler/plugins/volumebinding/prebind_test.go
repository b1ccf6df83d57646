package volumebinding

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

// cluster is a server with a volume, a claim that is to take it, and one that a volume is to be made for, on n1.
type cluster struct {
	*testing.T
	server *apitest.Server
	// api is the administrator's.
	api  *client.Client
	v    *corev1.PersistentVolume
	c, m *corev1.PersistentVolumeClaim
	pod  *corev1.Pod
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	k := &cluster{T: t, server: apitest.Start(t)}
	k.server.Namespaces(t, "ns")
	k.api = k.server.Admin()
	ctx, api := context.Background(), k.api
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	k.v, err = api.PersistentVolumes.Create(ctx,
		&corev1rpc.CreatePersistentVolumeRequest{Object: volume("v", "1Gi", "n1")})
	must()
	k.v = object.Clone(k.v)
	k.v.Status = &corev1.PersistentVolumeStatus{Phase: "Available"}
	k.v, err = api.PersistentVolumes.UpdateStatus(ctx, &corev1rpc.UpdatePersistentVolumeRequest{Object: k.v})
	must()
	k.c, err = api.PersistentVolumeClaims.Create(ctx, &corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: "ns",
		Object: claim("c", "1Gi", "")})
	must()
	k.m, err = api.PersistentVolumeClaims.Create(ctx, &corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: "ns",
		Object: claim("m", "1Gi", "")})
	must()
	k.pod, err = api.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "ns", Object: using("c", "m").Pod})
	must()
	return k
}

// plan is the cycle of the decision.
func (k *cluster) plan() *framework.CycleState {
	cycle := framework.NewCycleState(framework.NewSnapshot())
	cycle.Pick(&corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1",
		Labels: map[string]string{storage.HostnameLabel: "n1"}}})
	cycle.PlanVolumes(&framework.VolumePlan{
		Node: "n1", Bind: []framework.VolumeChoice{{Volume: Volume(k.v), Claim: framework.NewClaimInfo(k.c)}},
		Provision: []*framework.ClaimInfo{framework.NewClaimInfo(k.m)},
	})
	return cycle
}

func (k *cluster) setVolume(change func(v *corev1.PersistentVolume)) {
	k.Helper()
	v, err := k.api.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: "v"})
	if err == nil {
		v = object.Clone(v)
		change(v)
		if _, err = k.api.PersistentVolumes.Update(context.Background(),
			&corev1rpc.UpdatePersistentVolumeRequest{Object: v}); err == nil {
			v.Metadata.ResourceVersion = ""
			_, err = k.api.PersistentVolumes.UpdateStatus(context.Background(),
				&corev1rpc.UpdatePersistentVolumeRequest{Object: v})
		}
	}
	if err != nil {
		k.Fatal(err)
	}
}

func (k *cluster) setClaim(name string, change func(c *corev1.PersistentVolumeClaim)) {
	k.Helper()
	o, err := k.claim(name)
	if err == nil {
		o = object.Clone(o)
		change(o)
		_, err = k.api.PersistentVolumeClaims.Update(context.Background(),
			&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o})
	}
	if err != nil {
		k.Fatal(err)
	}
}

func (k *cluster) claim(name string) (*corev1.PersistentVolumeClaim, error) {
	return k.api.PersistentVolumeClaims.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: name})
}

func (k *cluster) delete(what string) {
	k.Helper()
	var err error
	switch what {
	case "v":
		_, err = k.api.PersistentVolumes.Delete(context.Background(), &metav1.DeleteRequest{Name: "v"})
	case "p":
		zero := int64(0)
		_, err = k.api.Pods.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: "p",
			GracePeriodSeconds: &zero})
	default:
		_, err = k.api.PersistentVolumeClaims.Delete(context.Background(),
			&metav1.DeleteRequest{Namespace: "ns", Name: what})
	}
	if err != nil {
		k.Fatal(err)
	}
}

// gone deletes something and gives up its protection, as the controller does when nobody uses it.
func (k *cluster) gone(what string) {
	k.Helper()
	k.delete(what)
	switch what {
	case "v":
		v, err := k.api.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: "v"})
		if err == nil {
			v = object.Clone(v)
			v.Metadata.Finalizers = nil
			_, err = k.api.PersistentVolumes.Update(context.Background(), &corev1rpc.UpdatePersistentVolumeRequest{Object: v})
		}
		if err != nil {
			k.Fatal(err)
		}
		if v, err := k.api.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: "v"}); !apierrors.Is(err,
			apierrors.NotFound) {
			k.Fatalf("there is still %v, %v", v, err)
		}
	case "p":
	default:
		k.setClaim(what, func(c *corev1.PersistentVolumeClaim) { c.Metadata.Finalizers = nil })
	}
}

// bound finishes a claim as the controller does.
func bound(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = volume
		storage.Annotate(c, storage.BindCompleted, "yes")
	}
}

// What has changed since the decision ends the binding with a reason, and nothing of it is written over.
// spec: SCHED-3, ATT-2
func TestPreBindLooksFirst(t *testing.T) {
	type pv = *corev1.PersistentVolume
	type pvc = *corev1.PersistentVolumeClaim
	again := func(k *cluster, name string) {
		k.gone(name)
		o := claim(name, "1Gi", "")
		o.Metadata.Uid = "another"
		_, err := k.api.PersistentVolumeClaims.Create(context.Background(),
			&corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: "ns", Object: o})
		if err != nil {
			k.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(k *cluster)
		want   string
	}{
		{"the volume is another's", func(k *cluster) {
			k.setVolume(func(v pv) { v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "x", Uid: "x"} })
		}, "volume v is not what it was"},
		{"the volume is not available", func(k *cluster) { k.setVolume(func(v pv) { v.Status.Phase = "Failed" }) },
			"volume v is not what it was"},
		{"the volume is smaller", func(k *cluster) { k.setVolume(func(v pv) { v.Spec.Capacity = size("1Mi") }) },
			"volume v is not what it was"},
		{"the volume is gone", func(k *cluster) { k.gone("v") }, `persistentvolume "v" not found`},
		{"the claim took another", func(k *cluster) { k.setClaim("c", bound("w")) },
			`claim ns/c is bound to volume "w" meanwhile`},
		{"the claim is gone", func(k *cluster) { k.gone("c") }, `persistentvolumeclaim "c" not found`},
		{"the claim is another", func(k *cluster) { again(k, "c") }, "claim ns/c is another one"},
		{"the other claim is another", func(k *cluster) { again(k, "m") }, "claim ns/m is another one"},
		{"the other claim is going", func(k *cluster) {
			k.delete("m") // a pod uses it, so that it stays
		}, `persistentvolumeclaim "m" is being deleted`},
		{"the other is made elsewhere", func(k *cluster) {
			k.setClaim("m", func(c pvc) { storage.Annotate(c, storage.SelectedNode, "n2") })
		}, "the volume of claim ns/m is being made on node n2"},
		{"the volume was made elsewhere", func(k *cluster) {
			k.gone("v")
			_, err := k.api.PersistentVolumes.Create(context.Background(),
				&corev1rpc.CreatePersistentVolumeRequest{Object: volume("v", "1Gi", "n2")})
			if err != nil {
				k.Fatal(err)
			}
			k.setClaim("c", bound("v"))
			k.setVolume(func(v pv) { v.Spec.ClaimRef = storage.Reference(k.c) })
		}, `pv "v" node affinity doesn't match node "n1"`},
		{"the pod is gone", func(k *cluster) { k.gone("p") }, "pod does not exist any more"},
		{"the pod is another", func(k *cluster) {
			k.gone("p")
			p := using("c", "m").Pod
			p.Metadata.Uid = "another"
			_, err := k.api.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p})
			if err != nil {
				k.Fatal(err)
			}
		}, "pod does not exist any more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCluster(t)
				tc.change(k)
				before, _ := k.api.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: "v"})
				began := time.Now()
				got := newPlugin(t, k.server.Scheduler()).PreBind(context.Background(), k.plan(), framework.NewPodInfo(k.pod),
					"n1")
				want := `running PreBind plugin "VolumeBinding": binding volumes: ` + tc.want
				if got.Code() != framework.Error || got.Message() != want || time.Since(began) != 0 {
					t.Errorf("%v %q after %v, want %q", got.Code(), got.Message(), time.Since(began), want)
				}
				after, _ := k.api.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: "v"})
				about := strings.HasPrefix(tc.name, "the volume is") || strings.HasPrefix(tc.name, "the claim")
				if about && before.GetMetadata().GetResourceVersion() != after.GetMetadata().GetResourceVersion() {
					t.Error("the volume was written")
				}
			})
		})
	}
}

// The pod passes when both claims are bound, and not before.
func TestPreBindWaits(t *testing.T) {
	volumes := map[string]string{"c": "v", "m": "made"}
	for _, order := range [][]string{{"c", "m"}, {"m", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			k := newCluster(t)
			made := volume("made", "1Gi", "n1")
			if _, err := k.api.PersistentVolumes.Create(context.Background(),
				&corev1rpc.CreatePersistentVolumeRequest{Object: made}); err != nil {
				t.Fatal(err)
			}
			done := make(chan *framework.Status, 1)
			go func() {
				done <- newPlugin(t, k.server.Scheduler()).PreBind(context.Background(), k.plan(), framework.NewPodInfo(k.pod),
					"n1")
			}()
			for _, name := range order {
				time.Sleep(2 * patience) // virtual; nobody tells it of changes here
				synctest.Wait()
				if len(done) > 0 {
					t.Errorf("it did not wait for claim %s: %s", name, (<-done).Message())
					return
				}
				k.setClaim(name, bound(volumes[name]))
			}
			if s := <-done; !s.IsSuccess() {
				t.Error(s.Message())
			}
			v, err := k.api.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: "v"})
			if err != nil || v.GetSpec().GetClaimRef().GetUid() != k.c.GetMetadata().GetUid() {
				t.Errorf("the volume is %v, %v", v, err)
			}
			if m, err := k.claim("m"); err != nil || m.GetMetadata().GetAnnotations()[storage.SelectedNode] != "n1" {
				t.Errorf("the claim is %v, %v", m, err)
			}
		})
	}
}
