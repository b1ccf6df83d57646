package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// driver is a driver of storage whose volumes are directories.
type driver struct {
	spec.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	mu     sync.Mutex
	calls  []string
	fail   error
	hang   bool
	group  bool // it gives volumes to a group itself
	server *grpc.Server
}

// runDriver starts a driver d.example.com that announces itself in dir.
func runDriver(t *testing.T, dir string) *driver {
	t.Helper()
	d := &driver{server: grpc.NewServer()}
	spec.RegisterNodeServer(d.server, d)
	registration.RegisterRegistrationServer(d.server, d)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/d.sock")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); d.server.Serve(l) }()
	t.Cleanup(func() { d.server.Stop(); <-ended })
	return d
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: "d.example.com",
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) NotifyRegistrationStatus(
	context.Context, *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *spec.NodeGetCapabilitiesRequest,
) (*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	add := func(what spec.NodeServiceCapability_RPC_Type) {
		out.Capabilities = append(out.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: what}},
		})
	}
	add(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.group {
		add(spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	return out, nil
}

// forGroup says to which group a driver is to give a volume.
func forGroup(c *spec.VolumeCapability) string {
	if group := c.GetMount().GetVolumeMountGroup(); group != "" {
		return " for group " + group
	}
	return ""
}

// does notes a call, and fails or hangs as it is told.
func (d *driver) does(ctx context.Context, format string, args ...any) error {
	d.mu.Lock()
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
	fail, hang := d.fail, d.hang
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err() // who asked may have a little time left
	}
	return fail
}

func (d *driver) NodeStageVolume(
	ctx context.Context, r *spec.NodeStageVolumeRequest,
) (*spec.NodeStageVolumeResponse, error) {
	return &spec.NodeStageVolumeResponse{}, d.does(ctx, "stage %s %v%s", r.VolumeId, r.Secrets,
		forGroup(r.VolumeCapability))
}

func (d *driver) NodePublishVolume(
	ctx context.Context, r *spec.NodePublishVolumeRequest,
) (*spec.NodePublishVolumeResponse, error) {
	err := d.does(ctx, "publish %.4s to %s for %s staged %t secrets %v%s", r.VolumeId,
		filepath.Base(filepath.Dir(r.TargetPath)), r.VolumeContext["csi.storage.k8s.io/pod.name"],
		r.StagingTargetPath != "", r.Secrets, forGroup(r.VolumeCapability))
	if err == nil {
		err = os.MkdirAll(r.TargetPath, 0o755)
	}
	return &spec.NodePublishVolumeResponse{}, err
}

func (d *driver) NodeUnpublishVolume(
	ctx context.Context, r *spec.NodeUnpublishVolumeRequest,
) (*spec.NodeUnpublishVolumeResponse, error) {
	err := d.does(ctx, "unpublish %.4s", r.VolumeId)
	if err == nil {
		err = os.RemoveAll(r.TargetPath)
	}
	return &spec.NodeUnpublishVolumeResponse{}, err
}

func (d *driver) NodeUnstageVolume(
	ctx context.Context, r *spec.NodeUnstageVolumeRequest,
) (*spec.NodeUnstageVolumeResponse, error) {
	return &spec.NodeUnstageVolumeResponse{}, d.does(ctx, "unstage %s", r.VolumeId)
}

// did returns the calls since it was asked last.
func (d *driver) did() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := strings.Join(d.calls, "; ")
	d.calls = nil
	return out
}

func (d *driver) becomes(fail error, hang bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.hang = fail, hang
}

func (d *driver) expect(t *testing.T, want string) {
	t.Helper()
	if got := d.did(); got != want {
		t.Errorf("calls %s\nwant  %s", got, want)
	}
}

func driven(name string) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{Csi: &corev1.CSIVolumeSource{
		Driver: "d.example.com", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"},
	}}}
}

// A volume of a claim is staged once for the node and published for each pod; one made for the pod is published only.
func TestVolumesOfDrivers(t *testing.T) {
	n := newNode(t)
	p := pod(driven("v"))
	n.secrets["ns/s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("w")}}
	n.failsWith(p, "driver name d.example.com not found in the list of registered CSI drivers")
	d := runDriver(t, filepath.Join(filepath.Dir(n.dir), "registry"))
	n.setUp(p)
	d.expect(t, "publish csi- to v for a staged false secrets map[k:w]")
	if got, want := n.given(p)["/v"], filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~csi/v/mount"); got != want {
		t.Errorf("it is mounted from %s, want %s", got, want)
	}
	if kept := n.read(filepath.Join(n.dir, "uid-a/volumes.json")); strings.Contains(kept, `"w"`) {
		t.Errorf("a secret is written down: %s", kept)
	}
	n.Manager = n.manager() // the agent comes back
	n.tearDown(p)
	d.expect(t, "unpublish csi-")

	n.bind(&corev1.PersistentVolumeSource{Csi: &corev1.CSIPersistentVolumeSource{
		Driver: "d.example.com", VolumeHandle: "h", NodeStageSecretRef: &corev1.SecretReference{Namespace: "ns", Name: "s"},
	}}, "ReadWriteMany")
	first, second := pod(claim("v")), pod(claim("v"))
	second.Metadata.Name, second.Metadata.Uid = "b", "uid-b"
	n.setUp(first)
	n.setUp(second)
	d.expect(t, "stage h map[k:w]; publish h to pv for a staged true secrets map[]; "+
		"stage h map[k:w]; publish h to pv for b staged true secrets map[]")
	n.tearDown(first)
	d.expect(t, "unpublish h")
	n.tearDown(second)
	d.expect(t, "unpublish h; unstage h")
}

// A driver that can give a volume to a group is asked to, for the pod's fsGroup; nobody else does so then. spec: SEC-1
func TestDriversGiveVolumesToAGroup(t *testing.T) {
	n := newNode(t)
	d := runDriver(t, filepath.Join(filepath.Dir(n.dir), "registry"))
	n.bind(&corev1.PersistentVolumeSource{Csi: &corev1.CSIPersistentVolumeSource{
		Driver: "d.example.com", VolumeHandle: "h", FsType: "ext4",
	}}, "ReadWriteOnce")
	// As who the test runs: the files are that group's already, and anybody may say so again.
	group := int64(os.Getgid())
	p := pod(claim("v"))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FsGroup: &group}
	mode := func() os.FileMode {
		info, err := os.Stat(n.given(p)["/v"])
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode() & os.ModeSetgid
	}
	n.setUp(p)
	d.expect(t, "stage h map[]; publish h to pv for a staged true secrets map[]")
	if mode() == 0 {
		t.Error("the agent has not given the volume to the group, nor has the driver")
	}
	n.tearDown(p)
	d.did()
	d.mu.Lock()
	d.group = true
	d.mu.Unlock()
	n.setUp(p)
	d.expect(t, fmt.Sprintf("stage h map[] for group %d; publish h to pv for a staged true secrets map[] for group %[1]d",
		group))
	if mode() != 0 {
		t.Error("the agent has given the volume to the group, which is the driver's")
	}
	n.tearDown(p)
}

// A volume whose driver never was there goes without it, and one that was never mounted when its driver has gone. All
// volumes that stay are named. spec: DEL-7
func TestVolumesWithoutTheirDriver(t *testing.T) {
	n := newNode(t)
	n.secrets["ns/s"] = &corev1.Secret{}
	registry := filepath.Join(filepath.Dir(n.dir), "registry")
	gone := func() {
		t.Helper()
		n.tearDown(pod())
		if _, err := os.Lstat(filepath.Join(n.dir, "uid-a")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pod's directory: error %v, want none", err)
		}
	}
	p := pod(driven("v"), emptyDir("e", &corev1.EmptyDirVolumeSource{}))
	const missing = "driver name d.example.com not found in the list of registered CSI drivers"
	n.failsWith(p, missing)
	gone()
	n.bind(&corev1.PersistentVolumeSource{Csi: &corev1.CSIPersistentVolumeSource{
		Driver: "d.example.com", VolumeHandle: "h"}}, "ReadWriteOncePod")
	n.failsWith(pod(claim("v")), missing)
	gone()

	for call, p := range map[string]*corev1.Pod{
		"NodePublishVolume": pod(driven("v")), "NodeStageVolume": pod(claim("v")),
	} {
		d := runDriver(t, registry)
		d.becomes(status.Error(codes.Internal, "no disk"), false)
		n.failsWith(p, "rpc error from "+call+": code = Internal: no disk")
		d.server.Stop()
		if err := os.RemoveAll(registry); err != nil {
			t.Fatal(err)
		}
		n.failsWith(p, missing)
		gone()
	}

	d := runDriver(t, registry)
	p = pod(driven("v"), claim("w"))
	n.setUp(p)
	d.did()
	d.becomes(status.Error(codes.Internal, "no disk"), false)
	if err := n.TearDown(t.Context(), "uid-a"); err == nil || !strings.Contains(err.Error(), `volume "v": `) ||
		!strings.Contains(err.Error(), `; volume "w": `) {
		t.Errorf("error %v, want one that names both", err)
	}
	d.becomes(nil, false)
	gone()
}

// Whatever a power failure leaves of the record of a pod's volumes, that pod starts again, or goes, and others do.
func TestBrokenRecords(t *testing.T) {
	n := newNode(t)
	n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
	n.bind(&corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}}, "ReadWriteOncePod")
	p, other := pod(configMap("v", "cm"), emptyDir("e", &corev1.EmptyDirVolumeSource{})), pod(claim("c"))
	other.Metadata.Uid = "uid-b"
	n.setUp(p)
	path := filepath.Join(n.dir, "uid-a/volumes.json")
	whole := n.read(path)
	for size := range len(whole) {
		if err := os.WriteFile(path, []byte(whole[:size]), 0o600); err != nil {
			t.Fatal(err)
		}
		n.Manager = n.manager()
		if size%16 == 0 {
			n.setUp(other)
			n.tearDown(other)
		}
		if size%2 == 0 {
			if err := n.Rest(t.Context(), "uid-a"); err != nil {
				t.Fatalf("%d of %d bytes: %v", size, len(whole), err)
			}
			n.tearDown(p)
		}
		n.setUp(p)
		if got := n.read(n.given(p)["/v"] + "/k"); got != "v" {
			t.Errorf("%d of %d bytes: read %q", size, len(whole), got)
		}
	}
	n.tearDown(p)
}

// A driver that fails, hangs or is dead holds up the pods that use it and no others; what it was asked to do, it is
// asked to undo.
// spec: SAFE-6
func TestSickDrivers(t *testing.T) {
	n := newNode(t)
	n.secrets["ns/s"] = &corev1.Secret{}
	d := runDriver(t, filepath.Join(filepath.Dir(n.dir), "registry"))
	p := pod(driven("v"))
	d.becomes(status.Error(codes.Internal, "no disk"), false)
	n.failsWith(p, "rpc error from NodePublishVolume: code = Internal: no disk")
	d.did()
	if err := n.TearDown(t.Context(), "uid-a"); err == nil || !strings.Contains(err.Error(), `volume "v": rpc error `+
		`from NodeUnpublishVolume: code = Internal: no disk`) {
		t.Errorf("error %v", err)
	}
	d.expect(t, "unpublish csi-")

	d.becomes(nil, true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	// On a slow machine the time is over before the driver was asked, which is worded differently.
	if err := n.SetUp(ctx, p); err == nil || !strings.Contains(strings.ToLower(err.Error()), "deadline") {
		t.Errorf("error %v", err)
	}
	other := pod(emptyDir("v", &corev1.EmptyDirVolumeSource{}))
	other.Metadata.Uid = "uid-b"
	n.setUp(other)
	if err := n.TearDown(t.Context(), "uid-b"); err != nil {
		t.Error(err)
	}
	d.becomes(nil, false)
	n.setUp(p)
	d.server.Stop()
	if err := n.TearDown(t.Context(), "uid-a"); err == nil {
		t.Error("taken away without the driver")
	}
	if _, err := os.Stat(filepath.Join(n.dir, "uid-a/volumes.json")); errors.Is(err, os.ErrNotExist) {
		t.Error("it is forgotten what the driver must release")
	}
	runDriver(t, filepath.Join(filepath.Dir(n.dir), "registry"))
	n.tearDown(p)
}
