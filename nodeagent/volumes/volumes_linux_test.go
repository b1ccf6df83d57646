package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/volumes"
	"monoplane.dev/nodeagent/volumes/mount"
)

// node is a manager with the objects it can read.
type node struct {
	*volumes.Manager
	t   *testing.T
	dir string

	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
	pvs        map[string]*corev1.PersistentVolume
	tokens     int
	fail       error
	lifetime   time.Duration
	due        []string
	// unenforced is what pods were told that they do not get.
	unenforced []string
}

func newNode(t *testing.T) *node {
	return newNodeIn(t, filepath.Join(t.TempDir(), "pods"))
}

func newNodeIn(t *testing.T, dir string) *node {
	n := &node{
		t: t, dir: dir, configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
		lifetime: time.Hour,
	}
	n.Manager = n.manager()
	t.Cleanup(func() { n.TearDown(context.Background(), "uid-a") })
	return n
}

func (n *node) manager() *volumes.Manager {
	m := volumes.New(volumes.Config{
		Dir: n.dir, Objects: n, Tokens: n, Claims: n,
		RegistryDir: filepath.Join(filepath.Dir(n.dir), "registry"),
		PluginsDir:  filepath.Join(filepath.Dir(n.dir), "plugins"),
		Node:        func() *corev1.Node { return &corev1.Node{} },
		NotEnforced: func(p *corev1.Pod, message string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.unenforced = append(n.unenforced, p.GetMetadata().GetName()+": "+message)
		},
		Due: func(uid string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.due = append(n.due, uid)
		},
	})
	n.t.Cleanup(m.Close)
	return m
}

func (n *node) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cm := n.configMaps[namespace+"/"+name]; cm != nil {
		return cm, nil
	}
	return nil, apierrors.New(apierrors.NotFound, "configmaps %q not found", name)
}

func (n *node) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.New(apierrors.NotFound, "secrets %q not found", name)
}

func (n *node) Token(_ context.Context, p *corev1.Pod, audience string, seconds int64) (string, time.Time, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return "", time.Time{}, n.fail
	}
	n.tokens++
	return fmt.Sprintf("%s:%s:%d:%d", p.Metadata.Name, audience, seconds, n.tokens), time.Now().Add(n.lifetime), nil
}

// pod returns pod a, whose container c mounts each volume at /<name>.
func pod(all ...*corev1.Volume) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "a", Uid: "uid-a"},
		Spec:     &corev1.PodSpec{Volumes: all, Containers: []*corev1.Container{{Name: "c"}}},
	}
	for _, v := range all {
		c := p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, &corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}

func configMap(name, of string, items ...*corev1.KeyToPath) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: &corev1.LocalObjectReference{Name: of}, Items: items,
	}}}
}

func secret(name, of string) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: of},
	}}
}

func emptyDir(name string, v *corev1.EmptyDirVolumeSource) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{EmptyDir: v}}
}

func host(name, path, kind string) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: path, Type: proto.String(kind),
	}}}
}

func (n *node) setUp(p *corev1.Pod) {
	n.t.Helper()
	if err := n.SetUp(n.t.Context(), p); err != nil {
		n.t.Fatal(err)
	}
}

// given returns what container c is given, by path.
func (n *node) given(p *corev1.Pod) map[string]string {
	n.t.Helper()
	got, err := n.Mounts(n.t.Context(), volumes.Starting{Pod: p, Container: p.Spec.Containers[0]})
	if err != nil {
		n.t.Fatal(err)
	}
	at := map[string]string{}
	for _, m := range got.Mounts {
		at[m.ContainerPath] = m.HostPath
	}
	return at
}

func (n *node) read(path string) string {
	n.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

func (n *node) tearDown(p *corev1.Pod) {
	n.t.Helper()
	if err := n.TearDown(n.t.Context(), p.Metadata.Uid); err != nil {
		n.t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(n.dir, p.Metadata.Uid)); !errors.Is(err, fs.ErrNotExist) {
		n.t.Errorf("the pod's directory: %v", err)
	}
	if points, err := mount.Below(n.dir); err != nil || len(points) > 0 {
		n.t.Errorf("left mounted: %v, %v", points, err)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount and to give files away")
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func ownerOf(t *testing.T, path string) (uid, gid uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid, st.Gid
}

// spec: VOL-1
func TestFilesOfAConfigMapFollowIt(t *testing.T) {
	n := newNode(t)
	n.configMaps["ns/cm"] = &corev1.ConfigMap{
		Data: map[string]string{"k": "v", "gone": "x"}, BinaryData: map[string][]byte{"b": {0, 1}},
	}
	v := configMap("v", "cm")
	v.VolumeSource.ConfigMap.DefaultMode = proto.Int32(0o440)
	p := pod(v)
	n.setUp(p)
	dir := n.given(p)["/v"]
	if want := filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~configmap/v"); dir != want {
		t.Errorf("it is mounted from %s, want %s", dir, want)
	}
	if got := n.read(dir+"/k") + n.read(dir+"/b"); got != "v\x00\x01" {
		t.Errorf("read %q", got)
	}
	if mode := modeOf(t, dir+"/k"); mode != 0o440 {
		t.Errorf("mode %v", mode)
	}
	n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "w"}}
	if err := n.manager().Refresh(t.Context(), p); err != nil { // by an agent that has come back
		t.Fatal(err)
	}
	if got := n.read(dir + "/k"); got != "w" {
		t.Errorf("read %q after a change", got)
	}
	if _, err := os.Stat(dir + "/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that is gone: %v", err)
	}
	delete(n.configMaps, "ns/cm")
	if err := n.Refresh(t.Context(), p); err == nil || n.read(dir+"/k") != "w" {
		t.Errorf("a config map that is gone takes its files along: %v", err)
	}
	n.tearDown(p)
	if err := n.Refresh(t.Context(), p); err != nil {
		t.Errorf("refresh of what was taken down: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(n.dir, "uid-a")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a refresh made the volumes anew")
	}
	n.tearDown(p)
}

// What is missing keeps the pod waiting, in Kubernetes' words, and is found once it is there.
func TestMissing(t *testing.T) {
	n := newNode(t)
	n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
	for _, c := range []struct {
		v    *corev1.Volume
		want string
	}{
		{configMap("x", "y"), `MountVolume.SetUp failed for volume "x" : configmap "y" not found`},
		{secret("x", "y"), `MountVolume.SetUp failed for volume "x" : secret "y" not found`},
		{
			configMap("x", "cm", &corev1.KeyToPath{Key: "l", Path: "l"}),
			`MountVolume.SetUp failed for volume "x" : configmap references non-existent config key: l`,
		},
		{
			configMap("x", "cm", &corev1.KeyToPath{Key: "k", Path: "../l"}),
			`MountVolume.SetUp failed for volume "x" : invalid path: must not contain '..': ../l`,
		},
		{
			&corev1.Volume{Name: "x", VolumeSource: &corev1.VolumeSource{Rbd: &corev1.RBDVolumeSource{}}},
			`MountVolume.SetUp failed for volume "x" : no volume plugin matched: this agent has no driver for rbd volumes`,
		},
		{
			&corev1.Volume{Name: "x", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []*corev1.VolumeProjection{
					{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}},
					{PodCertificate: &corev1.PodCertificateProjection{}},
				},
			}}},
			`MountVolume.SetUp failed for volume "x" : [the source clusterTrustBundle is not supported: the server has no ` +
				`cluster trust bundles, the source podCertificate is not supported: the server signs no pod certificates]`,
		},
	} {
		if err := n.SetUp(t.Context(), pod(c.v)); err == nil || err.Error() != c.want {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
	p := pod(configMap("x", "y"), configMap("good", "cm"))
	if err := n.SetUp(t.Context(), p); err == nil {
		t.Error("set up without its config map")
	}
	n.configMaps["ns/y"] = &corev1.ConfigMap{Data: map[string]string{"k": "late"}}
	n.setUp(p)
	if got := n.read(n.given(p)["/x"] + "/k"); got != "late" {
		t.Errorf("read %q", got)
	}
	missing := configMap("x", "missing")
	missing.VolumeSource.ConfigMap.Optional = proto.Bool(true)
	n.setUp(pod(missing))
	unused := pod(configMap("x", "missing"))
	unused.Spec.Containers[0].VolumeMounts = nil
	n.setUp(unused) // a volume that no container mentions is not looked at
	n.tearDown(p)
}

// spec: VOL-1
func TestSecretsLieInMemory(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	n.secrets["ns/s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	p := pod(secret("v", "s"))
	n.setUp(p)
	n.setUp(p)
	dir := n.given(p)["/v"]
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("file system %x, %v", st.Type, err)
	}
	if points, _ := mount.Below(n.dir); len(points) != 1 {
		t.Errorf("after two times: %v", points)
	}
	if got := n.read(dir + "/k"); got != "v" {
		t.Errorf("read %q", got)
	}
	n.tearDown(p)
}

// A node that is to be empty for a while has nothing mounted, so that its directory can be removed as any other; what
// lies on disk stays, and SetUp brings the rest back.
func TestRest(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	n.secrets["ns/s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	p := pod(secret("v", "s"), emptyDir("disk", &corev1.EmptyDirVolumeSource{}))
	n.setUp(p)
	at := n.given(p)
	if err := os.WriteFile(filepath.Join(at["/disk"], "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.Rest(t.Context(), p.GetMetadata().GetUid()); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mount.Below(n.dir); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	n.setUp(p)
	if _, err := os.Stat(filepath.Join(at["/disk"], "kept")); err != nil {
		t.Error(err)
	}
	if got := n.read(filepath.Join(at["/v"], "k")); got != "v" {
		t.Errorf("read %q", got)
	}
	n.tearDown(p)
}

// A projected volume joins its sources; its token can be read by the user that runs alone, or by fsGroup.
func TestProjectedWithOwners(t *testing.T) {
	needsRoot(t)
	v := &corev1.Volume{Name: "v", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: proto.Int32(0o644),
		Sources: []*corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: "token", Audience: "me", ExpirationSeconds: proto.Int64(7200),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: &corev1.LocalObjectReference{Name: "cm"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []*corev1.DownwardAPIVolumeFile{
				{Path: "sub/name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}, Mode: proto.Int32(0o400)},
			}}},
		},
	}}}
	for _, c := range []struct {
		user, group *int64
		mode        fs.FileMode
		uid, gid    uint32
	}{
		{nil, nil, 0o644, 0, 0},
		{proto.Int64(1234), nil, 0o600, 1234, 0},
		{nil, proto.Int64(77), 0o640, 0, 77},
		{proto.Int64(1234), proto.Int64(77), 0o640, 1234, 77},
	} {
		n := newNode(t)
		n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
		p := pod(v)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: c.user, FsGroup: c.group}
		n.setUp(p)
		dir := n.given(p)["/v"]
		if got := n.read(dir+"/token") + n.read(dir+"/k") + n.read(dir+"/sub/name"); got != "a:me:7200:1va" {
			t.Errorf("read %q", got)
		}
		token, err := filepath.EvalSymlinks(dir + "/token")
		if err != nil {
			t.Fatal(err)
		}
		uid, gid := ownerOf(t, token)
		if mode := modeOf(t, token); mode != c.mode || uid != c.uid || gid != c.gid {
			t.Errorf("the token has mode %v, owner %d:%d, want %+v", mode, uid, gid, c)
		}
		want := fs.FileMode(0o400)
		if c.group != nil {
			want = 0o440
		}
		if mode := modeOf(t, dir+"/sub/name"); mode != want {
			t.Errorf("the file has mode %v, want %v", mode, want)
		}
		n.tearDown(p)
	}
}

// spec: VOL-1
func TestEmptyDirs(t *testing.T) {
	needsRoot(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	n := newNode(t)
	p := pod(emptyDir("disk", &corev1.EmptyDirVolumeSource{}), emptyDir("memory", &corev1.EmptyDirVolumeSource{
		Medium: "Memory", SizeLimit: &metav1.Quantity{String_: "1Mi"},
	}))
	n.setUp(p)
	at := n.given(p)
	for _, dir := range at {
		if mode := modeOf(t, dir); mode.Perm() != 0o777 {
			t.Errorf("%s has mode %v", dir, mode)
		}
		if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	err := os.WriteFile(filepath.Join(at["/memory"], "large"), make([]byte, 2<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("two megabytes in one: %v", err)
	}
	n.setUp(p)
	for _, dir := range at {
		if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
			t.Errorf("a second SetUp: %v", err)
		}
	}
	n.tearDown(p)

	p.Spec.SecurityContext = &corev1.PodSecurityContext{FsGroup: proto.Int64(77)}
	n.setUp(p)
	for _, dir := range n.given(p) {
		if _, gid := ownerOf(t, dir); gid != 77 || modeOf(t, dir) != fs.ModeDir|fs.ModeSetgid|0o777 {
			t.Errorf("%s has group %d, mode %v", dir, gid, modeOf(t, dir))
		}
	}
	n.tearDown(p)
}

// A volume of huge pages is a file system of the kernel's for them, of the size that the pod asks for. spec: VOL-1
func TestHugePages(t *testing.T) {
	needsRoot(t)
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("the kernel has no huge pages of 2 MiB")
	}
	n := newNode(t)
	for _, medium := range []string{"HugePages-2Mi", "HugePages"} {
		p := pod(emptyDir("huge", &corev1.EmptyDirVolumeSource{Medium: medium}))
		p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{
			Limits:   map[string]*metav1.Quantity{"hugepages-2Mi": {String_: "4Mi"}},
			Requests: map[string]*metav1.Quantity{"hugepages-2Mi": {String_: "4Mi"}},
		}
		n.setUp(p)
		dir := n.given(p)["/huge"]
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil || s.Type != unix.HUGETLBFS_MAGIC || s.Bsize != 2<<20 || s.Blocks != 2 {
			t.Errorf("%s: %s has type %x, %d pages of %d, %v", medium, dir, s.Type, s.Blocks, s.Bsize, err)
		}
		n.tearDown(p)
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s is left: %v", medium, dir, err)
		}
	}
}

func TestHostPaths(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const failed = `MountVolume.SetUp failed for volume "v" : `
	for _, c := range []struct{ path, kind, want string }{
		{dir, "", ""},
		{dir + "/missing", "", ""},
		{dir, "Directory", ""},
		{dir + "/missing", "Directory", "hostPath type check failed: " + dir + "/missing is not a directory"},
		{dir + "/file", "Directory", "hostPath type check failed: " + dir + "/file is not a directory"},
		{dir + "/new/dir", "DirectoryOrCreate", ""},
		{dir + "/file", "DirectoryOrCreate", "hostPath type check failed: " + dir + "/file is not a directory"},
		{dir + "/file", "File", ""},
		{dir, "File", "hostPath type check failed: " + dir + " is not a file"},
		{dir + "/newfile", "FileOrCreate", ""},
		{dir, "FileOrCreate", "hostPath type check failed: " + dir + " is not a file"},
		{dir + "/socket", "Socket", ""},
		{dir + "/file", "Socket", "hostPath type check failed: " + dir + "/file is not a socket file"},
		{"/dev/null", "CharDevice", ""},
		{dir + "/file", "CharDevice", "hostPath type check failed: " + dir + "/file is not a character device"},
		{"/dev/null", "BlockDevice", "hostPath type check failed: /dev/null is not a block device"},
		{dir, "Nothing", "Nothing is an invalid volume type"},
	} {
		p := pod(host("v", c.path, c.kind))
		err := n.SetUp(t.Context(), p)
		switch {
		case c.want != "" && (err == nil || err.Error() != failed+c.want):
			t.Errorf("%s as %s: %v, want %s", c.path, c.kind, err, c.want)
		case c.want == "" && err != nil:
			t.Errorf("%s as %s: %v", c.path, c.kind, err)
		case c.want == "":
			if got := n.given(p)["/v"]; got != c.path {
				t.Errorf("%s is mounted from %s", c.path, got)
			}
		}
	}
	for _, made := range []string{"new/dir", "newfile"} {
		if _, err := os.Stat(filepath.Join(dir, made)); err != nil {
			t.Error(err)
		}
	}
	if err := n.TearDown(t.Context(), "uid-a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/file"); err != nil {
		t.Errorf("taken down with the pod: %v", err)
	}
}

// A container that swaps a directory of its volume for a link to /etc never gets /etc.
func TestSubPathNeverLeads(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	p := pod(emptyDir("v", &corev1.EmptyDirVolumeSource{}))
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "dir"
	n.setUp(p)
	at := n.given(p)["/v"]
	if want := filepath.Join(n.dir, "uid-a/volume-subpaths/v/c/0"); at != want {
		t.Errorf("it is mounted from %s, want %s", at, want)
	}
	vol := filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~empty-dir/v")
	if err := os.WriteFile(vol+"/dir/seen", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", vol+"/etc"); err != nil {
		t.Fatal(err)
	}
	swap := func() error {
		return unix.Renameat2(unix.AT_FDCWD, vol+"/dir", unix.AT_FDCWD, vol+"/etc", unix.RENAME_EXCHANGE)
	}
	if err := swap(); err != nil { // once before, and then without end
		t.Fatal(err)
	}
	s := volumes.Starting{Pod: p, Container: p.Spec.Containers[0]}
	if _, err := n.Mounts(t.Context(), s); err == nil || !strings.Contains(err.Error(), "leads out of the volume") {
		t.Errorf("a link to /etc: %v", err)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := swap(); err != nil {
				ended <- err
				return
			}
		}
	}()
	good, refused := 0, 0
	for i := 0; i < 200 || (good == 0 || refused == 0) && i < 20_000; i++ {
		got, err := n.Mounts(t.Context(), s)
		if err != nil {
			refused++
			continue
		}
		good++
		if _, err := os.Stat(got.Mounts[0].HostPath + "/seen"); err != nil {
			t.Fatalf("what is mounted is not the directory: %v", err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if good == 0 || refused == 0 {
		t.Errorf("mounted %d times, refused %d times: the race was not tried", good, refused)
	}
	n.tearDown(p)
}

func TestMountOptions(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
	p := pod(configMap("cm", "cm"), emptyDir("e", &corev1.EmptyDirVolumeSource{}))
	n.setUp(p)
	can := true
	lookup := func(name string) (string, bool) { return "made/of-" + name, name == "POD" }
	mounts := func(m *corev1.VolumeMount) (volumes.Container, error) {
		c := &corev1.Container{Name: "c", VolumeMounts: []*corev1.VolumeMount{m}}
		return n.Mounts(t.Context(), volumes.Starting{
			Pod: p, Container: c, Lookup: lookup, RecursiveReadOnly: func() bool { return can },
		})
	}
	for _, c := range []struct {
		m    *corev1.VolumeMount
		want string
	}{
		{&corev1.VolumeMount{Name: "cm", MountPath: "/x"}, `readonly:true`},
		{&corev1.VolumeMount{Name: "cm", MountPath: "/x", SubPath: "k"}, `readonly:true`},
		{&corev1.VolumeMount{Name: "e", MountPath: "x"}, `container_path:"/x"`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", ReadOnly: true}, `readonly:true`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", MountPropagation: proto.String("HostToContainer")},
			`propagation:PROPAGATION_HOST_TO_CONTAINER`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", MountPropagation: proto.String("Bidirectional")},
			`propagation:PROPAGATION_BIDIRECTIONAL`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: proto.String("Enabled")},
			`recursive_read_only:true`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", SubPathExpr: "$(POD)/y"}, `volume-subpaths/e/c/0`},
	} {
		got, err := mounts(c.m)
		if err != nil {
			t.Errorf("%v: %v", c.m, err)
			continue
		}
		if text := strings.ReplaceAll(got.Mounts[0].String(), "  ", " "); !strings.Contains(text, c.want) {
			t.Errorf("%v is %s, want %s", c.m, text, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(n.dir, "uid-a/volumes/kubernetes.io~empty-dir/e/made/of-POD/y")); err != nil {
		t.Error(err)
	}
	can = false
	for _, c := range []struct {
		m    *corev1.VolumeMount
		want string
	}{
		{&corev1.VolumeMount{Name: "none", MountPath: "/x"}, `cannot find volume "none" to mount into container "c"`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", SubPath: "../x"}, `unable to provision SubPath`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", SubPath: "/x"}, `must not be an absolute path`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", SubPathExpr: "$(NONE)"}, `missing value for "NONE"`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", RecursiveReadOnly: proto.String("Enabled")}, `not read-only`},
		{&corev1.VolumeMount{Name: "e", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: proto.String("Enabled")},
			`not supported by the runtime`},
	} {
		if _, err := mounts(c.m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.m, err, c.want)
		}
	}
	n.tearDown(p)
}

// One volume can be mounted inside another that is written by the agent.
func TestMountedInsideAnother(t *testing.T) {
	n := newNode(t)
	n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
	p := pod(configMap("cm", "cm"), emptyDir("e", &corev1.EmptyDirVolumeSource{}))
	p.Spec.Containers[0].VolumeMounts[1].MountPath = "/cm/inner/most"
	n.setUp(p)
	if !modeOf(t, n.given(p)["/cm"]+"/inner/most").IsDir() {
		t.Error("there is nowhere to mount it")
	}
	n.tearDown(p)
}

// A file can be mounted over a key of a volume that is written by the agent, or beside its keys, and a directory over
// a key: what is there is what can be mounted on, and the other keys stay.
func TestMountedOverKeys(t *testing.T) {
	needsRoot(t)
	n := newNode(t)
	n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v", "l": "v", "m": "v"}}
	n.secrets["ns/s"] = &corev1.Secret{Data: map[string][]byte{"file": []byte("s")}}
	onMachine := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(onMachine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inProjection := &corev1.Volume{Name: "p", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []*corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: &corev1.LocalObjectReference{Name: "cm"}}}},
	}}}
	outers := []*corev1.Volume{configMap("cm", "cm"), inProjection}
	p := pod(append(outers, secret("s", "s"), emptyDir("e", &corev1.EmptyDirVolumeSource{}), host("h", onMachine, ""))...)
	c := p.Spec.Containers[0]
	c.VolumeMounts = nil
	for _, o := range outers {
		at := "/" + o.GetName()
		c.VolumeMounts = append(c.VolumeMounts,
			&corev1.VolumeMount{Name: "s", MountPath: at + "/k", SubPath: "file"},
			&corev1.VolumeMount{Name: o.GetName(), MountPath: at + "/"},
			&corev1.VolumeMount{Name: "s", MountPath: at + "/fresh", SubPath: "file"},
			&corev1.VolumeMount{Name: "e", MountPath: at + "/l", SubPath: "dir"},
			&corev1.VolumeMount{Name: "e", MountPath: at + "/deep/dir", SubPath: "dir"},
			&corev1.VolumeMount{Name: "h", MountPath: at + "/deep/machine"},
			&corev1.VolumeMount{Name: "s", MountPath: at + "/deep/dir/left/to/the/runtime", SubPath: "file"})
	}
	for range 2 { // the second time for a container that starts again
		n.setUp(p)
		given := n.given(p)
		for _, o := range outers {
			at := given["/"+o.GetName()+"/"]
			for path, isDir := range map[string]bool{
				"k": false, "fresh": false, "l": true, "m": false, "deep/dir": true, "deep/machine": false,
			} {
				if modeOf(t, filepath.Join(at, path)).IsDir() != isDir {
					t.Errorf("%s of %s is a directory: %v", path, o.GetName(), !isDir)
				}
			}
			if got := n.read(at+"/k") + n.read(at+"/m"); got != "vv" {
				t.Errorf("the keys of %s are %q", o.GetName(), got)
			}
			if _, err := os.Lstat(filepath.Join(at, "deep/dir/left")); err == nil {
				t.Error("something was made for what lies in a volume between")
			}
		}
		n.configMaps["ns/cm"].Data["m"] = "v"
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	n.tearDown(p)
}

// A full disk, or one without inodes, keeps the pod waiting; what was there stays, and it goes on by itself.
func TestFullDisk(t *testing.T) {
	needsRoot(t)
	for name, options := range map[string]string{"blocks": "size=64k", "inodes": "nr_inodes=24"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			n := newNodeIn(t, filepath.Join(dir, "pods"))
			n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
			p := pod(configMap("v", "cm"))
			n.setUp(p)
			at := n.given(p)["/v"]
			var fillers []string
			for i := 0; ; i++ {
				filler := filepath.Join(dir, fmt.Sprint("filler", i))
				err := os.WriteFile(filler, make([]byte, 4096), 0o600)
				fillers = append(fillers, filler)
				if errors.Is(err, syscall.ENOSPC) {
					break
				}
				if err != nil || i > 1000 {
					t.Fatal(i, err)
				}
			}
			n.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "new", "l": "new"}}
			if err := n.Refresh(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("refresh on a full disk: %v", err)
			}
			if got := n.read(at + "/k"); got != "v" {
				t.Errorf("read %q", got)
			}
			other := pod(configMap("v", "cm"))
			other.Metadata.Uid = "uid-b"
			if err := n.SetUp(t.Context(), other); err == nil {
				t.Error("a second pod was set up on a full disk")
			}
			for _, filler := range fillers {
				os.Remove(filler)
			}
			if err := n.Refresh(t.Context(), p); err != nil || n.read(at+"/k") != "new" {
				t.Errorf("after there is room again: %v", err)
			}
			n.setUp(other)
			if err := n.TearDown(t.Context(), "uid-b"); err != nil {
				t.Error(err)
			}
			n.tearDown(p)
		})
	}
}
