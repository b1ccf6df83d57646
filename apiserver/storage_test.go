package apiserver_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
)

func gigabytes(n string) map[string]*metav1.Quantity {
	return map[string]*metav1.Quantity{"storage": {String_: n + "Gi"}}
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.PersistentVolumeSpec{
		Capacity: gigabytes("1"), AccessModes: []string{"ReadWriteOnce"},
		PersistentVolumeSource: &corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
	}}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, Resources: &corev1.VolumeResourceRequirements{Requests: gigabytes("1")},
		}}
}

// class creates a class, which is the default one if the annotation is given.
func (c *cluster) class(name, annotation string, expands bool) *storagev1.StorageClass {
	c.t.Helper()
	class := &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: "example.com/p",
		AllowVolumeExpansion: &expands}
	if annotation != "" {
		class.Metadata.Annotations = map[string]string{annotation: "true"}
	}
	return must(c.admin().StorageClasses.Create(ctx(c.t), &storagev1rpc.CreateStorageClassRequest{Object: class}))(c.t)
}

func (c *cluster) claim(o *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	return must(c.admin().PersistentVolumeClaims.Create(ctx(c.t),
		&corev1rpc.CreatePersistentVolumeClaimRequest{Object: o}))(c.t)
}

// spec: OBJ-5, DEL-6
func TestPersistentVolumes(t *testing.T) {
	c := start(t)
	admin, controller := c.admin(), c.controller("persistentvolume")
	asked := newVolume("v")
	asked.Status = &corev1.PersistentVolumeStatus{Phase: "Bound"}
	v := must(admin.PersistentVolumes.Create(ctx(t), &corev1rpc.CreatePersistentVolumeRequest{Object: asked}))(t)
	if v.Spec.PersistentVolumeReclaimPolicy != "Retain" || v.Spec.GetVolumeMode() != "Filesystem" ||
		v.Status.Phase != "Pending" ||
		!value.GoTime(v.Status.LastPhaseTransitionTime).Equal(epoch) || len(v.Metadata.Finalizers) != 1 ||
		v.Metadata.Finalizers[0] != "kubernetes.io/pv-protection" {
		t.Fatalf("created: %v", v)
	}

	c.clock.Step(time.Minute)
	next := clone(v)
	next.Status.Phase, next.Spec.StorageClassName = "Available", "ignored"
	v = must(controller.PersistentVolumes.UpdateStatus(ctx(t), &corev1rpc.UpdatePersistentVolumeRequest{Object: next}))(t)
	if v.Status.Phase != "Available" || v.Spec.StorageClassName != "" ||
		!value.GoTime(v.Status.LastPhaseTransitionTime).Equal(epoch.Add(time.Minute)) {
		t.Errorf("status: %v", v)
	}
	c.clock.Step(time.Minute)
	same := clone(v)
	same.Status.LastPhaseTransitionTime, same.Status.Message = nil, "m"
	v = must(controller.PersistentVolumes.UpdateStatus(ctx(t), &corev1rpc.UpdatePersistentVolumeRequest{Object: same}))(t)
	if v.Status.Message != "m" || !value.GoTime(v.Status.LastPhaseTransitionTime).Equal(epoch.Add(time.Minute)) {
		t.Errorf("the phase has not changed: %v", v.Status)
	}

	// The scheduler keeps the volume for a claim; the status of the request is not looked at.
	bound := clone(v)
	bound.Spec.ClaimRef, bound.Status.Phase = &corev1.ObjectReference{Namespace: "default", Name: "c"}, "Failed"
	v = must(c.scheduler().PersistentVolumes.Update(ctx(t), &corev1rpc.UpdatePersistentVolumeRequest{Object: bound}))(t)
	if v.Spec.ClaimRef.GetName() != "c" || v.Status.Phase != "Available" {
		t.Errorf("kept: %v", v)
	}
	moved := clone(v)
	moved.Spec.PersistentVolumeSource.HostPath.Path = "/other"
	if _, err := admin.PersistentVolumes.Update(ctx(t),
		&corev1rpc.UpdatePersistentVolumeRequest{Object: moved}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("moved: %v", err)
	}

	marked := must(admin.PersistentVolumes.Delete(ctx(t), &metav1.DeleteRequest{Name: "v"}))(t)
	if marked.Metadata.DeletionTimestamp == nil {
		t.Errorf("deleted: %v", marked)
	}
	again := must(admin.PersistentVolumes.Delete(ctx(t), &metav1.DeleteRequest{Name: "v"}))(t)
	if again.Metadata.ResourceVersion != marked.Metadata.ResourceVersion {
		t.Error("deleted twice")
	}
	released := clone(marked)
	released.Metadata.Finalizers = nil
	must(controller.PersistentVolumes.Update(ctx(t), &corev1rpc.UpdatePersistentVolumeRequest{Object: released}))(t)
	if _, err := admin.PersistentVolumes.Get(ctx(t), &metav1.GetRequest{Name: "v"}); !apierrors.Is(err,
		apierrors.NotFound) {
		t.Errorf("still there: %v", err)
	}
}

// spec: OBJ-5, DEL-6
func TestPersistentVolumeClaims(t *testing.T) {
	c := start(t)
	admin, controller := c.admin(), c.controller("persistentvolume")
	c.class("fixed", "", false)
	c.class("elastic", "", true)
	var told metadata.MD
	update := func(o *corev1.PersistentVolumeClaim,
		change func(*corev1.PersistentVolumeClaim)) (*corev1.PersistentVolumeClaim, error) {
		next := clone(o)
		change(next)
		told = nil
		return admin.PersistentVolumeClaims.Update(ctx(t), &corev1rpc.UpdatePersistentVolumeClaimRequest{Object: next},
			grpc.Header(&told))
	}
	grow := func(o *corev1.PersistentVolumeClaim) { o.Spec.Resources.Requests = gigabytes("2") }
	for _, class := range []string{"fixed", "elastic", "missing", ""} {
		o := newClaim("claim-" + class + "x")
		o.Spec.StorageClassName = &class
		p := c.claim(o)
		if p.Spec.GetVolumeMode() != "Filesystem" || p.Status.Phase != "Pending" ||
			strings.Join(p.Metadata.Finalizers, " ") != "kubernetes.io/pvc-protection" {
			t.Fatalf("created: %v", p)
		}
		if _, err := update(p, grow); !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%q: a claim that is not bound grows: %v", class, err)
		}
		p = must(update(p, func(o *corev1.PersistentVolumeClaim) { o.Spec.VolumeName = "v" }))(t)
		if _, err := update(p, func(o *corev1.PersistentVolumeClaim) { o.Spec.VolumeName = "w" }); !apierrors.Is(err,
			apierrors.Invalid) {
			t.Errorf("%q: bound to another volume: %v", class, err)
		}
		next := clone(p)
		next.Status = &corev1.PersistentVolumeClaimStatus{Phase: "Bound", Capacity: gigabytes("1"),
			AccessModes: []string{"ReadWriteOnce"}}
		next.Spec.VolumeName = "ignored"
		p = must(controller.PersistentVolumeClaims.UpdateStatus(ctx(t),
			&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: next}))(t)
		if p.Status.Phase != "Bound" || p.Spec.VolumeName != "v" {
			t.Errorf("%q: status: %v", class, p)
		}
		switch grown, err := update(p, grow); {
		case class == "elastic" && (err != nil || grown.Spec.Resources.Requests["storage"].String_ != "2Gi"):
			t.Errorf("%q: %v, %v", class, grown, err)
		case class == "elastic":
			const want = "spec.resources.requests.storage: kept but has no effect in this version: nothing expands volumes"
			if got := told.Get("warning"); !slices.Equal(got, []string{want}) {
				t.Errorf("%q: told %q", class, got)
			}
		case class != "elastic" &&
			(!apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(err.Error(), "must support resize")):
			t.Errorf("%q: grown: %v", class, err)
		}
	}
	all := must(controller.PersistentVolumeClaims.List(ctx(t), &metav1.ListRequest{}))(t)
	if len(all.Items) != 4 {
		t.Fatalf("%d claims", len(all.Items))
	}
	if l := must(admin.PersistentVolumeClaims.List(ctx(t),
		&metav1.ListRequest{FieldSelector: "name=claim-x"}))(t); len(l.Items) != 1 {
		t.Errorf("%d claims of that name", len(l.Items))
	}
	must(admin.PersistentVolumeClaims.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default"}))(t)
	for _, p := range must(admin.PersistentVolumeClaims.List(ctx(t),
		&metav1.ListRequest{Namespace: "default"}))(t).Items {
		if p.Metadata.DeletionTimestamp == nil {
			t.Errorf("not deleted: %v", p.Metadata)
		}
		next := clone(p)
		next.Metadata.Finalizers = nil
		must(controller.PersistentVolumeClaims.Update(ctx(t),
			&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: next}))(t)
	}
	if l := must(admin.PersistentVolumeClaims.List(ctx(t), &metav1.ListRequest{}))(t); len(l.Items) != 0 {
		t.Errorf("%d claims left", len(l.Items))
	}
}

func TestDefaultStorageClass(t *testing.T) {
	const annotation, beta = "storageclass.kubernetes.io/is-default-class",
		"storageclass.beta.kubernetes.io/is-default-class"
	c := start(t)
	class := func(name string, change func(*corev1.PersistentVolumeClaim)) string {
		o := newClaim(name)
		if change != nil {
			change(o)
		}
		p := c.claim(o)
		if p.Spec.StorageClassName == nil {
			return "none"
		}
		return p.Spec.GetStorageClassName()
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: class %q, want %q", what, got, want)
		}
	}
	made := c.class("plain", "", false)
	if made.GetReclaimPolicy() != "Delete" || made.GetVolumeBindingMode() != "Immediate" {
		t.Errorf("created: %v", made)
	}
	want("no default", class("a", nil), "none")
	c.class("zebra", beta, false)
	want("old annotation", class("b", nil), "zebra")
	c.class("badger", annotation, false)
	want("equally new", class("c", nil), "badger")
	c.clock.Step(time.Second)
	c.class("young", annotation, false)
	want("newest", class("d", nil), "young")
	want("no class is wanted", class("e", func(o *corev1.PersistentVolumeClaim) { o.Spec.StorageClassName = ptr("") }),
		"")
	want("named", class("f", func(o *corev1.PersistentVolumeClaim) { o.Spec.StorageClassName = ptr("plain") }), "plain")
	want("named in the old way", class("g", func(o *corev1.PersistentVolumeClaim) {
		o.Metadata.Annotations = map[string]string{"volume.beta.kubernetes.io/storage-class": "plain"}
	}), "none")
	next := clone(made)
	next.Provisioner = "example.com/other"
	if _, err := c.admin().StorageClasses.Update(ctx(t),
		&storagev1rpc.UpdateStorageClassRequest{Object: next}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("another provisioner: %v", err)
	}
	must(c.admin().StorageClasses.Delete(ctx(t), &metav1.DeleteRequest{Name: "young"}))(t)
	want("deleted", class("h", nil), "badger")
}

// Components see and write what their work needs, and no more.
func TestWhoMayUseStorage(t *testing.T) {
	c := start(t)
	v := must(c.admin().PersistentVolumes.Create(ctx(t),
		&corev1rpc.CreatePersistentVolumeRequest{Object: newVolume("v")}))(t)
	p := c.claim(newClaim("p"))
	c.class("s", "", false)
	for name, who := range map[string]struct {
		client                                       client
		list, write, writeStatus, makeVolume, classy bool
	}{
		"scheduler": {client: c.scheduler(), list: true, write: true, classy: true},
		"controller": {client: c.controller("persistentvolume"), list: true, write: true, writeStatus: true,
			makeVolume: true, classy: true},
		"agent": {client: c.agent("n1")},
	} {
		s := who.client
		check := func(what string, allowed bool, err error) {
			t.Helper()
			if allowed && err != nil || !allowed && !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		_, err := s.PersistentVolumes.List(ctx(t), &metav1.ListRequest{})
		check("list volumes", who.list, err)
		_, err = s.PersistentVolumeClaims.List(ctx(t), &metav1.ListRequest{})
		check("list claims", who.list, err)
		_, err = s.StorageClasses.List(ctx(t), &metav1.ListRequest{})
		check("list classes", who.classy, err)
		patch := func() *metav1.PatchRequest {
			return &metav1.PatchRequest{Namespace: "default", Name: "p", PatchType: "application/merge-patch+json",
				Patch: []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"` + name + `"}}}`)}
		}
		_, err = s.PersistentVolumeClaims.Patch(ctx(t), patch())
		check("select a node", who.write, err)
		o := clone(v)
		o.Metadata.ResourceVersion = ""
		_, err = s.PersistentVolumes.Update(ctx(t), &corev1rpc.UpdatePersistentVolumeRequest{Object: o})
		check("update a volume", who.write, err)
		_, err = s.PersistentVolumes.UpdateStatus(ctx(t), &corev1rpc.UpdatePersistentVolumeRequest{Object: o})
		check("write a volume's status", who.writeStatus, err)
		q := clone(p)
		q.Metadata.ResourceVersion = ""
		_, err = s.PersistentVolumeClaims.UpdateStatus(ctx(t), &corev1rpc.UpdatePersistentVolumeClaimRequest{Object: q})
		check("write a claim's status", who.writeStatus, err)
		_, err = s.PersistentVolumes.Create(ctx(t),
			&corev1rpc.CreatePersistentVolumeRequest{Object: newVolume("made-by-" + name)})
		check("create a volume", who.makeVolume, err)
		_, err = s.PersistentVolumeClaims.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "p"})
		check("delete a claim", false, err)
	}
}

// spec: OBJ-3
func TestPodsWithClaims(t *testing.T) {
	c := start(t)
	p := newPod("web")
	p.Spec.Volumes = []*corev1.Volume{{Name: "data", VolumeSource: &corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}}}
	p.Spec.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	var header metadata.MD
	must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}, grpc.Header(&header)))(t)
	if w := header.Get("warning"); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	q := newPod("empty")
	q.Spec.Volumes = []*corev1.Volume{{Name: "data"}}
	if q = must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: q}))(t); q.Spec.Volumes[0].
		GetVolumeSource().GetEmptyDir() == nil {
		t.Errorf("a volume without a source: %v", q.Spec.Volumes)
	}
}
