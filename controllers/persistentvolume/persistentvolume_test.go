package persistentvolume_test

import (
	"context"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object/storage"
)

// Which volume a claim gets when all are there before it.
func TestMatch(t *testing.T) {
	block, files := "Block", "Filesystem"
	for _, tc := range []struct {
		name    string
		claim   *corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		want    string
	}{
		{"the smallest that is large enough", newClaim("c", "2Gi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", ""), newVolume("b", "5Gi", "RWO", ""), newVolume("c", "3Gi", "RWO", ""),
		}, "c"},
		{"sizes are amounts, not texts", newClaim("c", "1000Mi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("a", "1G", "RWO", ""), newVolume("b", "10Gi", "RWO", ""), newVolume("c", "2Gi", "RWO", ""),
		}, "c"},
		{"the fewest access modes come before the size", newClaim("c", "1Gi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO,RWX", ""), newVolume("b", "5Gi", "RWO", ""),
		}, "b"},
		{"all access modes", newClaim("c", "1Gi", "RWO,ROX", ""), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", ""), newVolume("b", "5Gi", "RWO,RWX,ROX", ""),
		}, "b"},
		{"the class", newClaim("c", "1Gi", "RWO", "fast"), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", ""), newVolume("b", "5Gi", "RWO", "fast"), newVolume("c", "5Gi", "RWO", "slow"),
		}, "b"},
		{"the class of the old annotation", newClaim("c", "1Gi", "RWO", "slow", func(o *corev1.PersistentVolumeClaim) {
			o.Metadata.Annotations = map[string]string{storage.BetaClass: "fast"}
		}), []*corev1.PersistentVolume{newVolume("a", "1Gi", "RWO", "slow"), newVolume("b", "5Gi", "RWO", "fast")}, "b"},
		{"the volume mode", newClaim("c", "1Gi", "RWO", "",
			func(o *corev1.PersistentVolumeClaim) { o.Spec.VolumeMode = &block }),
			[]*corev1.PersistentVolume{
				newVolume("a", "1Gi", "RWO", ""), newVolume("b", "5Gi", "RWO", "",
					func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &block }),
			}, "b"},
		{"files when nothing is said", newClaim("c", "1Gi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("b", "5Gi", "RWO", "", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &files }),
		}, "b"},
		{"the selector", newClaim("c", "1Gi", "RWO", "", func(o *corev1.PersistentVolumeClaim) {
			o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"k": "v"},
				MatchExpressions: []*metav1.LabelSelectorRequirement{
					{Key: "x", Operator: "NotIn", Values: []string{"1"}},
				}}
		}), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", ""),
			newVolume("b", "5Gi", "RWO", "",
				func(v *corev1.PersistentVolume) { v.Metadata.Labels = map[string]string{"k": "v"} }),
			newVolume("c", "2Gi", "RWO", "", func(v *corev1.PersistentVolume) {
				v.Metadata.Labels = map[string]string{"k": "v",
					"x": "1"}
			}),
		}, "b"},
		{"one that is set aside for it", newClaim("c", "1Gi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", ""), newVolume("b", "5Gi", "RWO", "", claimed("ns", "c", "")),
		}, "b"},
		{"none that is set aside for another", newClaim("c", "1Gi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", "", claimed("ns", "other", "")), newVolume("b", "1Gi", "RWO", "",
				claimed("other", "c", "")),
		}, ""},
		{"none that was bound to a claim of the same name", newClaim("c", "1Gi", "RWO", ""), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", "", claimed("ns", "c", "another-uid")),
		}, ""},
		{"the one that it names", newClaim("c", "1Gi", "RWO", "", naming("b")), []*corev1.PersistentVolume{
			newVolume("a", "1Gi", "RWO", ""), newVolume("b", "5Gi", "RWO", ""),
		}, "b"},
		{"none if the one that it names is too small", newClaim("c", "8Gi", "RWO", "", naming("b")),
			[]*corev1.PersistentVolume{
				newVolume("a", "9Gi", "RWO", ""), newVolume("b", "5Gi", "RWO", ""),
			}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				for _, v := range tc.volumes {
					w.addVolume(v)
				}
				w.wantsVolume(tc.volumes[0].Metadata.Name, map[bool]string{true: "Available",
					false: "Released"}[tc.volumes[0].Spec.ClaimRef.GetUid() == ""])
				o := w.addClaim(tc.claim)
				if tc.want == "" {
					if w.claim("c").GetStatus().GetPhase() != "Pending" {
						t.Errorf("the claim is %s", w.say("c"))
					}
					return
				}
				w.wants("c", "Bound "+tc.want+": Bound")
				if ref := w.volume(tc.want).GetSpec().GetClaimRef(); ref.GetUid() != o.GetMetadata().GetUid() ||
					ref.GetNamespace() != "ns" || ref.GetName() != "c" {
					t.Errorf("the volume is bound to %v", ref)
				}
				s := w.claim("c").GetStatus()
				if s.GetCapacity()["storage"].GetString_() != w.volume(tc.want).GetSpec().GetCapacity()["storage"].GetString_() {
					t.Errorf("the claim says %v", s)
				}
			})
		})
	}
}

func claimed(namespace, name, uid string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, Uid: uid}
	}
}

func naming(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(o *corev1.PersistentVolumeClaim) { o.Spec.VolumeName = volume }
}

func policy(p string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = p }
}

// Who made which half of a binding is noted: what a user wrote is not taken away later.
func TestAnnotations(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addVolume(newVolume("a", "1Gi", "RWO", ""))
		w.addClaim(newClaim("free", "1Gi", "RWO", ""))
		w.addVolume(newVolume("b", "1Gi", "RWO", "set", claimed("ns", "aside", "")))
		w.addClaim(newClaim("aside", "1Gi", "RWO", "set"))
		w.addVolume(newVolume("c", "1Gi", "RWO", "named"))
		w.addClaim(newClaim("naming", "1Gi", "RWO", "named", naming("c")))
		for _, tc := range []struct {
			claim, volume string
			c, v          bool
		}{{"free", "a", true, true}, {"aside", "b", true, false}, {"naming", "c", false, true}} {
			w.wants(tc.claim, "Bound "+tc.volume+": Bound")
			if !storage.Has(w.claim(tc.claim), storage.BindCompleted) ||
				storage.Has(w.claim(tc.claim), storage.BoundByController) != tc.c ||
				storage.Has(w.volume(tc.volume), storage.BoundByController) != tc.v {
				t.Errorf("%s: claim %v, volume %v", tc.claim, w.claim(tc.claim).Metadata.Annotations,
					w.volume(tc.volume).Metadata.Annotations)
			}
		}
	})
}

// A claim that finds nothing says why, and is bound when what it needs comes.
func TestPending(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClaim(newClaim("none", "1Gi", "RWO", ""))
		w.addClaim(newClaim("gone", "1Gi", "RWO", "gone"))
		w.addClass(newClass("static", storage.NoProvisioner, "Immediate"))
		w.addClaim(newClaim("static", "1Gi", "RWO", "static"))
		w.addClass(newClass("ext", "example.com/disk", "Immediate"))
		w.addClaim(newClaim("ext", "1Gi", "RWO", "ext"))
		w.addVolume(newVolume("small", "1Gi", "RWO", "small", claimed("ns", "other", "")))
		w.addClaim(newClaim("taken", "1Gi", "RWO", "small", naming("small")))
		w.addVolume(newVolume("tiny", "1Mi", "RWO", "tiny"))
		w.addClaim(newClaim("tiny", "1Gi", "RWO", "tiny", naming("tiny")))
		for _, c := range []string{"none", "gone", "static", "ext"} {
			w.wants(c, "Pending")
		}
		w.wants("taken", "Pending small: Available")
		w.told("none", "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
		w.told("gone", "ProvisioningFailed", `storageclass.storage.k8s.io "gone" not found`)
		w.told("static", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner")
		w.told("ext", "ExternalProvisioning",
			"Waiting for a volume to be created either by the external provisioner 'example.com/disk' or manually "+
				"by the system administrator. If volume creation is delayed, please verify that the provisioner is running and "+
				"correctly registered.")
		w.told("taken", "FailedBinding", `volume "small" already bound to a different claim.`)
		w.told("tiny", "VolumeMismatch", `Cannot bind to requested volume "tiny": requested PV is too small`)
		if a := w.claim("ext").GetMetadata().GetAnnotations(); a[storage.Provisioner] != "example.com/disk" ||
			a[storage.BetaProvisioner] != "example.com/disk" {
			t.Errorf("external provisioners are told %v", a)
		}
		for _, c := range []string{"", "gone", "static", "ext"} {
			w.addVolume(newVolume("for-"+c+"x", "2Gi", "RWO", c))
		}
		w.wants("none", "Bound for-x: Bound")
		w.wants("gone", "Bound for-gonex: Bound")
		w.wants("static", "Bound for-staticx: Bound")
		w.wants("ext", "Bound for-extx: Bound")
		w.setVolume("small", func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })
		w.wants("taken", "Bound small: Bound")
	})
}

// A claim that names no class gets the default one, also when that comes later; of several the newest.
func TestDefaultClass(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClaim(newClaim("c", "1Gi", "RWO", "", func(o *corev1.PersistentVolumeClaim) { o.Spec.StorageClassName = nil }))
		w.addClaim(newClaim("none", "1Gi", "RWO", ""))
		w.addClass(newClass("another", "example.com/disk", "Immediate"))
		w.wants("c", "Pending")
		isDefault := func(o *storagev1.StorageClass) {
			o.Metadata.Annotations = map[string]string{storage.DefaultClass: "true"}
		}
		w.addClass(newClass("std", "example.com/disk", "Immediate", isDefault))
		if got := w.claim("c").GetSpec().GetStorageClassName(); got != "std" {
			t.Errorf("class %q", got)
		}
		time.Sleep(2 * time.Second) // virtual
		w.addClass(newClass("zzz", "example.com/disk", "Immediate", isDefault))
		w.wants("c", "Pending")
		w.addClaim(newClaim("d", "1Gi", "RWO", "", func(o *corev1.PersistentVolumeClaim) { o.Spec.StorageClassName = nil }))
		if got := w.claim("d").GetSpec().GetStorageClassName(); got != "zzz" {
			t.Errorf("the later claim has class %q", got)
		}
		if got := w.claim("none").GetSpec().GetStorageClassName(); got != "" {
			t.Errorf("a claim that wants no class got %q", got)
		}
	})
}

// What becomes of a volume whose claim goes.
func TestReclaim(t *testing.T) {
	for _, tc := range []struct {
		name   string
		volume *corev1.PersistentVolume
		want   string
		told   [2]string
	}{
		{"retain", newVolume("v", "1Gi", "RWO", ""), "Released", [2]string{}},
		{"recycle", newVolume("v", "1Gi", "RWO", "", policy("Recycle")), "Failed",
			[2]string{"VolumeFailedRecycle", "No recycler plugin found for the volume!"}},
		{"delete, made by a user", newVolume("v", "1Gi", "RWO", "", policy("Delete")), "Failed",
			[2]string{"VolumeFailedDelete",
				`error getting deleter volume plugin for volume "v": no deletable volume plugin matched`}},
		{"delete, made by us", newVolume("v", "1Gi", "RWO", "", policy("Delete"), madeBy("monoplane.dev/local")), "gone",
			[2]string{}},
		{"delete, made by another", newVolume("v", "1Gi", "RWO", "", policy("Delete"), madeBy("example.com/disk")),
			"Released", [2]string{}},
		{"delete, csi", newVolume("v", "1Gi", "RWO", "", policy("Delete"), func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = &corev1.PersistentVolumeSource{Csi: &corev1.CSIPersistentVolumeSource{Driver: "d",
				VolumeHandle: "h"}}
		}), "Released", [2]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.addVolume(tc.volume)
				w.addClaim(newClaim("c", "1Gi", "RWO", ""))
				w.wants("c", "Bound v: Bound")
				w.deleteClaim("c")
				w.wants("c", "gone")
				w.wantsVolume("v", tc.want)
				if tc.told[0] != "" {
					w.told("v", tc.told[0], tc.told[1])
				}
				w.addClaim(newClaim("c", "1Gi", "RWO", "")) // another one of the same name
				w.wants("c", "Pending")
				if tc.want == "Released" {
					w.setVolume("v", func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })
					w.wants("c", "Bound v: Bound")
				}
			})
		})
	}
}

func madeBy(who string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { storage.Annotate(v, storage.ProvisionedBy, who) }
}

// A claim that loses its volume says so, and never takes another.
func TestLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addVolume(newVolume("v", "1Gi", "RWO", ""))
		w.addClaim(newClaim("c", "1Gi", "RWO", ""))
		w.wants("c", "Bound v: Bound")
		w.deleteVolume("v")
		// by force: it protects a volume in use
		w.setVolume("v", func(v *corev1.PersistentVolume) { v.Metadata.Finalizers = nil })
		w.wants("c", "Lost v: gone")
		w.told("c", "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
		w.addVolume(newVolume("other", "1Gi", "RWO", ""))
		w.wants("c", "Lost v: gone")
		w.wantsVolume("other", "Available")

		w.addVolume(newVolume("mis", "1Gi", "RWO", "m"))
		w.addClaim(newClaim("one", "1Gi", "RWO", "m"))
		w.wants("one", "Bound mis: Bound")
		w.addClaim(newClaim("two", "1Gi", "RWO", "m", naming("mis"), func(o *corev1.PersistentVolumeClaim) {
			storage.Annotate(o, storage.BindCompleted, "yes")
		}))
		w.wants("two", "Lost mis: Bound")
		w.told("two", "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
		w.wants("one", "Bound mis: Bound")

		w.addClaim(newClaim("nameless", "1Gi", "RWO", "",
			func(o *corev1.PersistentVolumeClaim) { storage.Annotate(o, storage.BindCompleted, "yes") }))
		w.wants("nameless", "Lost")
		w.told("nameless", "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
		w.wantsVolume("other", "Available")
	})
}

// A binding that was cut off half way is finished; a volume whose claim took another one is given back.
func TestHalfBound(t *testing.T) {
	inWorld(t, func(w *world) {
		o := w.addClaim(newClaim("c", "1Gi", "RWO", "x"))
		w.addVolume(newVolume("v", "1Gi", "RWO", "x", claimed("ns", "c", o.Metadata.Uid), func(v *corev1.PersistentVolume) {
			storage.Annotate(v, storage.BoundByController, "yes")
		}))
		w.wants("c", "Bound v: Bound")
		w.addVolume(newVolume("w", "1Gi", "RWO", "x", claimed("ns", "c", o.Metadata.Uid), func(v *corev1.PersistentVolume) {
			storage.Annotate(v, storage.BoundByController, "yes")
		}))
		w.wantsVolume("w", "Available")
		if w.volume("w").GetSpec().GetClaimRef() != nil {
			t.Error("the volume is not given back")
		}
		w.addVolume(newVolume("u", "1Gi", "RWO", "x", claimed("ns", "c", o.Metadata.Uid)))
		w.wantsVolume("u", "Available")
		if ref := w.volume("u").GetSpec().GetClaimRef(); ref.GetName() != "c" || ref.GetUid() != "" {
			t.Errorf("what the user wrote became %v", ref)
		}
		w.addVolume(newVolume("made", "1Gi", "RWO", "x", claimed("ns", "c", o.Metadata.Uid), policy("Delete"),
			madeBy("monoplane.dev/local")))
		w.wantsVolume("made", "gone")
		w.setVolume("v", func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })
		w.wants("c", "Bound v: Bound")
	})
}

// Claims and volumes that are in use stay until they are not.
func TestProtection(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addVolume(newVolume("v", "1Gi", "RWO", ""))
		w.addClaim(newClaim("c", "1Gi", "RWO", ""))
		w.addPod("waits", "", "c")
		w.addPod("one", "n1", "c")
		w.addPod("two", "n1", "c")
		w.wants("c", "Bound v: Bound")
		w.deleteVolume("v")
		w.deleteClaim("c")
		w.wants("c", "Bound v: Bound")
		w.endPod("one", "Succeeded")
		w.wants("c", "Bound v: Bound")
		w.endPod("two", "Failed")
		w.wants("c", "gone")
		w.wantsVolume("v", "gone")
	})
}

// A pod that the controller has not heard of protects its claim, too.
func TestProtectionIsLive(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClaim(newClaim("c", "1Gi", "RWO", ""))
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "no watch")
			}
			return nil
		})
		w.server.Cut()
		w.addPod("p", "n1", "c")
		w.deleteClaim("c")
		time.Sleep(time.Minute) // virtual
		if w.claim("c") == nil {
			t.Error("the claim is gone under the pod")
		}
		w.endPod("p", "Succeeded")
		time.Sleep(time.Minute) // virtual: it is looked at again although no watch tells
		w.wants("c", "gone")
	})
}
