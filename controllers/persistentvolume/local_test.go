package persistentvolume_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/object/storage"
)

// A claim that waits for its first consumer is left alone, also when a volume would do, until the scheduler says where
// to.
func TestWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(newClass("late", storage.NoProvisioner, storage.WaitForFirstConsumer))
		w.addVolume(newVolume("v", "1Gi", "RWO", "late"))
		o := w.addClaim(newClaim("c", "1Gi", "RWO", "late"))
		w.wants("c", "Pending")
		w.told("c", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
		w.addPod("b", "", "c")
		w.told("c", "WaitForPodScheduled", "waiting for pod b to be scheduled")
		w.addPod("a", "", "c")
		w.told("c", "WaitForPodScheduled", "waiting for pods a,b to be scheduled")
		w.wants("c", "Pending")
		w.setVolume("v", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = storage.Reference(o)
			storage.Annotate(v, storage.BoundByController, "yes")
		})
		w.wants("c", "Bound v: Bound")
	})
}

// So it is when the claim and a volume are seen before their class.
func TestWaitsBeforeClassIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == storagev1rpc.StorageClasses_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.server.Cut()
		time.Sleep(time.Minute) // virtual: the other watches are back
		w.addClass(newClass("late", storage.NoProvisioner, storage.WaitForFirstConsumer))
		w.addVolume(newVolume("v", "1Gi", "RWO", "late"))
		w.addClaim(newClaim("c", "1Gi", "RWO", "late"))
		w.wants("c", "Pending")
		w.told("c", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	})
}

func selected(node string) func(*corev1.PersistentVolumeClaim) {
	return func(o *corev1.PersistentVolumeClaim) { storage.Annotate(o, storage.SelectedNode, node) }
}

// A claim of monoplane.dev/local gets a volume that only the selected node can reach, which goes with the claim.
func TestLocal(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addNode("n1")
		w.addClass(newClass("local", "monoplane.dev/local", storage.WaitForFirstConsumer))
		o := w.addClaim(newClaim("c", "1Gi", "RWO", "local"))
		w.wants("c", "Pending")
		w.setClaim("c", selected("n1"))
		name := "pvc-" + o.Metadata.Uid
		w.wants("c", "Bound "+name+": Bound")
		v := w.volume(name)
		if got := v.GetSpec().GetPersistentVolumeSource().GetLocal().GetPath(); got != "/volumes/"+name {
			t.Errorf("path %s", got)
		}
		term := v.GetSpec().GetNodeAffinity().GetRequired().GetNodeSelectorTerms()[0].GetMatchExpressions()[0]
		if term.GetKey() != "kubernetes.io/hostname" || term.GetOperator() != "In" ||
			strings.Join(term.GetValues(), " ") != "host-n1" {
			t.Errorf("node affinity %v", term)
		}
		if s := v.GetSpec(); s.GetPersistentVolumeReclaimPolicy() != "Delete" || s.GetStorageClassName() != "local" ||
			s.GetCapacity()["storage"].GetString_() != "1Gi" ||
			v.GetMetadata().GetAnnotations()[storage.ProvisionedBy] != "monoplane.dev/local" {
			t.Errorf("made %v", v)
		}
		w.told("c", "ProvisioningSucceeded", "Successfully provisioned volume "+name+" using monoplane.dev/local")
		w.deleteClaim("c")
		w.wants("c", "gone")
		w.wantsVolume(name, "gone")
	})
}

// What no local volume can be is refused in words, and the scheduler may choose another node.
func TestLocalRefuses(t *testing.T) {
	block, gold := "Block", "gold"
	path := func(p string) func(*storagev1.StorageClass) {
		return func(o *storagev1.StorageClass) { o.Parameters = map[string]string{"path": p} }
	}
	none := func(*storagev1.StorageClass) {}
	for _, tc := range []struct {
		name  string
		class func(*storagev1.StorageClass)
		claim *corev1.PersistentVolumeClaim
		want  string
	}{
		{"no such node", none, newClaim("c", "1Gi", "RWO", "local", selected("gone")),
			`Failed to get target node: node "gone" not found`},
		{"no such host", none, newClaim("c", "1Gi", "RWO", "local", selected("bare")),
			`node "bare" has no label kubernetes.io/hostname`},
		{"many nodes", none, newClaim("c", "1Gi", "RWX", "local", selected("n1")),
			"a local volume is on one node: it has no access mode ReadWriteMany"},
		{"block", none, newClaim("c", "1Gi", "RWO", "local", selected("n1"),
			func(o *corev1.PersistentVolumeClaim) { o.Spec.VolumeMode = &block }),
			"a local volume is a directory: it has no volumeMode Block"},
		{"selector", none, newClaim("c", "1Gi", "RWO", "local", selected("n1"),
			func(o *corev1.PersistentVolumeClaim) { o.Spec.Selector = &metav1.LabelSelector{} }),
			"claim.spec.selector is not supported"},
		{"a copy", none, newClaim("c", "1Gi", "RWO", "local", selected("n1"),
			func(o *corev1.PersistentVolumeClaim) {
				o.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "d"}
			}), "a local volume begins empty: it has no dataSource"},
		{"attributes", none, newClaim("c", "1Gi", "RWO", "local", selected("n1"),
			func(o *corev1.PersistentVolumeClaim) { o.Spec.VolumeAttributesClassName = &gold }),
			"a local volume has no volumeAttributesClassName"},
		{"relative", path("a/b"), newClaim("c", "1Gi", "RWO", "local", selected("n1")),
			`parameter path: "a/b" is not the clean absolute path of a directory`},
		{"backsteps", path("/a/../b"), newClaim("c", "1Gi", "RWO", "local", selected("n1")),
			`parameter path: "/a/../b" is not the clean absolute path of a directory`},
		{"unknown parameter", func(o *storagev1.StorageClass) { o.Parameters = map[string]string{"size": "1"} },
			newClaim("c", "1Gi", "RWO", "local", selected("n1")), `unknown parameter "size"`},
		{"immediate", func(o *storagev1.StorageClass) { *o.VolumeBindingMode = "Immediate" },
			newClaim("c", "1Gi", "RWO", "local"),
			"a local volume is made on the node of the pod that uses it: the class must have volumeBindingMode " +
				"WaitForFirstConsumer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.addNode("n1")
				_, err := w.c.Nodes.Create(w.Context(),
					&corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "bare"}}})
				w.must(err)
				w.addClass(newClass("local", "monoplane.dev/local", storage.WaitForFirstConsumer, tc.class))
				w.addClaim(tc.claim)
				w.wants("c", "Pending")
				if storage.Has(w.claim("c"), storage.SelectedNode) {
					t.Error("the node is still selected")
				}
				w.told("c", "ProvisioningFailed", `Failed to provision volume with StorageClass "local": `+tc.want)
			})
		})
	}
}

// The class says where on the node.
func TestLocalPath(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addNode("n1")
		w.addClass(newClass("local", "monoplane.dev/local", storage.WaitForFirstConsumer, func(o *storagev1.StorageClass) {
			retain := "Retain"
			o.Parameters, o.ReclaimPolicy = map[string]string{"path": "/mnt/disks"}, &retain
		}))
		o := w.addClaim(newClaim("c", "1Gi", "RWOP", "local", selected("n1")))
		name := "pvc-" + o.Metadata.Uid
		w.wants("c", "Bound "+name+": Bound")
		if got := w.volume(name).GetSpec().GetPersistentVolumeSource().GetLocal().GetPath(); got != "/mnt/disks/"+name {
			t.Errorf("path %s", got)
		}
		w.deleteClaim("c")
		w.wantsVolume(name, "Released")
	})
}

// ownVolume makes a volume for a claim in the own directory of node n1, bound, and returns its name.
func (w *world) ownVolume() string {
	w.Helper()
	_, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"kubernetes.io/hostname": "host-n1"},
			Annotations: map[string]string{"monoplane.dev/volumes-directory": "/data/volumes"}},
	}})
	w.must(err)
	w.addClass(newClass("local", "monoplane.dev/local", storage.WaitForFirstConsumer))
	o := w.addClaim(newClaim("c", "1Gi", "RWO", "local", selected("n1")))
	name := "pvc-" + o.Metadata.Uid
	w.wants("c", "Bound "+name+": Bound")
	if got := w.volume(name).GetSpec().GetPersistentVolumeSource().GetLocal().GetPath(); got != "/data/volumes/"+name {
		w.Errorf("path %s", got)
	}
	if w.asked(name) > 0 {
		w.Error("removed while a claim has it")
	}
	return name
}

// refuse has agents answer with an error to who asks them to remove a directory.
func (w *world) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = err
}

// asked says how often the agent of n1 has been asked to remove a volume, and nothing else.
func (w *world) asked(name string) int {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.removed {
		if r != "n1 "+name {
			w.Errorf("an agent was asked to remove %s", r)
		}
	}
	return len(w.removed)
}

// A volume in the own directory of a node goes with its claim, after its directory: it stays while the agent is away
// or fails, and says why.
func TestOwnDirectory(t *testing.T) {
	inWorld(t, func(w *world) {
		name := w.ownVolume()
		w.refuse(apierrors.New(apierrors.ServiceUnavailable, "away"))
		w.deleteClaim("c")
		time.Sleep(time.Hour)
		w.wants("c", "gone")
		w.wantsVolume(name, "Released")
		if n := w.asked(name); n < 100 {
			t.Errorf("asked %d times in an hour", n)
		}
		before := w.asked(name)
		w.refuse(apierrors.New(apierrors.Conflict, "a pod has it"))
		time.Sleep(time.Minute)
		w.wantsVolume(name, "Released")
		if n := w.asked(name) - before; n < 10 || n > 15 {
			t.Errorf("asked %d times in a minute", n)
		}
		w.refuse(errors.New("disk is broken"))
		w.told(name, "VolumeFailedDelete", "disk is broken")
		w.wantsVolume(name, "Released")
		w.refuse(nil)
		time.Sleep(time.Minute)
		w.wantsVolume(name, "gone")
	})
}

// Whoever dies between any two steps leaves nothing behind: the next one finds what is to be done.
func TestOwnDirectoryIsNotForgotten(t *testing.T) {
	for _, step := range []string{"PersistentVolumes/Delete", "PersistentVolumes/Update"} {
		inWorld(t, func(w *world) {
			name := w.ownVolume()
			w.setVolume(name, func(v *corev1.PersistentVolume) {
				v.Metadata.Finalizers = []string{storage.VolumeProtection}
			})
			w.refuse(apierrors.New(apierrors.ServiceUnavailable, "away"))
			w.deleteClaim("c")
			w.wantsVolume(name, "Released")
			w.server.React(func(_ context.Context, method string, _ any) error {
				if strings.HasSuffix(method, step) {
					return apierrors.New(apierrors.ServiceUnavailable, "dead")
				}
				return nil
			})
			w.refuse(nil)
			time.Sleep(time.Minute)
			w.wantsVolume(name, "Released")
			before := w.asked(name)
			w.server.React(nil)
			w.registry = prometheus.NewRegistry()
			defer w.start()() // of two, each may be the one that ends it
			time.Sleep(time.Minute)
			w.wantsVolume(name, "gone")
			if w.asked(name) == before {
				t.Errorf("before %s, the directory may have been made anew by then: nobody has looked", step)
			}
		})
	}
}

// A volume whose Node is gone, or has no such directory any more, goes without anybody's help.
func TestOwnDirectoryGoesWithItsNode(t *testing.T) {
	inWorld(t, func(w *world) {
		name := w.ownVolume()
		w.refuse(apierrors.New(apierrors.ServiceUnavailable, "away"))
		w.deleteClaim("c")
		time.Sleep(time.Minute)
		w.wantsVolume(name, "Released")
		_, err := w.c.Nodes.Delete(w.Context(), &metav1.DeleteRequest{Name: "n1"})
		w.must(err)
		time.Sleep(time.Minute)
		w.wantsVolume(name, "gone")
	})
}

// What a user does to a volume counts: one that is to be kept is, with its directory, and one that is deleted goes
// after its claim and its directory.
func TestOwnDirectoryAndUser(t *testing.T) {
	inWorld(t, func(w *world) {
		name := w.ownVolume()
		w.setVolume(name, func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = "Retain" })
		w.deleteClaim("c")
		w.wantsVolume(name, "Released")
		w.deleteVolume(name)
		w.wantsVolume(name, "gone")
		if w.asked(name) > 0 {
			t.Error("the directory of a volume that is to be kept was removed")
		}
	})
	inWorld(t, func(w *world) {
		name := w.ownVolume()
		w.setVolume(name, func(v *corev1.PersistentVolume) { v.Metadata.Finalizers = []string{storage.VolumeProtection} })
		w.deleteVolume(name)
		time.Sleep(time.Minute)
		w.wants("c", "Bound "+name+": Bound")
		w.refuse(apierrors.New(apierrors.ServiceUnavailable, "away"))
		w.deleteClaim("c")
		time.Sleep(time.Minute)
		w.wantsVolume(name, "Released")
		w.refuse(nil)
		time.Sleep(time.Minute)
		w.wantsVolume(name, "gone")
		if w.asked(name) == 0 {
			t.Error("the directory is left")
		}
	})
}
