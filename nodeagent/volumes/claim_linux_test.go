package volumes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/volumes"
	"monoplane.dev/nodeagent/volumes/mount"
)

func (n *node) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.claims[namespace+"/"+name]; c != nil {
		return c, nil
	}
	return nil, apierrors.New(apierrors.NotFound, "persistentvolumeclaims %q not found", name)
}

func (n *node) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if v := n.pvs[name]; v != nil {
		return v, nil
	}
	return nil, apierrors.New(apierrors.NotFound, "persistentvolumes %q not found", name)
}

// bind makes claim ns/c, bound to volume pv with the storage.
func (n *node) bind(from *corev1.PersistentVolumeSource, modes ...string) (
	*corev1.PersistentVolumeClaim, *corev1.PersistentVolume,
) {
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "c", Uid: "claim-uid"},
		Spec:     &corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:   &corev1.PersistentVolumeClaimStatus{Phase: "Bound"},
	}
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: "pv"},
		Spec: &corev1.PersistentVolumeSpec{
			PersistentVolumeSource: from, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Uid: "claim-uid"},
		},
	}
	n.claims, n.pvs = map[string]*corev1.PersistentVolumeClaim{"ns/c": c}, map[string]*corev1.PersistentVolume{"pv": v}
	return c, v
}

func local(path string) *corev1.PersistentVolumeSource {
	return &corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
}

func claim(name string) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}}
}

// failsWith checks that the pod is held because of its volume v.
func (n *node) failsWith(p *corev1.Pod, want string) {
	n.t.Helper()
	const failed = `MountVolume.SetUp failed for volume "v" : `
	if err := n.SetUp(n.t.Context(), p); err == nil || err.Error() != failed+want {
		n.t.Errorf("error %v\nwant  %s%s", err, failed, want)
	}
}

// spec: VOL-1, ATT-2
func TestClaims(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	p := pod(claim("v"))
	n.failsWith(p, `error processing PVC ns/c: failed to fetch PVC from API server: persistentvolumeclaims "c" not found`)
	c, v := n.bind(local(dir), "ReadWriteOnce")
	c.Status.Phase = "Pending"
	n.failsWith(p, `error processing PVC ns/c: PVC is not bound`)
	c.Status.Phase = "Bound"
	v.Spec.ClaimRef.Uid = "other"
	n.failsWith(p, `error processing PVC ns/c: PV pv is not bound to this claim: its claimRef.uid is "other", `+
		`not "claim-uid"`)
	v.Spec.ClaimRef.Uid = "claim-uid"
	v.Spec.PersistentVolumeSource = local(dir + "/none")
	n.failsWith(p, `path "`+dir+`/none" does not exist`)
	v.Spec.PersistentVolumeSource = &corev1.PersistentVolumeSource{Rbd: &corev1.RBDPersistentVolumeSource{}}
	n.failsWith(p, "no volume plugin matched: this agent has no driver for rbd volumes")
	v.Spec.PersistentVolumeSource = local(dir)
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchExpressions: []*corev1.NodeSelectorRequirement{
			{Key: "k", Operator: "In", Values: []string{"v"}},
		}}},
	}}
	n.failsWith(p, "MountVolume.NodeAffinity check failed: no matching NodeSelectorTerms")
	v.Spec.NodeAffinity = nil

	n.setUp(p)
	if got := n.given(p)["/v"]; got != dir {
		t.Errorf("it is mounted from %s, want %s", got, dir)
	}
	if err := os.WriteFile(dir+"/precious", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.claims = nil // a container can be started again while the API does not answer
	if got := n.given(p)["/v"]; got != dir {
		t.Errorf("it is mounted from %s, want %s", got, dir)
	}
	n.tearDown(p)
	if _, err := os.Stat(dir + "/precious"); err != nil {
		t.Errorf("the volume's content went with the pod: %v", err)
	}
	n.bind(&corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}, "ReadOnlyMany")
	n.setUp(p)
	got, err := n.Mounts(t.Context(), volumes.Starting{Pod: p, Container: p.Spec.Containers[0]})
	if err != nil || got.Mounts[0].HostPath != dir || !got.Mounts[0].Readonly {
		t.Errorf("mounts %v, %v", got, err)
	}
	n.tearDown(p)
}

// The directory of a volume that the server made is the agent's to make, with the first pod.
func TestLocalVolumesThatTheServerMade(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(t.TempDir(), "volumes", "pv")
	_, v := n.bind(local(path))
	v.Metadata.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "monoplane.dev/local"}
	p := pod(claim("v"))
	n.setUp(p)
	if mode := modeOf(t, path); mode != os.ModeDir|0o777 {
		t.Errorf("mode %v", mode)
	}
	if err := os.Chmod(path, 0o750); err != nil {
		t.Fatal(err)
	}
	n.setUp(p)
	if mode := modeOf(t, path); mode != os.ModeDir|0o750 {
		t.Errorf("mode %v after a second SetUp", mode)
	}
	n.tearDown(p)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("it went with the pod: %v", err)
	}
}

// A claim that one pod alone may use is refused to a second, until the first is gone.
// spec: ATT-1
func TestOnePodAlone(t *testing.T) {
	n := newNode(t)
	n.bind(local(t.TempDir()), "ReadWriteOncePod")
	first, second := pod(claim("v")), pod(claim("v"))
	second.Metadata.Uid = "uid-b"
	n.setUp(first)
	n.setUp(first)
	n.failsWith(second, "volume uses the ReadWriteOncePod access mode and is already in use by another pod of this "+
		"node, with uid uid-a")
	n.tearDown(first)
	n.setUp(second)
	n.tearDown(second)
}

// A claim that is named like one made for the pod, but is another's, is not taken.
func TestClaimsMadeForThePod(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	c, _ := n.bind(local(dir))
	n.claims = map[string]*corev1.PersistentVolumeClaim{"ns/a-v": c}
	p := pod(&corev1.Volume{Name: "v", VolumeSource: &corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	n.failsWith(p, "error processing PVC ns/a-v: PVC was not created for pod ns/a (pod is not owner)")
	c.Metadata.OwnerReferences = []*metav1.OwnerReference{{Uid: "uid-a", Controller: proto.Bool(true)}}
	n.setUp(p)
	if got := n.given(p)["/v"]; got != dir {
		t.Errorf("it is mounted from %s, want %s", got, dir)
	}
	n.tearDown(p)
}

func TestBlockDevices(t *testing.T) {
	n := newNode(t)
	device := ""
	for _, name := range []string{"loop0", "vda", "sda", "ram0", "nvme0n1"} {
		if info, err := os.Stat("/dev/" + name); err == nil && info.Mode().Type() == os.ModeDevice {
			device = "/dev/" + name
			break
		}
	}
	_, v := n.bind(local(device))
	v.Spec.VolumeMode = proto.String("Block")
	p := pod(claim("v"))
	n.failsWith(p, "volume v has volumeMode Block, but is specified in volumeMounts")
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []*corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/mine"}}
	v.Spec.VolumeMode = nil
	n.failsWith(p, "volume v has volumeMode Filesystem, but is specified in volumeDevices")
	v.Spec.VolumeMode = proto.String("Block")
	if device == "" {
		t.Skip("there is no block device here")
	}
	n.setUp(p)
	got, err := n.Mounts(t.Context(), volumes.Starting{Pod: p, Container: p.Spec.Containers[0]})
	want := &runtimeapi.Device{ContainerPath: "/dev/mine", HostPath: device, Permissions: "mrw"}
	if err != nil || len(got.Mounts) > 0 || len(got.Devices) != 1 || !proto.Equal(got.Devices[0], want) {
		t.Errorf("given %v, %v", got, err)
	}
	v.Spec.PersistentVolumeSource = local(t.TempDir())
	if err := n.SetUp(t.Context(), p); err == nil || !strings.HasSuffix(err.Error(),
		"is not a block device, which volumeMode Block needs") {
		t.Errorf("a directory as a device: %v", err)
	}
	n.tearDown(p)
}

// NFS is mounted by the system's own program; it is named when it is missing.
func TestNFS(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	from := &corev1.NFSVolumeSource{Server: "server", Path: "/exports/a", ReadOnly: true}
	inline := pod(&corev1.Volume{Name: "v", VolumeSource: &corev1.VolumeSource{Nfs: from}})
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if _, err := os.Stat("/sbin/mount.nfs"); errors.Is(err, os.ErrNotExist) {
		n.failsWith(inline, "the program mount.nfs is not on this node: install the package nfs-common (Debian, Ubuntu) or "+
			"nfs-utils (Fedora, Red Hat, Alpine, Arch)")
	}
	program := func(text string) {
		if err := os.WriteFile(bin+"/mount.nfs", []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program("echo no route to host; exit 32")
	err := n.SetUp(t.Context(), inline)
	if err == nil || !strings.Contains(err.Error(), "exit status 32") ||
		!strings.HasSuffix(err.Error(), "no route to host") {
		t.Errorf("error %v", err)
	}
	program(`echo "$@" >> ` + bin + `/calls; PATH=/bin:/usr/bin:/sbin mount -t tmpfs none "$2"`)
	n.setUp(inline)
	n.setUp(inline)
	dir := filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~nfs/v")
	if got := n.given(inline)["/v"]; got != dir {
		t.Errorf("it is mounted from %s, want %s", got, dir)
	}
	if got := n.read(bin + "/calls"); got != "server:/exports/a "+dir+" -o ro\n" {
		t.Errorf("calls %q", got)
	}
	if is, err := mount.Is(dir); !is || err != nil {
		t.Errorf("mounted: %v, %v", is, err)
	}
	n.tearDown(inline)

	_, v := n.bind(&corev1.PersistentVolumeSource{Nfs: &corev1.NFSVolumeSource{Server: "fd00::1", Path: "/b"}})
	v.Spec.MountOptions = []string{"nfsvers=4.2", "soft"}
	if err := os.Remove(bin + "/calls"); err != nil {
		t.Fatal(err)
	}
	p := pod(claim("v"))
	n.setUp(p)
	dir = filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~nfs/pv")
	if got := n.read(bin + "/calls"); got != "[fd00::1]:/b "+dir+" -o nfsvers=4.2,soft\n" {
		t.Errorf("calls %q", got)
	}
	n.tearDown(p)
}

// The files of an image are the runtime's to mount, once somebody has had it pulled. A path below them is found by the
// runtime, and not by names that lead out.
//
// spec: VOL-1
func TestImages(t *testing.T) {
	n := newNode(t)
	p := pod(&corev1.Volume{Name: "v", VolumeSource: &corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
		Reference: "r:1",
	}}})
	at := p.Spec.Containers[0].VolumeMounts[0]
	n.setUp(p)
	starting := volumes.Starting{Pod: p, Container: p.Spec.Containers[0],
		Lookup:            func(name string) (string, bool) { return "sub/" + name, name == "POD" },
		RecursiveReadOnly: func() bool { return true }}
	fails := func(want string) {
		t.Helper()
		if _, err := n.Mounts(t.Context(), starting); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	fails(`the image of volume "v" was not pulled for container "c"`)
	starting.Images = map[string]*runtimeapi.ImageSpec{"v": {Image: "sha256:1"}}
	gives := func(want *runtimeapi.Mount) {
		t.Helper()
		want.ContainerPath, want.Readonly, want.Image = "/v", true, &runtimeapi.ImageSpec{Image: "sha256:1"}
		got, err := n.Mounts(t.Context(), starting)
		if err != nil || len(got.Mounts) != 1 || !proto.Equal(got.Mounts[0], want) {
			t.Errorf("given %v, %v; want %v", got.Mounts, err, want)
		}
	}
	gives(&runtimeapi.Mount{})
	at.SubPath = "sub"
	gives(&runtimeapi.Mount{ImageSubPath: "sub"})
	at.SubPath, at.SubPathExpr = "", "x/$(POD)"
	gives(&runtimeapi.Mount{ImageSubPath: "x/sub/POD"})
	at.ReadOnly, at.RecursiveReadOnly = true, new("Enabled")
	gives(&runtimeapi.Mount{ImageSubPath: "x/sub/POD", RecursiveReadOnly: true})
	at.SubPathExpr = "$(OTHER)"
	fails(`subPathExpr "$(OTHER)" of volume "v": missing value for "OTHER"`)
	at.SubPathExpr = "../x"
	fails("unable to provision SubPath `../x`: must not contain '..'")
	at.SubPathExpr = "/x"
	fails("error SubPath `/x` must not be an absolute path")
	n.tearDown(p)
}
