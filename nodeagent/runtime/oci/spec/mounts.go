package spec

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options of mounts that several have.
const (
	nosuid = "nosuid"
	noexec = "noexec"
	nodev  = "nodev"
	ro     = "ro"
	rbind  = "rbind"
)

// below has files of the kernel by what they are mounted in. Whoever is given something else there means all of it:
// the machine's /sys has the machine's cgroups. So does containerd.
var below = map[string]string{"/dev/pts": "/dev", "/dev/mqueue": "/dev", "/sys/fs/cgroup": "/sys"}

// mounts lists what is mounted over the root: the kernel's files, what the pod has, and what was asked for. What is
// deeper comes later, and what was asked for takes the place of what would be there, and of the kernel's files below.
func (b *Bundle) mounts(in Input) error {
	sec := in.Container.GetLinux().GetSecurityContext()
	options := sec.GetNamespaceOptions()
	writable := ro
	if sec.GetPrivileged() {
		writable = "rw"
	}
	devpts := []string{nosuid, noexec, "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}
	if in.Rootless {
		devpts = devpts[:5] // The group need not exist in the user namespace.
	}
	base := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{nosuid, noexec, nodev}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{nosuid, "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: devpts},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{nosuid, noexec, nodev}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{nosuid, noexec, nodev, writable}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{nosuid, noexec, nodev, "relatime", writable}},
		{Destination: "/dev/shm", Type: "bind", Source: SharedMemory, Options: []string{rbind, nosuid, noexec, nodev}},
	}
	if options.GetIpc() == runtimeapi.NamespaceMode_NODE {
		base[6].Source = "/dev/shm"
	}
	if (in.Rootless || b.Users != "") && !in.OwnNetwork {
		// The files of the kernel's devices belong to the owner of the network.
		base[4] = specs.Mount{Destination: "/sys", Type: "bind", Source: "/sys",
			Options: []string{rbind, nosuid, noexec, nodev, ro}}
		if !ownCgroups(in) {
			base = slices.Delete(base, 5, 6)
		}
	}
	if in.Rootless && processes(in) == runtimeapi.NamespaceMode_NODE {
		// Only who has made a namespace of processes may mount its files.
		base[0] = specs.Mount{Destination: "/proc", Type: "bind", Source: "/proc",
			Options: []string{rbind, nosuid, noexec, nodev}}
	}
	if in.Rootless && options.GetIpc() == runtimeapi.NamespaceMode_NODE {
		// Only root of the machine may mount its message queues.
		base = slices.Concat(base[:3], machineQueues("/dev/mqueue"), base[4:])
	}
	for _, own := range [][2]string{{"/etc/hostname", in.Hostname}, {"/etc/resolv.conf", in.Resolv}} {
		if own[1] != "" {
			base = append(base, specs.Mount{Destination: own[0], Type: "bind", Source: own[1],
				UIDMappings: b.UIDs, GIDMappings: b.GIDs,
				Options: append([]string{rbind, "rprivate"}, readOnlyRoot(sec)...)})
		}
	}
	asked, err := b.askedMounts(in.Container.GetMounts())
	if err != nil {
		return err
	}
	wants := map[string]*runtimeapi.Mount{}
	for _, m := range in.Container.GetMounts() {
		wants[path.Join("/", m.GetContainerPath())] = m
	}
	base = slices.DeleteFunc(base, func(m specs.Mount) bool {
		return wants[m.Destination] != nil || wants[below[m.Destination]] != nil
	})
	volumes, err := imageVolumes(in.Image.Volumes, slices.Concat(base, asked))
	if err != nil {
		return err
	}
	all := slices.Concat(base, asked, volumes)
	slices.SortStableFunc(all, func(x, y specs.Mount) int { return depth(x.Destination) - depth(y.Destination) })
	for i, m := range all {
		want := wants[m.Destination]
		if want.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL {
			b.Shared = append(b.Shared, i)
		}
		if m.Source == ImageFiles {
			if b.Images == nil {
				b.Images = map[int]Files{}
			}
			b.Images[i] = Files{Image: want.GetImage().GetImage(),
				Name: cmp.Or(want.GetImage().GetUserSpecifiedImage(), want.GetImage().GetImage())}
		}
		if m.Source == ImageVolume {
			if b.Volumes == nil {
				b.Volumes = map[int]string{}
			}
			b.Volumes[i] = ""
		}
		if part := want.GetImageSubPath(); part != "" {
			if b.Parts == nil {
				b.Parts = map[int]string{}
			}
			b.Parts[i] = part
		}
	}
	if len(b.Shared) > 0 {
		b.Spec.Linux.RootfsPropagation = "rshared"
	}
	b.Spec.Mounts = all
	return nil
}

// machineQueues shows the message queues of the machine, which it has mounted at dir; nothing where it has not.
func machineQueues(dir string) []specs.Mount {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return []specs.Mount{{Destination: "/dev/mqueue", Type: "bind", Source: dir,
		Options: []string{rbind, nosuid, noexec, nodev}}}
}

// imageVolumes are the mounts that the image declares, in the order of its list, but for those at whose places others
// are.
//
// spec: CTR-6
func imageVolumes(paths []string, others []specs.Mount) (out []specs.Mount, err error) {
	for _, p := range paths {
		to := path.Join("/", p)
		if to == "/" {
			return nil, fmt.Errorf("the image declares the volume %q, which has to be a path below /", p)
		}
		isThere := func(m specs.Mount) bool { return m.Destination == to }
		if slices.ContainsFunc(others, isThere) || slices.ContainsFunc(out, isThere) {
			continue
		}
		out = append(out, specs.Mount{Destination: to, Type: "bind", Source: ImageVolume,
			Options: []string{rbind, "rprivate", "rw"}})
	}
	return out, nil
}

func depth(p string) int { return strings.Count(strings.Trim(p, "/"), "/") }

// readOnlyRoot makes the files of the pod read-only where the root is.
func readOnlyRoot(sec *runtimeapi.LinuxContainerSecurityContext) []string {
	if sec.GetReadonlyRootfs() {
		return []string{ro}
	}
	return []string{"rw"}
}

// askedMounts translates the mounts that the configuration lists. Of several at one place the last one is meant. Those
// whose ids are mapped are mapped by the helper.
func (b *Bundle) askedMounts(asked []*runtimeapi.Mount) (out []specs.Mount, err error) {
	for _, m := range asked {
		to := path.Join("/", m.GetContainerPath())
		out = slices.DeleteFunc(out, func(had specs.Mount) bool { return had.Destination == to })
		image := m.GetImage().GetImage()
		source := cmp.Or(m.GetHostPath(), image)
		switch {
		case source == "":
			return nil, fmt.Errorf("the mount at %q has no host_path, and no image", m.GetContainerPath())
		case image != "" && m.GetHostPath() != "":
			return nil, fmt.Errorf("the mount at %q has both a host_path and an image", m.GetContainerPath())
		case m.GetContainerPath() == "" || to == "/":
			return nil, fmt.Errorf("the mount of %q has no container_path below /", source)
		case image != "" && m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			return nil, fmt.Errorf("the mount at %q: an image needs a propagation that is not bidirectional", to)
		case m.GetImageSubPath() != "" && !filepath.IsLocal(m.GetImageSubPath()):
			return nil, fmt.Errorf("the mount at %q: image_sub_path %q leads out of %q", to, m.GetImageSubPath(), source)
		case m.GetImageSubPath() != "" && m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			return nil, fmt.Errorf("the mount at %q: image_sub_path needs a propagation that is not bidirectional", to)
		case m.GetRecursiveReadOnly() &&
			(!m.GetReadonly() || m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE):
			return nil, fmt.Errorf("the mount at %q: recursive_read_only needs readonly and private propagation", to)
		case b.Users != "" && m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			return nil, fmt.Errorf("the mount at %q: bidirectional propagation needs a pod with the users of the machine: "+
				"what is mounted in a user namespace does not leave it", to)
		}
		uids, gids := mappings(m.GetUidMappings()), mappings(m.GetGidMappings())
		if len(uids)+len(gids) > 0 && (!slices.Equal(uids, b.UIDs) || !slices.Equal(gids, b.GIDs)) {
			return nil, fmt.Errorf("the mount at %q: uid_mappings and gid_mappings must be those of the pod's user namespace",
				to)
		}
		o := []string{rbind}
		switch m.GetPropagation() {
		case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			o = append(o, "rshared")
		case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			o = append(o, "rslave")
		default:
			o = append(o, "rprivate")
		}
		switch {
		case m.GetRecursiveReadOnly():
			o = append(o, "rro")
		case m.GetReadonly(), image != "":
			o = append(o, ro)
		default:
			o = append(o, "rw")
		}
		if image != "" { // the helper maps the ids of the image's layers instead
			source, uids, gids = ImageFiles, nil, nil
		}
		out = append(out, specs.Mount{Destination: to, Type: "bind", Source: source, Options: o,
			UIDMappings: uids, GIDMappings: gids})
	}
	return out, nil
}
