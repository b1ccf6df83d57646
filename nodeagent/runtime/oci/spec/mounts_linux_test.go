package spec

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func withMounts(mounts ...*runtimeapi.Mount) func(*Input) {
	return func(in *Input) { in.Container.Mounts = mounts }
}

// at finds the mount at a place; there is one at most.
func at(t *testing.T, b *Bundle, place string) (specs.Mount, int) {
	t.Helper()
	found, index := specs.Mount{}, -1
	for i, m := range b.Spec.Mounts {
		if m.Destination != place {
			continue
		}
		if index >= 0 {
			t.Errorf("two mounts at %s", place)
		}
		found, index = m, i
	}
	return found, index
}

// spec: CTR-6, VOL-1
func TestMountOptions(t *testing.T) {
	const private, slave, shared = runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
		runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	for _, c := range []struct {
		mount   *runtimeapi.Mount
		options string
		shared  bool
	}{
		{mount: &runtimeapi.Mount{}, options: "rbind rprivate rw"},
		{mount: &runtimeapi.Mount{Readonly: true}, options: "rbind rprivate ro"},
		{mount: &runtimeapi.Mount{Propagation: slave}, options: "rbind rslave rw"},
		{mount: &runtimeapi.Mount{Propagation: shared}, options: "rbind rshared rw", shared: true},
		{mount: &runtimeapi.Mount{Readonly: true, RecursiveReadOnly: true, Propagation: private},
			options: "rbind rprivate rro"},
	} {
		c.mount.HostPath, c.mount.ContainerPath = "/src", "/a/b"
		b := made(t, asked(withMounts(c.mount)))
		m, i := at(t, b, "/a/b")
		if strings.Join(m.Options, " ") != c.options || m.Source != "/src" || m.Type != "bind" {
			t.Errorf("%+v: %+v", c.mount, m)
		}
		if c.shared != slices.Contains(b.Shared, i) || c.shared != (b.Spec.Linux.RootfsPropagation == "rshared") {
			t.Errorf("%+v: shared %v, %q", c.mount, b.Shared, b.Spec.Linux.RootfsPropagation)
		}
	}
}

func TestMountsThatMakeNoSense(t *testing.T) {
	const shared = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	for _, c := range []struct {
		mount *runtimeapi.Mount
		want  string
	}{
		{&runtimeapi.Mount{ContainerPath: "/x"}, "host_path"},
		{&runtimeapi.Mount{HostPath: "/x", Image: &runtimeapi.ImageSpec{Image: "a"}, ContainerPath: "/x"}, "both"},
		{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "a"}}, "container_path"},
		{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "a"}, ContainerPath: "/x", Propagation: shared},
			"not bidirectional"},
		{&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "a"}, ContainerPath: "/x", ImageSubPath: "../z"},
			"leads out"},
		{&runtimeapi.Mount{HostPath: "/x"}, "container_path"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "/"}, "container_path"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "a/../.."}, "container_path"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "/y", RecursiveReadOnly: true}, "recursive_read_only"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "/y", RecursiveReadOnly: true, Readonly: true,
			Propagation: shared}, "recursive_read_only"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "/y", ImageSubPath: "../z"}, "leads out"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "/y", ImageSubPath: "/z"}, "leads out"},
		{&runtimeapi.Mount{HostPath: "/x", ContainerPath: "/y", ImageSubPath: "z", Propagation: shared}, "image_sub_path"},
	} {
		_, err := Container(asked(withMounts(c.mount)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.mount, err)
		}
	}
}

// What is deeper is mounted later, in whichever order it was asked for; what was asked for takes the place of what
// would be there; and the indices of shared mounts and of parts are those of the sorted list.
func TestMountOrder(t *testing.T) {
	b := made(t, asked(withMounts(
		&runtimeapi.Mount{HostPath: "/h/3", ContainerPath: "/v/a/b", ImageSubPath: "part"},
		&runtimeapi.Mount{HostPath: "/h/2", ContainerPath: "/v/a",
			Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		&runtimeapi.Mount{HostPath: "/h/1", ContainerPath: "v"},
		&runtimeapi.Mount{HostPath: "/h/shm", ContainerPath: "/dev/shm/"},
		&runtimeapi.Mount{HostPath: "/h/resolv", ContainerPath: "/etc/resolv.conf"},
		&runtimeapi.Mount{HostPath: "/h/twice", ContainerPath: "/twice"},
		&runtimeapi.Mount{HostPath: "/h/last", ContainerPath: "/twice", ImageSubPath: "x"},
	), func(in *Input) { in.Hostname, in.Resolv = "/p/hostname", "/p/resolv" }))
	depths := -1
	for _, m := range b.Spec.Mounts {
		if d := depth(m.Destination); d < depths {
			t.Errorf("%s comes too late", m.Destination)
		} else {
			depths = d
		}
	}
	for place, source := range map[string]string{"/v": "/h/1", "/v/a": "/h/2", "/v/a/b": "/h/3", "/dev/shm": "/h/shm",
		"/etc/resolv.conf": "/h/resolv", "/etc/hostname": "/p/hostname", "/twice": "/h/last"} {
		if m, _ := at(t, b, place); m.Source != source {
			t.Errorf("%s: %+v", place, m)
		}
	}
	if _, i := at(t, b, "/v/a"); !slices.Equal(b.Shared, []int{i}) {
		t.Errorf("shared: %v", b.Shared)
	}
	_, part := at(t, b, "/v/a/b")
	_, twice := at(t, b, "/twice")
	if len(b.Parts) != 2 || b.Parts[part] != "part" || b.Parts[twice] != "x" {
		t.Errorf("parts: %v", b.Parts)
	}
}

// What was asked for at /dev and /sys shows what it has itself at the places of the kernel's files. The memory that a
// pod shares is there all the same.
func TestMountsOverKernelFiles(t *testing.T) {
	for _, c := range []struct{ over, gone, stay string }{
		{"/sys/", "/sys/fs/cgroup", "/dev /dev/pts /dev/mqueue /dev/shm /proc"},
		{"/dev", "/dev/pts /dev/mqueue", "/dev/shm /sys /sys/fs/cgroup /proc"},
		{"/sys/fs", "", "/sys /sys/fs/cgroup /dev/pts"},
	} {
		b := made(t, asked(withMounts(&runtimeapi.Mount{HostPath: "/h", ContainerPath: c.over})))
		for _, place := range strings.Fields(c.gone) {
			if m, i := at(t, b, place); i >= 0 {
				t.Errorf("over %s: %+v", c.over, m)
			}
		}
		for _, place := range strings.Fields(c.stay) {
			if _, i := at(t, b, place); i < 0 {
				t.Errorf("over %s: nothing at %s", c.over, place)
			}
		}
	}
}

// The files of the kernel are read-only unless the container is privileged.
func TestKernelMounts(t *testing.T) {
	for _, privileged := range []bool{false, true} {
		b := made(t, asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = privileged })))
		for _, place := range []string{"/sys", "/sys/fs/cgroup"} {
			if m, _ := at(t, b, place); slices.Contains(m.Options, ro) == privileged {
				t.Errorf("privileged %v: %+v", privileged, m)
			}
		}
		for _, place := range []string{"/proc", "/dev/pts", "/dev/mqueue", "/dev/shm"} {
			if m, i := at(t, b, place); i < 0 || !slices.Contains(m.Options, nosuid) || !slices.Contains(m.Options, noexec) {
				t.Errorf("%s: %+v", place, m)
			}
		}
	}
	host := made(t, asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.NamespaceOptions.Ipc = runtimeapi.NamespaceMode_NODE
	})))
	if m, _ := at(t, host, "/dev/shm"); m.Source != "/dev/shm" {
		t.Errorf("with the machine's IPC: %+v", m)
	}
	readOnly := made(t, asked(func(in *Input) {
		in.Hostname = "/p/hostname"
		in.Container.Linux.SecurityContext.ReadonlyRootfs = true
	}))
	if m, _ := at(t, readOnly, "/etc/hostname"); !slices.Contains(m.Options, ro) || !readOnly.Spec.Root.Readonly {
		t.Errorf("%+v", m)
	}
}

// Who is not root may not mount the message queues of the machine: a container that shares them is shown those that
// the machine has mounted, if it has.
//
// spec: CTR-6
func TestMessageQueuesOfTheMachine(t *testing.T) {
	for _, c := range []struct {
		rootless bool
		ipc      runtimeapi.NamespaceMode
		mounted  bool
	}{
		{false, runtimeapi.NamespaceMode_POD, true},
		{false, runtimeapi.NamespaceMode_NODE, true},
		{true, runtimeapi.NamespaceMode_POD, true},
		{true, runtimeapi.NamespaceMode_NODE, false},
	} {
		b := made(t, asked(func(in *Input) { in.Rootless = c.rootless },
			security(func(s *runtimeapi.LinuxContainerSecurityContext) { s.NamespaceOptions.Ipc = c.ipc })))
		if m, _ := at(t, b, "/dev/mqueue"); (m.Type == "mqueue") != c.mounted {
			t.Errorf("%+v: %+v", c, m)
		}
		for _, place := range []string{"/proc", "/dev", "/dev/pts", "/dev/shm", "/sys", "/sys/fs/cgroup"} {
			if _, i := at(t, b, place); i < 0 {
				t.Errorf("%+v: nothing is mounted at %s", c, place)
			}
		}
	}
	dir := t.TempDir()
	if m := machineQueues(dir); len(m) != 1 || m[0].Destination != "/dev/mqueue" || m[0].Type != "bind" ||
		m[0].Source != dir {
		t.Errorf("of a machine that has them: %+v", m)
	}
	if m := machineQueues(filepath.Join(dir, "none")); len(m) != 0 {
		t.Errorf("of a machine that has none: %+v", m)
	}
}

// spec: CTR-6
func TestDevices(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	devices := func(d ...*runtimeapi.Device) func(*Input) {
		return func(in *Input) { in.Container.Devices = d }
	}
	b := made(t, asked(devices(
		&runtimeapi.Device{HostPath: "/dev/null", ContainerPath: "/dev/mine", Permissions: "r"},
		&runtimeapi.Device{HostPath: filepath.Join(dir, "link"), ContainerPath: "/dev/linked", Permissions: "rwm"})))
	var got []string
	for _, d := range b.Spec.Linux.Devices {
		got = append(got, d.Path)
		if d.Type != "c" || d.Major != 1 || d.Minor != 3 {
			t.Errorf("%+v", d)
		}
	}
	if !slices.Equal(got, []string{"/dev/mine", "/dev/linked"}) {
		t.Errorf("%q", got)
	}
	rules := b.Spec.Linux.Resources.Devices
	if len(rules) != 3 || rules[0].Allow || rules[0].Access != "rwm" || rules[1].Access != "r" || !rules[1].Allow ||
		rules[2].Access != "rwm" {
		t.Errorf("%+v", rules)
	}
	for path, want := range map[string]string{"/no/such": "no such file", "/etc/passwd": "is none"} {
		_, err := Container(asked(devices(&runtimeapi.Device{HostPath: path, ContainerPath: "/dev/x", Permissions: "r"})))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	whole := made(t, asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })))
	for _, d := range whole.Spec.Linux.Devices {
		if strings.HasPrefix(d.Path, "/dev/pts/") || strings.HasPrefix(d.Path, "/dev/shm/") || d.Path == "/dev/console" {
			t.Errorf("a privileged container has %s of the machine's", d.Path)
		}
	}
	if !slices.ContainsFunc(whole.Spec.Linux.Devices, func(d specs.LinuxDevice) bool { return d.Path == "/dev/null" }) {
		t.Error("a privileged container has no /dev/null")
	}
}

// spec: USER-1
func TestUserNamespace(t *testing.T) {
	ids := []*runtimeapi.IDMapping{{HostId: 300000, Length: 65536}}
	users := func(u *runtimeapi.UserNamespace) func(*Input) {
		return security(func(s *runtimeapi.LinuxContainerSecurityContext) { s.NamespaceOptions.UsernsOptions = u })
	}
	want := []specs.LinuxIDMapping{{HostID: 300000, Size: 65536}}
	own := users(&runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids})
	has := func(in *Input) { in.Shim, in.Users, in.OwnNetwork = 42, 9, true }
	volume := &runtimeapi.Mount{HostPath: "/src", ContainerPath: "/a/b", UidMappings: ids, GidMappings: ids}
	in := asked(own, has, withMounts(volume))
	in.Resolv = "/resolv.conf"
	b := made(t, in)
	namespace := specs.LinuxNamespace{Type: specs.UserNamespace, Path: "/proc/42/fd/9"}
	if b.Users != namespace.Path || !slices.Contains(b.Spec.Linux.Namespaces, namespace) {
		t.Errorf("it joins %q %v", b.Users, b.Spec.Linux.Namespaces)
	}
	if !slices.Equal(b.UIDs, want) || !slices.Equal(b.GIDs, want) {
		t.Errorf("%+v %+v", b.UIDs, b.GIDs)
	}
	for _, path := range []string{"/a/b", "/etc/resolv.conf"} {
		if m, _ := at(t, b, path); !slices.Equal(m.UIDMappings, want) || !slices.Equal(m.GIDMappings, want) {
			t.Errorf("%s has %+v", path, m)
		}
	}
	if b := made(t, asked(users(&runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}))); b.Users != "" {
		t.Errorf("the machine's users are mapped: %q", b.Users)
	}
	for what, in := range map[string]Input{
		"no ids":       asked(users(&runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD}), has),
		"no namespace": asked(own),
		"another one":  asked(has),
		"other ids":    asked(withMounts(volume)),
		"both ways": asked(own, has, withMounts(&runtimeapi.Mount{HostPath: "/src", ContainerPath: "/a",
			Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL})),
	} {
		if _, err := Container(in); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// The files of an image are a mount for reading, whatever was asked for, whose ids are those of the image's layers.
//
// spec: CTR-6, VOL-1, USER-1
func TestMountedImages(t *testing.T) {
	ids := []*runtimeapi.IDMapping{{HostId: 300000, Length: 65536}}
	own := security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids,
			Gids: ids}
	})
	b := made(t, asked(own, func(in *Input) { in.Shim, in.Users, in.OwnNetwork = 42, 9, true }, withMounts(
		&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "a"}, ContainerPath: "/x/deep", ImageSubPath: "part",
			UidMappings: ids, GidMappings: ids},
		&runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "b", UserSpecifiedImage: "c"}, ContainerPath: "/y",
			Readonly: true, RecursiveReadOnly: true},
		&runtimeapi.Mount{HostPath: "/src", ContainerPath: "/z"})))
	for place, want := range map[string][4]string{
		"/x/deep": {"a", "part", "rbind rprivate ro", "a"}, "/y": {"b", "", "rbind rprivate rro", "c"},
	} {
		m, i := at(t, b, place)
		if m.Source != ImageFiles || strings.Join(m.Options, " ") != want[2] || len(m.UIDMappings)+len(m.GIDMappings) > 0 {
			t.Errorf("%s: %+v", place, m)
		}
		if b.Images[i].Image != want[0] || b.Images[i].Name != want[3] || b.Parts[i] != want[1] {
			t.Errorf("%s: image %+v, part %q", place, b.Images[i], b.Parts[i])
		}
	}
	if len(b.Images) != 2 || len(b.Parts) != 1 {
		t.Errorf("images %+v, parts %+v", b.Images, b.Parts)
	}
}

// What an image declares as a volume is a mount, unless something else is mounted there, once for each place.
//
// spec: CTR-6
func TestImageVolumes(t *testing.T) {
	b := made(t, asked(withMounts(&runtimeapi.Mount{HostPath: "/src", ContainerPath: "/a/b"}),
		func(in *Input) {
			in.Image.Volumes = []string{"/a", "/a/b/", "/proc", "rel/c", "/rel//c", "/dev/shm", "/z"}
		}))
	var got []string
	for i, m := range b.Spec.Mounts {
		_, listed := b.Volumes[i]
		if is := m.Source == ImageVolume; is != listed {
			t.Errorf("mount %d, %+v: listed %v", i, m, listed)
		} else if is {
			got = append(got, m.Destination+" "+strings.Join(m.Options, " "))
		}
	}
	slices.Sort(got)
	want := []string{"/a rbind rprivate rw", "/rel/c rbind rprivate rw", "/z rbind rprivate rw"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// The pod's mount is inside of a volume, and so comes later.
	_, volume := at(t, b, "/a")
	if m, mount := at(t, b, "/a/b"); mount < volume || m.Source != "/src" {
		t.Errorf("the mount %d, %+v, and the volume that it is in %d", mount, m, volume)
	}
	in := asked(func(in *Input) { in.Image.Volumes = []string{"/.."} })
	if _, err := Container(in); err == nil || !strings.Contains(err.Error(), `the volume "/.."`) {
		t.Errorf("a volume at the root: %v", err)
	}
}
